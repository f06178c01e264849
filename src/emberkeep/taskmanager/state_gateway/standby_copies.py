"""Copies the state of jobs that have their reserved standby here, so that their next attempts find it on this node.

The executors of a job keep copies on their own nodes. If a node is lost, its part of the state has no copy left. So the
task manager with the job's reserved standby follows the durable store: it copies the files from which the newest
versions would be loaded. Like all local copies, these cost time at most: whoever opens one compares its generation.

One file is copied at a time, and none beyond the quota, so that no copy is evicted for these. A checkpoint is looked
at again once a further micro-batch was committed. Its directories are listed for that, so a store that takes long, or
counts requests, is asked more seldom.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import structlog

from emberkeep.base.errors import Absent, EmberkeepError, InvalidInput
from emberkeep.base.ids import JobId
from emberkeep.local_state.gateway_paths import state_path
from emberkeep.local_state.model import STANDBY, Caller, FileKind, FileStatus, StatePath
from emberkeep.local_state.needed_files import CHECKSUM, needed_files, shared_files
from emberkeep.local_state.ports import StagedCopy
from emberkeep.local_state.spark_layout import is_store_directory
from emberkeep.taskmanager.state_gateway.gateway import StateGateway

log = structlog.get_logger(__name__)

PAUSE = 5.0  # seconds at least between two rounds
_REST = 4  # times as long as a round took is the pause after it, at least
_ZIP_BYTES = 64 * 1024**2  # a larger zip is no list of files


@dataclass(frozen=True)
class FollowedJob:
    """A job whose state is copied. ``checkpoints``: the durable locations of its queries. ``user_id``: see Caller."""

    job_id: JobId
    checkpoints: tuple[str, ...]
    user_id: int | None = None


class _Full(Exception):
    """There is no room for further copies, or their disk fails."""


class StandbyCopies:
    """Follows the state of some jobs while ``run`` runs. Belongs to one event loop; a thread copies."""

    def __init__(self, gateway: StateGateway, *, pause: float = PAUSE) -> None:
        self._gateway = gateway
        self._pause = pause
        self._jobs: dict[JobId, FollowedJob] = {}
        self._begun = asyncio.Event()
        self._told: dict[JobId, str] = {}  # the last result that the log has, by job
        self._copied: dict[JobId, dict[str, int]] = {}  # the newest micro-batch at the last round, by checkpoint
        self._keeping = threading.Lock()  # held from the check whether a copy is wanted until it is kept
        self._stopped = False

    def follow(self, jobs: tuple[FollowedJob, ...]) -> None:
        """Copy the state of these jobs, and of no others. Copies of others stay until their owner drops them."""
        if self._stopped:
            return
        self._jobs = {job.job_id: job for job in jobs}
        # A round may add entries meanwhile: look through copies.
        self._told = {job_id: told for job_id, told in self._told.copy().items() if job_id in self._jobs}
        self._copied = {job_id: copied for job_id, copied in self._copied.copy().items() if job_id in self._jobs}
        if jobs:
            self._begun.set()
        else:
            self._begun.clear()

    def stop(self) -> None:
        """Follow no job from now on: no further copy appears once this has returned. Blocks for a moment."""
        self._stopped = True
        with self._keeping:
            self._jobs = {}

    async def run(self) -> None:
        """Follow until cancelled."""
        try:
            while True:
                await self._begun.wait()
                loop = asyncio.get_running_loop()
                began = loop.time()
                for job in list(self._jobs.values()):
                    await asyncio.to_thread(self.copy, job)
                await asyncio.sleep(max(self._pause, _REST * (loop.time() - began)))
        finally:
            self._stopped, self._jobs = True, {}  # the thread goes on, and the process ends only after it

    def copy(self, job: FollowedJob) -> None:
        """Copy what is missing of one job's state. Blocks."""
        result, before = "copied", self._copied.get(job.job_id, {})
        copied: dict[str, int] = {}
        for location in job.checkpoints:
            try:
                checkpoint = _Round(self._gateway, job, location, lambda: job.job_id in self._jobs, self._keeping)
                newest = checkpoint.newest_batch()
                if newest is None:
                    continue
                if newest != before.get(location):
                    checkpoint.copy()
                copied[location] = newest
            except _Full:
                result = "there is no room, or the disk fails"
            except InvalidInput as error:  # no state gateway keeps this location
                result = error.message
            except EmberkeepError as error:
                result = str(error)
            except Exception as error:  # noqa: BLE001 - what one job has in its checkpoint must not end the others' work
                result = f"internal error: {error!r}"
        if job.job_id not in self._jobs:
            return
        self._copied[job.job_id] = copied
        if self._told.get(job.job_id) != result:
            self._told[job.job_id] = result
            log.info("state of a job with its reserved standby here", job=job.job_id, result=result)


