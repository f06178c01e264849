"""The jobs of a history as their users see them: what was fed, how far the queries are, from where they go on."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from campaign.spark.checkpoints import Reached, directory_of, files_read, reached
from campaign.spark.control import ANSWER_SECONDS, POLL, Control
from campaign.spark.plan import PlannedBatch, PlannedStream
from campaign.spark.rows import Files, write_rows
from emberkeep.base.ids import JobId
from emberkeep.jobs.model import JobStatus
from emberkeep.protocol.rest_jobs import JobDetailsInfo

MOST_BEHIND = 3  # files that a query has not read when the next is written
FEED_SECONDS = 1.0
_FINAL_FILES = 3
_SCRIPTS = Path(__file__).parent
_BATCH_FILES = 12


class NotRecovered(Exception):
    """Something did not work again in time, or a job has ended that should not."""


class StreamJob:
    """A job with streaming queries. ``place``: its directory. ``moving``: it is being suspended and restored."""

    def __init__(self, control: Control, plan: PlannedStream, place: Path, seed: str) -> None:
        self.place, self.plan = place, plan
        self.job_id = JobId("")
        self.moving = False
        self._control = control
        self._files = Files(seed)
        self._checkpoints: dict[str, Path] = {}
        (place / "in").mkdir(parents=True)

    async def begin(self, savepoint: str = "") -> None:
        """Submit the job, and wait until all its queries have a checkpoint."""
        arguments = (str(self.place), msgspec.json.encode(self.plan).decode())
        self._checkpoints = {}
        self.job_id = await self._control.submit(
            _SCRIPTS / "stream_job.py", arguments, hot=self.plan.hot, savepoint=savepoint
        )
        await self.until(self._has_checkpoints, "all queries have begun")

    async def _has_checkpoints(self) -> bool:
        queries = (await self.details()).emberkeep.queries
        found = {query.name: query.checkpoint_location for query in queries if query.checkpoint_location}
        if set(found) != {query.name for query in self.plan.queries}:
            return False
        self._checkpoints = {name: directory_of(location) for name, location in found.items()}
        return True

    async def details(self) -> JobDetailsInfo:
        """Return what the cluster says of the job. Raises NotRecovered if it has ended by itself."""
        job = await self._control.job(self.job_id)
        if job.state in (JobStatus.FAILED, JobStatus.CANCELED):
            raise NotRecovered(f"{self.place.name} has ended as {job.state.value}: {job.emberkeep.root_cause[:600]}")
        return job

    async def feed(self, end: asyncio.Event) -> None:
        """Write a file whenever the queries have kept up."""
        while not end.is_set():
            if self._files.count - await asyncio.to_thread(self.files_read) <= MOST_BEHIND:
                self._write()
            await asyncio.sleep(FEED_SECONDS)

    def _write(self) -> None:
        number = self._files.count
        write_rows(self.place / "in" / f"{number:05}.json", self._files.next(), number)

    def reached(self) -> dict[str, Reached]:
        """Return how far each query is."""
        return {name: reached(checkpoint) for name, checkpoint in self._checkpoints.items()}

    def files_read(self) -> int:
        """Return how many files all queries have read."""
        try:
            return min((files_read(checkpoint) for checkpoint in self._checkpoints.values()), default=0)
        except (OSError, json.JSONDecodeError):  # Spark replaces its logs just now
            return 0

    async def finish(self) -> None:
        """Have everything read, and drain the job."""
        for _ in range(_FINAL_FILES):
            self._write()

        async def all_read() -> bool:
            await self.details()
            return await asyncio.to_thread(self.files_read) == self._files.count

        await self.until(all_read, "all files are read")
        await self._control.stop(self.job_id, self.place / "savepoints", drain=True)
        await self.until(self.has_finished, "the drained job is FINISHED")

    async def has_finished(self) -> bool:
        return (await self.details()).state is JobStatus.FINISHED

    async def until(self, look: Callable[[], Awaitable[bool]], what: str) -> None:
        """Wait for a condition. Raises NotRecovered."""
        deadline = time.monotonic() + ANSWER_SECONDS
        while not await look():
            if time.monotonic() > deadline:
                raise NotRecovered(f"{self.place.name}, not within {ANSWER_SECONDS:g} s: {what}; {self.reached()}")
            await asyncio.sleep(POLL)


class BatchJob:
    """A batch job over an input of its own."""

    def __init__(self, control: Control, plan: PlannedBatch, place: Path, seed: str) -> None:
        self.place, self.plan = place, plan
        self.job_id = JobId("")
        self._control = control
        (place / "in").mkdir(parents=True)
        files = Files(seed)
        for number in range(_BATCH_FILES):
            write_rows(place / "in" / f"{number:05}.json", files.next(), number)

    async def begin(self) -> None:
        self.job_id = await self._control.submit(_SCRIPTS / "batch_job.py", (str(self.place), self.plan.kind))

    async def has_finished(self) -> bool:
        """True once it is FINISHED. Raises NotRecovered if it has ended otherwise."""
        job = await self._control.job(self.job_id)
        if job.state.is_globally_terminal and job.state is not JobStatus.FINISHED:
            raise NotRecovered(f"{self.place.name} has ended as {job.state.value}: {job.emberkeep.root_cause[:600]}")
        return job.state is JobStatus.FINISHED

    async def finish(self) -> None:
        """Wait for its end."""
        deadline = time.monotonic() + ANSWER_SECONDS
        while not await self.has_finished():
            if time.monotonic() > deadline:
                raise NotRecovered(f"{self.place.name} has not finished after {ANSWER_SECONDS:g} s")
            await asyncio.sleep(POLL)
