"""Clients at full speed, and those that submit jobs with large files."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from campaign.load.replies import Wait
from campaign.processes.calls import SECONDS, NotDone, Unknown
from campaign.processes.clients import Client, ClientsWorld, SubmittedJob

_PAGES = ("/overview", "/taskmanagers", "/jobs", "/blobs", "/savepoints", "/events", "/config", "/jobmanager/logs")
_PATIENCE = 150.0  # seconds until a job is accepted, or for a step of an upload: leaders are lost again and again
_PAUSE = 0.2
_SLOWEST = 2 * 1024**2  # bytes a second of an upload, on a machine that is busy


class BusyClient(Client):
    """Does one thing after the other without a pause.

    ``waits``: how long its new jobs have waited until they were accepted. ``problems``: those that never were.
    """

    def __init__(self, name: str, world: ClientsWorld, chance: random.Random) -> None:
        super().__init__(name, world, chance)
        self.waits: list[Wait] = []
        self.problems: list[str] = []

    async def run(self, until: float) -> None:
        """Send requests until a time by the clock."""
        deeds: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (2.0, self._submit_new),
            (1.5, self._submit_again),
            (2.0, self._cancel),
            (5.0, self._read_job),
            (0.3, self.list_jobs),
            (1.0, self._block),
            (0.8, self._unblock),
            (0.3, self.list_blocklist),
            (1.0, self._look),
        ]
        names, weights = [deed for _, deed in deeds], [weight for weight, _ in deeds]
        while time.monotonic() < until:
            (deed,) = self._chance.choices(names, weights)
            await deed()
            await asyncio.sleep(0)  # a refusal at once must not stop the other clients

    async def _submit_new(self) -> None:
        """Submit a new job until it is accepted, as Emberkeep's own client does."""
        job = self._world.make_job()
        if job is None:
            return
        self._world.jobs.append(job)
        job.candidates.append(f"{self._chance.getrandbits(128):032x}")
        begun = time.monotonic()
        while not await self.submit_as(job, job.candidates[0]):
            if time.monotonic() - begun > _PATIENCE:
                self.problems.append(f"job {job.candidates[0]} is not accepted after {_PATIENCE:g} s")
                return
            await asyncio.sleep(_PAUSE)
        self.waits.append(Wait(begun, time.monotonic()))

    async def _look(self) -> None:
        try:
            await self._world.calls.call("GET", self._base(), self._chance.choice(_PAGES))
        except (NotDone, Unknown):
            self._world.recorder.counts["page: refused"] += 1
        else:
            self._world.recorder.counts["page: done"] += 1


@dataclass
class Moved:
    """What the uploads of a history came to, in bytes. ``removed``: those that were deleted again."""

    uploaded: int = 0
    removed: int = 0


@dataclass(frozen=True)
class LargeFile:
    """A file of ``size`` bytes, whose SHA-256 is ``sha256``, and a parked job that it is submitted with."""

    job: SubmittedJob
    path: Path
    sha256: str
    size: int


class Uploader(Client):
    """Submits jobs with a large file, reads the file back, and cancels them: then the file must go.

    ``jobs``: those that it has submitted. No other client knows of them.
    """

    def __init__(
        self, name: str, world: ClientsWorld, chance: random.Random, make: Callable[[], LargeFile], moved: Moved
    ) -> None:
        super().__init__(name, world, chance)
        self.jobs: list[SubmittedJob] = []
        self.problems: list[str] = []
        self._make = make
        self._moved = moved

    async def run(self, until: float) -> None:
        """Upload one file after the other, until a time by the clock. What has begun is finished."""
        while time.monotonic() < until:
            file = await asyncio.to_thread(self._make)
            self.jobs.append(file.job)
            file.job.candidates.append(f"{self._chance.getrandbits(128):032x}")
            await self._move(file)
            file.path.unlink()

    async def _move(self, file: LargeFile) -> None:
        if not await self._until("submitted", file, self._submit):
            return
        self._moved.uploaded += file.size
        await self._until("read", file, self._is_whole)
        if await self._until("cancelled", file, self._cancel_own) and await self._until("deleted", file, self._is_away):
            self._moved.removed += file.size

    async def _submit(self, file: LargeFile) -> bool:
        return await self.submit_as(file.job, file.job.candidates[0], _patience(file))

    async def _cancel_own(self, file: LargeFile) -> bool:
        return await self.cancel(file.job, file.job.candidates[0])

    async def _is_whole(self, file: LargeFile) -> bool:
        """True if the file can be read. A file of a job that was accepted and is missing or changed is a violation."""
        status, found = await self._world.calls.digest(self._base(), _resource(file), seconds=_patience(file))
        if (status, found) != (200, file.sha256):
            self.problems.append(f"{_resource(file)} of a job that was accepted: status {status}, SHA-256 {found}")
        return True

    async def _is_away(self, file: LargeFile) -> bool:
        return (await self._world.calls.call("HEAD", self._base(), _resource(file))).status == 404

    async def _until(self, what: str, file: LargeFile, deed: Callable[[LargeFile], Awaitable[bool]]) -> bool:
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            try:
                if await deed(file):
                    return True
            except (NotDone, Unknown):
                pass
            await asyncio.sleep(_PAUSE)
        self.problems.append(f"{_resource(file)} is not {what} after {_PATIENCE:g} s")
        return False


def _patience(file: LargeFile) -> float:
    return SECONDS + file.size / _SLOWEST


def _resource(file: LargeFile) -> str:
    return f"/jobs/{file.job.candidates[0]}/blobs/p-{file.sha256}"
