"""A leader and its webhook: events of its jobs reach a real web server, and without a webhook nothing is missing."""

from __future__ import annotations

import asyncio
from pathlib import Path

from emberkeep.daemons.jobmanager.alone import JobManagerProcess
from emberkeep.jobs.model import JobStatus
from tests.unit.adapters.webhooks.receiver import SLOW, receiving
from tests.unit.daemons.jobmanager.leader import leading
from tests.unit.jobmanager.fakes import graph
from tests.unit.rest.server import eventually

JOB = graph(1).job_id


def telling(url: str, directory: Path) -> dict[str, str]:
    """Return the settings of a webhook that tells ``url`` of jobs that were canceled."""
    settings = {"url": url, "secret-file": secret_file(directory), "events": "job-canceled"}
    return {f"notifications.webhook.{key}": value for key, value in settings.items()}


async def canceled_job(process: JobManagerProcess) -> None:
    gateway = process.service.gateway
    await gateway.submit(graph(1))
    await gateway.cancel(JOB)
    async with asyncio.timeout(60):
        while (await gateway.job(JOB)).status is not JobStatus.CANCELED:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.01)


def secret_file(directory: Path) -> str:
    path = directory / "secret"
    path.touch(mode=0o600)
    path.write_text("0123456789abcdef")
    return str(path)


async def test_the_leader_tells_a_web_server_what_became_of_a_job(tmp_path: Path) -> None:
    async with (
        receiving(500) as receiver,
        leading(tmp_path, telling(receiver.url, tmp_path)) as process,
    ):
        await canceled_job(process)
        await receiver.gets(2)
    first, again = receiver.received
    assert first.body == again.body
    event = first.json()
    assert (event["event"], event["job"]["id"], event["job"]["name"]) == ("job-canceled", JOB, "job 1")


async def test_a_leader_without_a_webhook_runs_jobs_as_well(tmp_path: Path) -> None:
    async with leading(tmp_path, {}) as process:
        await canceled_job(process)


async def test_a_receiver_that_does_not_answer_delays_no_job(tmp_path: Path) -> None:
    async with (
        receiving(SLOW) as receiver,
        leading(tmp_path, telling(receiver.url, tmp_path)) as process,
    ):
        await canceled_job(process)
        await eventually(lambda: len(receiver.received) == 1)
