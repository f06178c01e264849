"""A state gateway over a directory that fails when it is told to, on a disk that does so too."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path

from emberkeep.adapters.state.directories.store import DirectoryState
from emberkeep.base.clock import SystemClock
from emberkeep.base.ids import AllocationId, JobId
from emberkeep.local_state.errors import Fenced
from emberkeep.local_state.model import DRIVER, Caller, FileStatus, StatePath
from emberkeep.taskmanager.state_gateway.gateway import StateGateway
from tests.support.state_faults import FaultyCopies, FaultyState, MemoryJournal, TemporarySpool

JOB, OTHER = JobId("1" * 32), JobId("2" * 32)
SLOT, OTHER_SLOT = AllocationId("a" * 32), AllocationId("b" * 32)
DRIVER_OF = {attempt: Caller(job_id=JOB, attempt=attempt, allocation_id=DRIVER) for attempt in range(5)}
EXECUTOR = Caller(job_id=JOB, attempt=1, allocation_id=SLOT)
UUID = "0815abcd-1234-5678-9abc-0123456789ab"


@dataclass
class Node:
    """A node with its gateway. Several may share one durable ``place``."""

    place: Path
    name: str = "node"
    journal: MemoryJournal = field(default_factory=MemoryJournal)
    quota: int = 10**9

    def __post_init__(self) -> None:
        self.copies = FaultyCopies(self.place / "disks" / self.name)
        self.copies.open_copies()
        self.states: dict[str, FaultyState] = {}
        self.gateway = self.restarted_gateway()
        with contextlib.suppress(Fenced):  # where a newer attempt has begun
            self.gateway.admit(DRIVER_OF[1])

    def restarted_gateway(self) -> StateGateway:
        """It knows what lies on the disk, no more."""
        self.gateway = StateGateway(
            self.copies,
            self._open,
            lambda job_id: str(self.place / job_id),
            self.journal,
            TemporarySpool,
            SystemClock(),
            quota=self.quota,
        )
        self.gateway.held = frozenset({(JOB, SLOT), (JOB, OTHER_SLOT)})
        return self.gateway

    def _open(self, root: str, _: int | None = None) -> FaultyState:
        return self.states.setdefault(root, FaultyState(DirectoryState(Path(root))))

    @property
    def durable(self) -> FaultyState:
        """Of the job's own root."""
        return self._open(str(self.place / JOB))

    def path(self, name: str) -> StatePath:
        return StatePath(root=str(self.place / JOB), name=name)

    def write(self, name: str, data: bytes, caller: Caller = EXECUTOR, *, overwrite: bool = True) -> FileStatus:
        incoming = self.gateway.receive(caller, self.path(name), overwrite=overwrite)
        try:
            for start in range(0, len(data), 20_000):
                incoming.write(data[start : start + 20_000])
            return incoming.commit()
        finally:
            incoming.abandon()

    def read(self, name: str, caller: Caller = EXECUTOR, offset: int = 0, length: int | None = None) -> bytes:
        opened = self.gateway.open_file(caller, self.path(name), offset, length)
        data = b"".join(opened.pieces)
        assert len(data) == opened.length
        return data

    def rename(self, source: str, target: str, caller: Caller = EXECUTOR, *, overwrite: bool = False) -> None:
        self.gateway.rename(caller, self.path(source), self.path(target), overwrite=overwrite)

    def counts(self, *names: str) -> tuple[int, ...]:
        counts = vars(self.gateway.counters.take())
        return tuple(counts[name] for name in names)
