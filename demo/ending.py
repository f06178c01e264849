"""Suspend the job, resume it from its savepoint, and finally drain it, so that no window stays open."""

from __future__ import annotations

import asyncio
from pathlib import Path

from demo.commands import Cluster
from demo.errors import DemoFailed
from demo.progress import describe
from demo.screen import Screen
from emberkeep.base.ids import JobId
from emberkeep.client.rest_client import RestClient
from emberkeep.jobs.model import JobStatus

ALL_READ = "everything before _DONE has been processed"  # the pipeline says so
LIMIT_SECONDS = 300.0
_POLL = 1.0


class Ending:
    """The two ways to stop a job. ``savepoints``: the directory for their savepoints."""

    def __init__(self, cluster: Cluster, client: RestClient, savepoints: Path, screen: Screen) -> None:
        self._cluster = cluster
        self._client = client
        self._savepoints = savepoints
        self._screen = screen

    async def suspend(self, job_id: JobId) -> str:
        """Suspend the job; return the savepoint's location. Raises DemoFailed, CommandFailed."""
        begin = self._screen.seconds
        self._screen.event("`emberkeep stop`: the job is suspended between two micro-batches", "bold red")
        savepoint = await asyncio.to_thread(self._cluster.stop, job_id, self._savepoints)
        await self._check_finished(job_id)
        self._screen.event(f"suspended in {self._screen.seconds - begin:.1f} s, savepoint {savepoint}", "green")
        return savepoint

    async def drain(self, job_id: JobId) -> None:
        """Wait until all flights are read, then drain the job. Raises DemoFailed, CommandFailed."""
        await self._all_read(job_id)
        begin = self._screen.seconds
        self._screen.event("all flights are read; `emberkeep stop --drain` emits every open window", "bold red")
        await asyncio.to_thread(self._cluster.stop, job_id, self._savepoints, drain=True)
        await self._check_finished(job_id)
        self._screen.event(f"drained in {self._screen.seconds - begin:.1f} s, the job has FINISHED", "green")

    async def _all_read(self, job_id: JobId) -> None:
        until = self._screen.seconds + LIMIT_SECONDS
        while self._screen.seconds < until:
            job = await self._client.job(job_id)
            self._screen.progress(describe(job))
            if job.state.is_globally_terminal:
                raise DemoFailed(f"the job ended {job.state.value}: {job.emberkeep.root_cause}")
            if job.state is JobStatus.RUNNING and ALL_READ in await asyncio.to_thread(self._cluster.output_of, job_id):
                return
            await asyncio.sleep(_POLL)
        raise DemoFailed(f"the flights were not read within {LIMIT_SECONDS:.0f} s")

    async def _check_finished(self, job_id: JobId) -> None:
        job = await self._client.job(job_id)
        if job.state is not JobStatus.FINISHED:
            raise DemoFailed(f"the job is {job.state.value} after its stop: {job.emberkeep.root_cause}")
