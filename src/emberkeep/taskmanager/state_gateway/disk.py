"""The local copies as the gateway uses them: an error of this disk costs time but never fails a request (LOC-7)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import structlog

from emberkeep.base.clock import Clock
from emberkeep.base.errors import Absent, EmberkeepError
from emberkeep.base.ids import AllocationId, JobId
from emberkeep.local_state.machine import evictions
from emberkeep.local_state.model import Caller, CopyRecord, FileStatus, StatePath, disk_use
from emberkeep.local_state.ports import LocalCopies, StagedCopy
from emberkeep.taskmanager.state_gateway.counters import StateCounters

log = structlog.get_logger(__name__)

_PAUSE_SECONDS = 30.0  # after a failed write, no other write to this disk is tried for this long
_EXCESS = 20  # a twentieth of the quota may be used beyond it until room is made
ResultT = TypeVar("ResultT")


class LocalDisk:
    """The disk of the local copies. Any thread may call it; it raises nothing but bugs."""

    def __init__(self, copies: LocalCopies, quota: int, counters: StateCounters, clock: Clock) -> None:
        """``quota``: bytes."""
        self.copies = copies
        self._quota = quota
        self._counters = counters
        self._clock = clock
        self._paused_until = float("-inf")
        self.when_full: Callable[[], None] = lambda: None  # called by any thread when ``make_room`` has work

    def open_copies(self) -> tuple[CopyRecord, ...]:
        """Return the copies on this disk. Call once, before anything else."""
        records = self._tried("open", self.copies.open_copies)
        if records is None:
            log.warning("cannot open the local state of earlier processes; the next start tries again")
        return records or ()

    def stage(self) -> StagedCopy | None:
        """Begin a new copy on this disk and return it.

        Return None if this write fails, if a write has failed in the last _PAUSE_SECONDS, or if the copies exceed the
        quota by more than the tolerated part of the quota (1/_EXCESS).
        """
        if self._clock.monotonic() < self._paused_until or self.copies.used() > self._quota + self._quota // _EXCESS:
            return None
        return self._tried("stage", self.copies.stage)

    def stage_within(self, length: int) -> StagedCopy | None:
        """Begin a new copy of so many bytes. Return None if it would exceed the quota, and where ``stage`` does."""
        return None if self.copies.used() + disk_use(length) > self._quota else self.stage()

    def keep(self, staged: StagedCopy, path: StatePath, caller: Caller, status: FileStatus) -> bool:
        """Make the staged data the local copy of the durable file. Return True if that succeeded."""

        def keep() -> bool:
            staged.keep(
                path,
                caller.job_id,
                caller.attempt,
                caller.allocation_id,
                status.generation,
                modified_ms=status.modified_ms,
            )
            return True

        kept = self._tried("keep", keep) or False
        if self.copies.used() > self._quota:
            self.when_full()
        return kept

    def failed(self, step: str, error: EmberkeepError) -> None:
        """Note an error of the disk: stage nothing on it for a while."""
        self._counters.add("disk_failures")
        if self._clock.monotonic() >= self._paused_until:
            log.warning(
                "the disk of the local state fails; state goes to the durable store only", step=step, reason=str(error)
            )
        self._paused_until = self._clock.monotonic() + _PAUSE_SECONDS

    def move(self, source: StatePath, target: StatePath, status: FileStatus) -> None:
        """Note that the durable file was renamed. ``status`` is the file's new status."""
        record = self.copies.find(source)
        if record is None:
            self.drop(target)
        else:
            self._tried(
                "move", lambda: self.copies.move(record, target, status.generation, modified_ms=status.modified_ms)
            )

    def drop(self, path: StatePath) -> None:
        """Drop the copy of one file, if there is one."""
        if self.copies.find(path) is not None:
            self._tried("drop", lambda: self.copies.drop(path))

    def drop_below(self, path: StatePath) -> None:
        """Drop the copies of a file or directory that is gone, including all files below it."""
        self._tried("drop", lambda: self.copies.drop(path))

    def drop_records(self, records: Iterable[CopyRecord]) -> int:
        """Drop the copies whose record has not changed. Return the number of dropped copies."""
        dropped = 0
        for record in records:
            if self.copies.find(record.path) == record:
                self.drop(record.path)
                dropped += 1
        return dropped

    def drop_allocation(self, job_id: JobId, allocation_id: AllocationId) -> None:
        self._tried("drop", lambda: self.copies.drop_allocation(job_id, allocation_id))

    def drop_job(self, job_id: JobId) -> None:
        self._tried("drop", lambda: self.copies.drop_job(job_id))

    def hand_over(self, job_id: JobId, source: AllocationId, target: AllocationId) -> None:
        self._tried("hand over", lambda: self.copies.hand_over(job_id, source, target))

    def limit(self, quota: int) -> None:
        """Set the quota to this many bytes."""
        self._quota = quota
        if self.copies.used() > quota:
            self.when_full()

    def make_room(self) -> None:
        """Drop copies until the quota is kept. Only one thread may call this at a time; no request waits for it."""
        if self.copies.used() > self._quota:
            going = evictions(self.copies.records(), self.copies.used(), self._quota)
            self._counters.add("evictions", self.drop_records(going))

    def _tried(self, step: str, work: Callable[[], ResultT]) -> ResultT | None:
        try:
            return work()
        except Absent:
            return None  # dropped in the meantime
        except EmberkeepError as error:
            self.failed(step, error)
            return None
