"""The state of a task manager's table, and queries on it. The state machine that changes it is in ``machine``."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from emberkeep.base.errors import Conflict, IllegalTransition
from emberkeep.base.ids import AllocationId, JobId
from emberkeep.slots.custom.addresses import ResourceAddresses, amounts_of
from emberkeep.slots.model import ResourceProfile
from emberkeep.slots.table.driver_places import DriverPlaces, HeldDriver
from emberkeep.slots.table.fences import Fences
from emberkeep.slots.table.kept_jobs import KeptJobs
from emberkeep.slots.table.slot import TRANSITIONS, Slot, SlotState

FREED = 500  # newest freed allocations remembered: a repeated order for one of them is late
HISTORY = 50  # events kept for the error text of an impossible transition


class TableLimits(NamedTuple):
    """The capacity of the task manager, and time limits in seconds."""

    slots: int
    driver_places: int
    total: ResourceProfile
    slot_timeout: float  # an offered slot is freed unless it is accepted in this time
    recovery_timeout: float  # the same for a slot recovered from the previous instance
    silence_timeout: float  # slots of a JobMaster that is silent for this long are freed
    forget_after: float  # files of a job that holds nothing here are deleted after this, even if it has not ended
    addresses: tuple[ResourceAddresses, ...] = ()  # of custom resources, whose amounts are in ``total``


class TableState:
    """The slots and driver places of one task manager. Only the slot table and its parts change this state."""

    def __init__(self, limits: TableLimits) -> None:
        self.limits = limits
        self.fences = Fences()
        self.slots: dict[AllocationId, Slot] = {}
        self.drivers = DriverPlaces(limits.driver_places)
        self.kept_jobs = KeptJobs(limits.forget_after)
        self.closing = False
        self.draining = False  # running work moves elsewhere first
        self.heard: dict[tuple[JobId, int], float] = {}  # last contact with each attempt's JobMaster
        self.freed: deque[AllocationId] = deque(maxlen=FREED)
        self.history: deque[str] = deque(maxlen=HISTORY)

    # --- queries ------------------------------------------------------------------------------------------------------

    @property
    def free(self) -> ResourceProfile:
        """Resources that neither a slot nor a driver uses."""
        used = ResourceProfile(cores=0, memory_mb=self.drivers.memory_mb, custom=amounts_of(self.drivers.addresses))
        for slot in self.slots.values():
            used = used.plus(slot.allocation.profile)
        return self.limits.total.minus(used)

    @property
    def held_addresses(self) -> list[ResourceAddresses]:
        """Addresses of custom resources in use. A slot or a driver has them until its process has provably ended."""
        slots = [held for slot in self.slots.values() for held in slot.allocation.addresses]
        return [*slots, *self.drivers.addresses]

    @property
    def is_empty(self) -> bool:
        """True if no slot is held and no driver is alive."""
        return not self.slots and not self.drivers.living()

    @property
    def holds_nothing(self) -> bool:
        """True if nothing is held and no driver's end still has to be reported."""
        return not self.slots and not self.drivers.by_attempt

    def holding(self) -> frozenset[JobId]:
        """Return the jobs with a slot or a driver here, including ended drivers that are still reported."""
        jobs = (slot.allocation.job_id for slot in self.slots.values())
        return frozenset((*jobs, *(job_id for job_id, _ in self.drivers.by_attempt)))

    def offers(self) -> dict[tuple[JobId, int], tuple[Slot, ...]]:
        """Return the slots that their JobMaster has not accepted yet, keyed by job and attempt.

        A slot that an earlier process of this task manager recorded may have a running executor.
        """
        grouped: dict[tuple[JobId, int], tuple[Slot, ...]] = {}
        for slot in self.slots.values():
            if not slot.is_claimed and slot.state is not SlotState.RELEASING:
                grouped[slot.attempt] = (*grouped.get(slot.attempt, ()), slot)
        return grouped

    def of_attempt(self, job_id: JobId, attempt: int) -> list[Slot]:
        """Return one attempt's slots."""
        return [slot for slot in self.slots.values() if slot.attempt == (job_id, attempt)]

    def held_by(self, job_id: JobId, attempt: int) -> list[Slot]:
        """Return one attempt's slots, except those that are being released."""
        return [slot for slot in self.of_attempt(job_id, attempt) if slot.state is not SlotState.RELEASING]

    def slot_of(self, job_id: JobId, attempt: int, allocation_id: AllocationId) -> Slot | None:
        """Return this slot if it belongs to this attempt, else None."""
        slot = self.slots.get(allocation_id)
        return slot if slot is not None and slot.attempt == (job_id, attempt) else None

    def free_indices(self) -> list[int]:
        """Return the free slot indices, lowest first."""
        taken = {slot.allocation.slot_index for slot in self.slots.values()}
        return [index for index in range(self.limits.slots) if index not in taken]

    def check_open(self) -> None:
        """Raise Conflict if the task manager takes nothing new because it is about to stop."""
        if self.closing:
            raise Conflict("this task manager is shutting down")

    # --- changes that several parts of the machine make ---------------------------------------------------------------

    def take_slot(self, slot: Slot, now: float) -> None:
        """Add a slot; the caller has checked that there is room."""
        self.slots[slot.id] = slot
        self.heard.setdefault(slot.attempt, now)
        self.kept_jobs.used_by(slot.allocation.job_id, now)

    def take_driver(self, driver: HeldDriver, now: float) -> None:
        """Add a driver; the caller has checked that there is room."""
        self.drivers.by_attempt[(driver.job_id, driver.attempt)] = driver
        self.kept_jobs.used_by(driver.job_id, now)

    def accept(self, slot: Slot, now: float) -> None:
        """Note that the JobMaster has accepted the slot."""
        slot.claim_until = None
        if slot.state is SlotState.OFFERED:
            self.move(slot, SlotState.ACTIVE)
        self.heard[slot.attempt] = now

    def move(self, slot: Slot, to: SlotState | None) -> None:
        """Change the state of a slot. None: it is about to be removed. Raises IllegalTransition."""
        if to not in TRANSITIONS[slot.state]:
            raise self.impossible(slot, "free it" if to is None else f"go to {to.value}")
        if to is not None:
            slot.state = to

    def impossible(self, slot: Slot, what: str) -> IllegalTransition:
        """Return the error for something that must never be done in the state of this slot."""
        return IllegalTransition(f"slot {slot.id}", slot.state.value, what, tuple(self.history))
