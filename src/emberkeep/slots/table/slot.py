"""One slot of a task manager and the executor in it."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from emberkeep.base.ids import AllocationId, ExecutorId, JobId
from emberkeep.slots.model import Allocation, ProcessStart


class SlotState(enum.Enum):
    """The states of one allocation. An allocation that has ended is not in the table."""

    OFFERED = "OFFERED"  # reserved; the JobMaster has not accepted it yet
    ACTIVE = "ACTIVE"  # accepted; no executor yet
    STARTING = "STARTING"  # its executor is being started
    RUNNING = "RUNNING"
    EXITED = "EXITED"  # its executor has ended; the JobMaster has not released it yet
    RELEASING = "RELEASING"  # given back; its executor is being stopped


# Allowed next states of a slot; None: the slot is free again.
TRANSITIONS: dict[SlotState, tuple[SlotState | None, ...]] = {
    SlotState.OFFERED: (SlotState.ACTIVE, None),
    SlotState.ACTIVE: (SlotState.STARTING, None),
    SlotState.STARTING: (SlotState.RUNNING, SlotState.EXITED, SlotState.RELEASING),
    SlotState.RUNNING: (SlotState.EXITED, SlotState.RELEASING),
    SlotState.EXITED: (SlotState.STARTING, None),
    SlotState.RELEASING: (None,),
}


@dataclass
class Slot:
    """One allocation and its executor."""

    allocation: Allocation
    state: SlotState
    claim_until: float | None  # deadline for its JobMaster to accept it or name it in a heartbeat; None: it has
    executor_id: ExecutorId | None = None
    former: tuple[ExecutorId, ...] = ()  # earlier executors of this slot, which have ended
    pid: int = 0
    start: ProcessStart | None = None  # how the executor got its process, None if unknown
    why_cold: str = ""
    exit_code: int | None = None
    detail: str = ""
    is_recovered: bool = False  # an earlier process of this task manager has recorded it
    missed_beats: int = 0  # successive heartbeats of the JobMaster that did not name this slot
    decommissioned: bool = False  # this instance has asked its executor to hand over what it keeps and end
    attempt_ends: bool = False  # the attempt or its application ends; the next one may need the state kept for the slot

    @property
    def id(self) -> AllocationId:
        return self.allocation.id

    @property
    def attempt(self) -> tuple[JobId, int]:
        """The attempt to which the slot is allocated."""
        return self.allocation.job_id, self.allocation.attempt

    @property
    def is_claimed(self) -> bool:
        """True if the JobMaster has accepted the slot."""
        return self.claim_until is None
