"""Pages of the Spark UI of an attempt, as the REST API and the port of Spark UIs read them."""

from __future__ import annotations

from emberkeep.base.errors import Absent, RetryLater
from emberkeep.jobmanager.views.cluster import JobManagerGateway, JobView
from emberkeep.protocol.messages.job_masters import SparkUiRead
from emberkeep.rest.ports import SparkUis
from emberkeep.rest.serving.spark_ui_links import SparkUiView


def shown_attempt(job: JobView, attempt: int) -> SparkUiView:
    """Return the view of an attempt; 0: the newest one. Raises Absent."""
    number = attempt or job.attempt
    if not 1 <= number <= job.attempt:
        if job.attempt:
            raise Absent(f"job {job.name!r} has no attempt {number}", hint=f"its newest attempt is {job.attempt}")
        raise Absent(f"no driver of job {job.name!r} was started yet", hint="its Spark UI begins with its first driver")
    return SparkUiView(job.job_id, number)


async def read_spark_ui(
    gateway: JobManagerGateway,
    uis: SparkUis,
    view: SparkUiView,
    path: str,
    base: str = "",
    *,
    in_pieces: bool = False,
) -> SparkUiRead:
    """Return a page of the attempt's UI: from its driver, and after its end from its event log.

    ``base``: the path below which the reader sees the UI. ``in_pieces``: see ``SparkUis.read``. Raises what that
    raises, Absent, RetryLater.
    """
    job_master = await _job_master(gateway, view)
    return await uis.read(job_master, view.job_id, view.attempt, path, base, in_pieces=in_pieces)


async def read_following(gateway: JobManagerGateway, uis: SparkUis, view: SparkUiView, more: str) -> SparkUiRead:
    """Return the next piece of a page. Raises what ``SparkUis.following`` raises."""
    return await uis.following(await _job_master(gateway, view), view.job_id, view.attempt, more)


async def abandon_page(gateway: JobManagerGateway, uis: SparkUis, view: SparkUiView, more: str) -> None:
    """Say that nobody reads the rest of a page. Raises what ``SparkUis.abandon`` raises."""
    await uis.abandon(await _job_master(gateway, view), view.job_id, view.attempt, more)


async def _job_master(gateway: JobManagerGateway, view: SparkUiView) -> str:
    """Return the address of the attempt's JobMaster; "" if the attempt has ended. Raises Absent, RetryLater."""
    job = await gateway.job(view.job_id)
    ended = any(record.attempt == view.attempt and record.ended_ms is not None for record in job.attempts)
    runs = view.attempt == job.attempt and not job.status.is_globally_terminal and not ended
    if runs and not job.job_master:
        raise RetryLater(
            f"attempt {view.attempt} of job {job.name!r} has no driver now",
            hint="its Spark UI is back once the driver runs",
        )
    return job.job_master if runs else ""
