"""The local copies as the gateway uses them: whatever is wrong with this disk costs time, never a request (LOC-7)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import structlog

from emberkeep.base.clock import Clock
from emberkeep.base.errors import Absent, EmberkeepError
from emberkeep.base.ids import AllocationId, JobId
from emberkeep.local_state.machine import evictions
from emberkeep.local_state.model import Caller, CopyRecord, FileStatus, StatePath
from emberkeep.local_state.ports import LocalCopies, StagedCopy
from emberkeep.taskmanager.state_gateway.counters import StateCounters

log = structlog.get_logger(__name__)

_PAUSE_SECONDS = 30.0  # in which a disk that refused a write is not asked for another one
_EXCESS = 20  # a twentieth of the quota may be used beyond it, until there is room
ResultT = TypeVar("ResultT")


class LocalDisk:
    """Any thread may call it; it raises nothing but bugs."""

    def __init__(self, copies: LocalCopies, quota: int, counters: StateCounters, clock: Clock) -> None:
        """``quota``: bytes."""
        self.copies = copies
        self._quota = quota
        self._counters = counters
        self._clock = clock
        self._paused_until = float("-inf")
        self.when_full: Callable[[], None] = lambda: None  # told, by any thread, that ``make_room`` has something to do

    def open_copies(self) -> tuple[CopyRecord, ...]:
        """Those that lie on this disk. Call once, before all else."""
        records = self._tried("open", self.copies.open_copies)
        if records is None:
            log.warning("the local state of earlier lives is not used; the next start of this process looks for it")
        return records or ()

    def stage(self) -> StagedCopy | None:
        """None: this disk takes nothing at present, or copies come faster than room is made."""
        if self._clock.monotonic() < self._paused_until or self.copies.used() > self._quota + self._quota // _EXCESS:
            return None
        return self._tried("stage", self.copies.stage)

    def keep(self, staged: StagedCopy, path: StatePath, caller: Caller, status: FileStatus) -> bool:
        """Make what was staged the local copy of the durable file; whether it worked."""

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
        """The disk refused something: it is left alone for a while."""
        self._counters.add("disk_failures")
        if self._clock.monotonic() >= self._paused_until:
            log.warning(
                "the disk of the local state fails; state goes to the durable store only", step=step, reason=str(error)
            )
        self._paused_until = self._clock.monotonic() + _PAUSE_SECONDS

    def move(self, source: StatePath, target: StatePath, status: FileStatus) -> None:
        """The durable file was renamed; this is what it is now."""
        record = self.copies.find(source)
        if record is None:
            self.drop(target)
        else:
            self._tried(
                "move", lambda: self.copies.move(record, target, status.generation, modified_ms=status.modified_ms)
            )

    def drop(self, path: StatePath) -> None:
        """The copy of one file is of no use any more."""
        if self.copies.find(path) is not None:
            self._tried("drop", lambda: self.copies.drop(path))

    def drop_below(self, path: StatePath) -> None:
        """The file or directory is gone."""
        self._tried("drop", lambda: self.copies.drop(path))

    def drop_records(self, records: Iterable[CopyRecord]) -> int:
        """Drop those that are still what they were; returns how many."""
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
        """Keep to this many bytes from now on."""
        self._quota = quota
        if self.copies.used() > quota:
            self.when_full()

    def make_room(self) -> None:
        """Keep to the quota. By one thread at a time: no request waits for it."""
        if self.copies.used() > self._quota:
            going = evictions(self.copies.records(), self.copies.used(), self._quota)
            self._counters.add("evictions", self.drop_records(going))

    def _tried(self, step: str, work: Callable[[], ResultT]) -> ResultT | None:
        try:
            return work()
        except Absent:
            return None  # dropped meanwhile
        except EmberkeepError as error:
            self.failed(step, error)
            return None
