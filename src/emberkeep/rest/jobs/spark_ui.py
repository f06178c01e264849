"""Pages of a driver's Spark UI.

A page comes as a value in JSON, which no browser shows: at the console's own origin, a page that a job's JVM has made
could act with the session of whoever opens it. ``emberkeep spark-ui`` serves the pages at an origin of their own.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from emberkeep.base.errors import Absent, RetryLater
from emberkeep.base.identity import Role
from emberkeep.protocol.rest_spark_ui import SparkUiPage
from emberkeep.rest.serving.routing import CheckedRequest, Route


class ReadPage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query parameters of a page."""

    path: Annotated[
        str, Meta(pattern="^/", max_length=8192, description="Path of the page, from `/` on, with its own query.")
    ] = "/"


async def read_spark_ui(call: CheckedRequest) -> msgspec.Struct:
    job = await call.api.gateway.job(call.path["jobid"])
    if job.status.is_globally_terminal:
        raise Absent(f"job {job.name!r} has ended, and its Spark UI with it", hint="its logs and events are kept")
    if not job.job_master:
        raise RetryLater(f"job {job.name!r} has no driver now", hint="its Spark UI is back once a driver runs")
    query: ReadPage = call.query
    page = await call.api.spark_uis.read(job.job_master, job.job_id, job.attempt, query.path)
    return SparkUiPage(status=page.status, content_type=page.content_type, location=page.location, body=page.body)


ROUTES = (
    Route(
        "GET",
        "/jobs/{jobid}/spark-ui",
        read_spark_ui,
        "A page of the Spark UI of a job's driver",
        "Jobs",
        role=Role.VIEWER,
        query=ReadPage,
        reply=SparkUiPage,
        problems=(404, 409, 429, 503),
        doc="`body` is in Base64. `emberkeep spark-ui` shows the pages in a browser. The Spark UI is off unless the "
        "job is submitted with `--conf spark.ui.enabled=true`.",
    ),
)
