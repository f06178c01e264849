"""Jobs whose drivers are stubs, at real JobManagers: up to 100 of them fit on any machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.commands import JOBS
from bench.job_managers import JobManagers
from bench.leader_poll import LIMIT_SECONDS, until_known
from bench.load.stub_node import StubNode, stub_node
from bench.load.submissions import another
from emberkeep.client.rest_client import RestClient
from emberkeep.client.submission.preparation import Program, prepare, upload
from emberkeep.client.submission.spark_options import SparkOptions
from emberkeep.jobs.model import JobStatus
from tests.support.no_progress import NoProgress

_POLL = 0.02
_WAITS = {"slot.request.timeout": "0s"}  # otherwise jobs that wait fail in the middle of a long measurement


@asynccontextmanager
async def stub_jobs(
    managers: JobManagers, jobs: int, limit: float = LIMIT_SECONDS, waiting: int = 0
) -> AsyncIterator[StubNode]:
    """Run a task manager with the drivers of ``jobs`` jobs, which all are RUNNING when the block begins.

    ``limit``: seconds until they are. ``waiting``: jobs for which there is no driver's place. Raises SystemExit.
    """
    leader = (await managers.leader()).server
    async with stub_node(managers.configuration, managers.token, leader.address, jobs) as node:
        async with RestClient(leader.endpoint) as client:
            await _registered(client)
            prepared = prepare(Program(str(JOBS / "tiny.py"), None, ()), SparkOptions(), _WAITS, {})
            for _ in range(jobs):
                await client.submit(await upload(client, another(prepared), NoProgress()))
            await until_known([leader.endpoint], JobStatus.RUNNING, jobs, time.perf_counter(), limit)
            for _ in range(waiting):
                await client.submit(await upload(client, another(prepared), NoProgress()))
        yield node


async def _registered(client: RestClient) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while (await client.overview()).taskmanagers == 0:
        if time.monotonic() > deadline:
            raise SystemExit("the task manager does not register")
        await asyncio.sleep(_POLL)