class _Round:
    """One comparison of a checkpoint's state with the copies."""

    def __init__(
        self,
        gateway: StateGateway,
        job: FollowedJob,
        location: str,
        is_wanted: Callable[[], bool],
        keeping: threading.Lock,
    ) -> None:
        own_root = gateway.own_root(job.job_id)
        self._caller = Caller(job_id=job.job_id, attempt=0, allocation_id=STANDBY, user_id=job.user_id)
        self._checkpoint = state_path(location, own_root)
        self._durable = gateway.roots.state(self._caller, self._checkpoint.root)
        self._disk = gateway.disk
        self._counters = gateway.counters
        self._is_wanted = is_wanted
        self._keeping = keeping

    def newest_batch(self) -> int | None:
        """Return the newest micro-batch that was committed, or None if there is none."""
        try:
            entries = self._durable.listing(self._below("commits"))
        except Absent:
            return None
        names = (entry.name.rpartition("/")[2] for entry in entries)
        return max((int(name) for name in names if name.isdecimal()), default=None)

    def copy(self) -> None:
        """Copy what is missing. Raises _Full, and what the durable store raises."""
        for operator in self._directories(self._below("state")):
            for partition in self._directories(operator.name):
                self._copy_stores(partition.name)

    def _below(self, directory: str) -> str:
        base = self._checkpoint.name
        return f"{base}/{directory}" if base else directory

    def _directories(self, name: str) -> Iterator[FileStatus]:
        with contextlib.suppress(Absent):
            for entry in self._durable.listing(name):
                if not self._is_wanted():
                    return
                if entry.kind is FileKind.DIRECTORY:
                    yield entry

    def _copy_stores(self, partition: str) -> None:
        """Copy a partition: its only store, or its several stores, which are directories in it."""
        try:
            entries = self._durable.listing(partition)
        except Absent:
            return
        self._copy_store(partition, entries)
        for entry in entries:
            if entry.kind is FileKind.DIRECTORY and is_store_directory(entry.name):
                with contextlib.suppress(Absent):
                    self._copy_store(entry.name, self._durable.listing(entry.name))

    def _copy_store(self, directory: str, entries: tuple[FileStatus, ...]) -> None:
        for status in needed_files(entries):
            if not self._is_wanted():
                return
            # What a full version refers to comes first: such a file is found by its version.
            if status.name.endswith(".zip") and status.length <= _ZIP_BYTES and not self._has(status):
                for name in shared_files(self._content(status.name)):
                    self._copy_shared(f"{directory}/{name}")
            if not self._has(status):
                self._copy(status.name)

    def _has(self, status: FileStatus) -> bool:
        record = self._disk.copies.find(self._path(status.name))
        return record is not None and record.generation == status.generation

    def _path(self, name: str) -> StatePath:
        return StatePath(root=self._checkpoint.root, name=name)

    def _content(self, name: str) -> bytes:
        try:
            _, pieces = self._durable.read(name, 0, None)
            return b"".join(pieces)
        except Absent:
            return b""

    def _copy_shared(self, name: str) -> None:
        """Copy a file to which a version refers, and its checksum. Its name is never written twice."""
        if self._disk.copies.find(self._path(name)) is None:
            self._copy(name + CHECKSUM)
            self._copy(name)

    def _copy(self, name: str) -> None:
        """Copy one file, unless it is gone. Raises _Full."""
        path = self._path(name)
        try:
            status, pieces = self._durable.read(name, 0, None)
        except Absent:
            return  # Spark has purged it
        staged = self._disk.stage_within(status.length)
        if staged is None:
            raise _Full
        try:
            if self._receive(pieces, staged) == status.length and self._keep(staged, path, status):
                self._counters.add("standby_bytes", status.length)
        finally:
            staged.discard()

    def _keep(self, staged: StagedCopy, path: StatePath, status: FileStatus) -> bool:
        with self._keeping:
            return self._is_wanted() and self._disk.keep(staged, path, self._caller, status)

    def _receive(self, pieces: Iterator[bytes], staged: StagedCopy) -> int:
        for piece in pieces:
            if not self._is_wanted():
                break
            with self._failing_disk():
                staged.write(piece)
        with self._failing_disk():
            return staged.finish()

    @contextlib.contextmanager
    def _failing_disk(self) -> Iterator[None]:
        try:
            yield
        except EmberkeepError as error:
            self._disk.failed("fill", error)
            raise _Full from error
