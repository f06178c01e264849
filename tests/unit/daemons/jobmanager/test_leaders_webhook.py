"""A leader and its webhook: events of its jobs reach a real web server, and without a webhook nothing is missing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from emberkeep.base.configuration.layout import state_layout
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.system import real_system
from emberkeep.daemons.jobmanager.alone import JobManagerProcess, job_manager_process
from emberkeep.daemons.process_main import Services
from emberkeep.jobs.model import JobStatus
from tests.unit.adapters.webhooks.receiver import SLOW, receiving
from tests.unit.jobmanager.fakes import graph
from tests.unit.rest.server import eventually

JOB = graph(1).job_id


@asynccontextmanager
async def leading(directory: Path, **settings: str) -> AsyncIterator[JobManagerProcess]:
    texts = {
        "emberkeep.state-dir": str(directory / "state"),
        "rest.port": "0",
        "security.encryption": "none",
        **{f"notifications.webhook.{key.replace('_', '-')}": value for key, value in settings.items()},
    }
    configuration = Configuration().with_texts(texts, "test")
    services = Services()
    try:
        async with job_manager_process(
            real_system(), configuration, state_layout(configuration, {}), services, asyncio.Event()
        ) as process:
            yield process
    finally:
        await services.cancel()


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
        leading(tmp_path, url=receiver.url, secret_file=secret_file(tmp_path), events="job-canceled") as process,
    ):
        await canceled_job(process)
        await receiver.gets(2)
    first, again = receiver.received
    assert first.body == again.body
    event = first.json()
    assert (event["event"], event["job"]["id"], event["job"]["name"]) == ("job-canceled", JOB, "job 1")


async def test_a_leader_without_a_webhook_runs_jobs_as_well(tmp_path: Path) -> None:
    async with leading(tmp_path) as process:
        await canceled_job(process)


async def test_a_receiver_that_does_not_answer_delays_no_job(tmp_path: Path) -> None:
    async with (
        receiving(SLOW) as receiver,
        leading(tmp_path, url=receiver.url, secret_file=secret_file(tmp_path), events="job-canceled") as process,
    ):
        await canceled_job(process)
        await eventually(lambda: len(receiver.received) == 1)
