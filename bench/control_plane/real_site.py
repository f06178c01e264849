"""The console of a real JobManager with many jobs: some have stub drivers, and the others wait for a driver's place."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.job_managers import JobManagers
from bench.load.stub_jobs import stub_jobs
from bench.plan import say
from emberkeep.client.rest_client import RestClient
from emberkeep.jobs.model import JobStatus


@dataclass(frozen=True)
class RealSite:
    """``base``: the JobManager's URL. ``token``: of its operator. ``job``: a job that runs. ``process``: it itself."""

    base: str
    token: str
    job: str
    process: psutil.Process


@contextmanager
def real_site(directory: Path, running: int, waiting: int) -> Iterator[RealSite]:
    """Run the JobManager, its ZooKeeper and a stub task manager; their loop has a thread of its own."""
    say(f"console: a JobManager with {running} running and {waiting} waiting jobs")
    ready: Future[RealSite] = Future()
    over = threading.Event()

    async def serve() -> None:
        async with JobManagers(directory) as managers:
            await managers.add()
            async with stub_jobs(managers, running, waiting=waiting):
                ready.set_result(await _site(managers))
                await asyncio.to_thread(over.wait)

    def work() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)

    thread = threading.Thread(target=work, name="real-site")
    thread.start()
    try:
        yield ready.result()
    finally:
        over.set()
        thread.join()


async def _site(managers: JobManagers) -> RealSite:
    server = (await managers.leader()).server
    async with RestClient(server.endpoint) as client:
        jobs = await client.jobs()
    job = next(job.jid for job in jobs if job.state == JobStatus.RUNNING)
    return RealSite(f"http://{server.address}", server.token, job, server.process)
