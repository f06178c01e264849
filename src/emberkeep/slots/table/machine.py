"""A task manager's allocated resources: slots with the executors in them, driver places, memory.

Decides only: events in (see ``events``), effects out; time is an argument in seconds. A refusal raises Conflict, Absent
or RetryLater and changes nothing. A slot keeps its resources until its executor has provably ended, so the totals are
never exceeded. ``record`` has the part of the state that outlives the process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any, NamedTuple

from emberkeep.base.errors import Absent, Conflict, IllegalTransition, RetryLater
from emberkeep.base.ids import AllocationId, JobId
from emberkeep.slots.model import Allocation, ResourceProfile
from emberkeep.slots.table import invariants as table_invariants
from emberkeep.slots.table.driver_places import DriverPlaces
from emberkeep.slots.table.events import (
    AttemptsOver,
    Close,
    DecommissionExecutor,
    Drain,
    DriverAcknowledged,
    DriverEnded,
    DriverStarted,
    DriverState,
    EndExecutor,
    EpochSeen,
    ExecutorEnded,
    ExecutorStarted,
    ForgetJob,
    HeldDriver,
    JobMasterHeard,
    JobsEnded,
    LaunchDriver,
    LaunchExecutor,
    OfferAnswered,
    OfferRefused,
    ReportChanged,
    ReserveDriver,
    ReserveSlot,
    Slot,
    SlotBegun,
    SlotFreed,
    SlotReleased,
    SlotState,
    StartWanted,
    StopLapsed,
    StopWanted,
    StoreFollowed,
    TableEffect,
    TableEvent,
    TellJobMaster,
    Tick,
)
from emberkeep.slots.table.fences import Fences

FREED = 500  # newest freed allocations remembered: a repeated order for one of them is late
HISTORY = 50  # events kept for the error text of an impossible transition
BEATS_MISSED = 2  # a beat sent before its slot was accepted may not name it: only the second in a row counts

# Allowed next states of a slot; None: the slot is free again.
TRANSITIONS: dict[SlotState, tuple[SlotState | None, ...]] = {
    SlotState.OFFERED: (SlotState.ACTIVE, None),
    SlotState.ACTIVE: (SlotState.STARTING, None),
    SlotState.STARTING: (SlotState.RUNNING, SlotState.EXITED, SlotState.RELEASING),
    SlotState.RUNNING: (SlotState.EXITED, SlotState.RELEASING),
    SlotState.EXITED: (SlotState.STARTING, None),
    SlotState.RELEASING: (None,),
}
_WITH_PROCESS = (SlotState.STARTING, SlotState.RUNNING, SlotState.RELEASING)
_RECOVERED = (SlotState.ACTIVE, SlotState.STARTING, SlotState.RUNNING, SlotState.EXITED)  # where it awaits a claim


class TableLimits(NamedTuple):
    """The capacity of the task manager, and time limits in seconds."""

    slots: int
    driver_places: int
    total: ResourceProfile
    slot_timeout: float  # an offered slot is freed unless it is accepted in this time
    recovery_timeout: float  # the same for a slot recovered from the previous instance
    silence_timeout: float  # slots of a JobMaster that is silent for this long are freed
    forget_after: float  # files of a job that holds nothing here are deleted after this, even if it has not ended


class SlotTable:
    """One task manager's slots and driver places; see the module."""

    def __init__(self, limits: TableLimits) -> None:
        self.limits = limits
        self.fences = Fences()
        self.slots: dict[AllocationId, Slot] = {}
        self.drivers = DriverPlaces(limits.driver_places)
        self.closing = False
        self.draining = False  # what runs here moves elsewhere first
        self._heard: dict[tuple[JobId, int], float] = {}  # last contact with each attempt's JobMaster
        self._held_at: dict[JobId, float] = {}  # when each job last held something here; least recently named first
        self._history: deque[str] = deque(maxlen=HISTORY)
        self._freed: deque[AllocationId] = deque(maxlen=FREED)
        self._handlers: dict[type[Any], Callable[[Any, float], list[TableEffect]]] = {
            EpochSeen: self._epoch_seen,
            StoreFollowed: self._store_followed,
            ReserveSlot: self._reserve_slot,
            OfferAnswered: self._offer_answered,
            OfferRefused: self._offer_refused,
            StartWanted: self._start_wanted,
            ExecutorStarted: self._executor_started,
            ExecutorEnded: self._executor_ended,
            SlotReleased: self._slot_released,
            JobMasterHeard: self._job_master_heard,
            ReserveDriver: self._reserve_driver,
            DriverStarted: self._driver_started,
            DriverEnded: self._driver_ended,
            StopWanted: self._stop_wanted,
            DriverAcknowledged: self._driver_acknowledged,
            AttemptsOver: self._attempts_over,
            JobsEnded: self._jobs_ended,
            StopLapsed: self._stop_lapsed,
            Drain: self._drain,
            Close: self._close,
            Tick: self._tick,
        }

    def handle(self, event: TableEvent, now: float) -> list[TableEffect]:
        """Apply one event at ``now`` (seconds) and return the effects.

        Raises Conflict, Absent or RetryLater as the event's docstring says; in that case nothing has changed.
        """
        if not isinstance(event, Tick):
            self._history.append(f"{now:.3f} {event}")
        return self._handlers[type(event)](event, now)

    # --- queries ------------------------------------------------------------------------------------------------------

    @property
    def free(self) -> ResourceProfile:
        """Resources that neither a slot nor a driver uses."""
        used = ResourceProfile(cores=0, memory_mb=self.drivers.memory_mb)
        for slot in self.slots.values():
            used = used.plus(slot.allocation.profile)
        return self.limits.total.minus(used)

    @property
    def is_empty(self) -> bool:
        """True if no slot is held and no driver is alive."""
        return not self.slots and not self.drivers.living()

    @property
    def holds_nothing(self) -> bool:
        """True if nothing is held and no driver's end still has to be reported."""
        return not self.slots and not self.drivers.by_attempt

    def offers(self) -> dict[tuple[JobId, int], tuple[Slot, ...]]:
        """Return the slots that their JobMaster has not accepted yet, keyed by job and attempt.

        A slot that an earlier process of this task manager recorded may have a running executor.
        """
        grouped: dict[tuple[JobId, int], tuple[Slot, ...]] = {}
        for slot in self.slots.values():
            if slot.claim_until is not None and slot.state is not SlotState.RELEASING:
                key = (slot.allocation.job_id, slot.allocation.attempt)
                grouped[key] = (*grouped.get(key, ()), slot)
        return grouped

    def held_by(self, job_id: JobId, attempt: int) -> list[Slot]:
        """Return one attempt's slots, except those that are being released."""
        return [slot for slot in self._of_attempt(job_id, attempt) if slot.state is not SlotState.RELEASING]

    def name_left(self, most: int) -> tuple[JobId, ...]:
        """Return at most ``most`` jobs that hold nothing here and are not forgotten yet, taking turns between calls."""
        holding = self._holding()
        left = tuple(islice((job_id for job_id in self._held_at if job_id not in holding), most))
        for job_id in left:
            self._held_at[job_id] = self._held_at.pop(job_id)
        return left

    def check_invariants(self) -> None:
        """Raise AssertionError naming the broken invariant. Cheap enough for every step of a test or simulation."""
        table_invariants.check(self)

    def _of_attempt(self, job_id: JobId, attempt: int) -> list[Slot]:
        return [
            slot
            for slot in self.slots.values()
            if slot.allocation.job_id == job_id and slot.allocation.attempt == attempt
        ]

    # --- slots --------------------------------------------------------------------------------------------------------

    def _epoch_seen(self, event: EpochSeen, _: float) -> list[TableEffect]:
        self.fences.admit_epoch(event.epoch, event.lineage)
        return []

    def _store_followed(self, event: StoreFollowed, _: float) -> list[TableEffect]:
        self.fences.follow(event.epoch, event.lineage)
        return []

    def _reserve_slot(self, event: ReserveSlot, now: float) -> list[TableEffect]:
        self.fences.check(event.job_id, event.attempt)
        known = self.slots.get(event.allocation_id)
        if known is not None:
            if (known.allocation.job_id, known.allocation.attempt) != (event.job_id, event.attempt):
                raise Conflict(f"allocation {event.allocation_id} belongs to job {known.allocation.job_id}")
            return []
        if event.allocation_id in self._freed:
            raise Conflict(f"allocation {event.allocation_id} was given back: this order comes late")
        self._check_open()
        taken = {slot.allocation.slot_index for slot in self.slots.values()}
        index = next((number for number in range(self.limits.slots) if number not in taken), None)
        if index is None:
            raise Conflict(f"all {self.limits.slots} slots are taken")
        if not event.profile.fits_in(self.free):
            raise Conflict(f"a slot of {event.profile} does not fit in what is free: {self.free}")
        effects = self._supersede(event.job_id, event.attempt)
        allocation = Allocation(
            id=event.allocation_id,
            slot_index=index,
            job_id=event.job_id,
            attempt=event.attempt,
            profile=event.profile,
            job_master=event.job_master,
        )
        self.take_slot(Slot(allocation, SlotState.OFFERED, now + self.limits.slot_timeout), now)
        return [*effects, SlotBegun(allocation), ReportChanged()]

    def take_slot(self, slot: Slot, now: float) -> None:
        """Enter a slot; the caller has checked that there is room."""
        allocation = slot.allocation
        self.slots[allocation.id] = slot
        self._held_at[allocation.job_id] = now
        self._heard.setdefault((allocation.job_id, allocation.attempt), now)

    def take_driver(self, driver: HeldDriver, now: float) -> None:
        """Enter a driver; the caller has checked that there is room."""
        self.drivers.by_attempt[(driver.job_id, driver.attempt)] = driver
        self._held_at[driver.job_id] = now

    def _offer_answered(self, event: OfferAnswered, now: float) -> list[TableEffect]:
        effects: list[TableEffect] = []
        for allocation_id in event.offered:
            slot = self.slots.get(allocation_id)
            if slot is None or slot.claim_until is None:
                continue
            if allocation_id in event.accepted:
                self._accept(slot, now)
            else:
                later = allocation_id in event.later
                effects += self._release(slot, unwanted=not later, attempt_ends=later)
        return effects

    def _offer_refused(self, event: OfferRefused, _: float) -> list[TableEffect]:
        effects: list[TableEffect] = []
        for allocation_id in event.offered:
            slot = self.slots.get(allocation_id)
            if slot is not None and slot.claim_until is not None:
                effects += self._release_unclaimed(slot)
        return effects

    def _release_unclaimed(self, slot: Slot) -> list[TableEffect]:
        """Release a slot that no JobMaster takes for its attempt.

        If no executor has used the slot, the local state that the slot took over stays for the job's next executors.
        """
        return self._release(slot, unwanted=slot.state is not SlotState.OFFERED)

    def _accept(self, slot: Slot, now: float) -> None:
        slot.claim_until = None
        if slot.state is SlotState.OFFERED:
            self._move(slot, SlotState.ACTIVE)
        self._heard[(slot.allocation.job_id, slot.allocation.attempt)] = now

    def _start_wanted(self, event: StartWanted, now: float) -> list[TableEffect]:
        self.fences.check(event.job_id, event.attempt)
        slot = self._slot_of(event.job_id, event.attempt, event.allocation_id)
        if slot is None or slot.state is SlotState.RELEASING:
            raise Absent(f"allocation {event.allocation_id} is not held here: it was released or not accepted in time")
        if slot.executor_id == event.executor_id:
            self._accept(slot, now)
            return []
        if slot.executor_id is not None and slot.state is not SlotState.EXITED:
            raise Conflict(f"allocation {event.allocation_id} already holds executor {slot.executor_id}")
        others = self._of_attempt(event.job_id, event.attempt)
        if any(event.executor_id in (other.executor_id, *other.former) for other in others):
            raise Conflict(f"executor {event.executor_id} lives in another slot, or has ended")
        self._accept(slot, now)  # the reply to the offer was lost or is late
        self._move(slot, SlotState.STARTING)
        if slot.executor_id is not None:
            slot.former = (*slot.former, slot.executor_id)
        slot.executor_id, slot.pid, slot.exit_code, slot.detail = event.executor_id, 0, None, ""
        slot.decommissioned = False
        return [LaunchExecutor(event.allocation_id, event.executor_id)]

    def _executor_started(self, event: ExecutorStarted, _: float) -> list[TableEffect]:
        slot = self.slots.get(event.allocation_id)
        if slot is None or slot.executor_id != event.executor_id or slot.state is SlotState.EXITED:
            return []  # its end was reported before its start
        slot.pid = event.pid
        if slot.state is SlotState.RELEASING:  # released before there was a process to end
            return [self._end_executor(slot)]
        self._move(slot, SlotState.RUNNING)
        return self._tell(slot)

    def _executor_ended(self, event: ExecutorEnded, _: float) -> list[TableEffect]:
        slot = self.slots.get(event.allocation_id)
        if slot is None or slot.executor_id != event.executor_id or slot.state is SlotState.EXITED:
            return []
        if slot.state is SlotState.RELEASING:
            return self._free(slot)
        self._move(slot, SlotState.EXITED)
        slot.exit_code, slot.detail = event.exit_code, event.detail
        return self._tell(slot)

    @staticmethod
    def _tell(slot: Slot) -> list[TableEffect]:
        """Notify the JobMaster, unless the slot is still on offer, because the offer itself reports the executor."""
        return [] if slot.claim_until is not None else [TellJobMaster(slot.allocation.id)]

    def _slot_released(self, event: SlotReleased, _: float) -> list[TableEffect]:
        slot = self._slot_of(event.job_id, event.attempt, event.allocation_id)
        return [] if slot is None else self._release(slot, attempt_ends=event.stopped)

    def _job_master_heard(self, event: JobMasterHeard, now: float) -> list[TableEffect]:
        self.fences.check(event.job_id, event.attempt)
        own = self._of_attempt(event.job_id, event.attempt)
        if any(slot.claim_until is not None and slot.state in _RECOVERED for slot in own):
            raise RetryLater("this task manager was started anew and offers its slots again: answer that first")
        effects: list[TableEffect] = []
        for slot in own:
            self._heard[(event.job_id, event.attempt)] = now
            if slot.allocation.id in event.allocations:
                slot.missed_beats = 0
                if slot.state is not SlotState.RELEASING:
                    self._accept(slot, now)
                if slot.allocation.id in event.decommissioned:
                    effects += self._decommission(slot)
            elif slot.claim_until is None and slot.state is not SlotState.RELEASING:
                slot.missed_beats += 1
                if slot.missed_beats >= BEATS_MISSED:
                    effects += self._release(slot)
        return effects

    @staticmethod
    def _decommission(slot: Slot) -> list[TableEffect]:
        """Ask the slot's executor once to hand over and end. The next instance asks again, which does no harm."""
        if slot.state is not SlotState.RUNNING or slot.decommissioned or slot.executor_id is None:
            return []
        slot.decommissioned = True
        allocation = slot.allocation
        return [DecommissionExecutor(allocation.job_id, allocation.attempt, allocation.id, slot.executor_id)]

    def _slot_of(self, job_id: JobId, attempt: int, allocation_id: AllocationId) -> Slot | None:
        slot = self.slots.get(allocation_id)
        if slot is None or (slot.allocation.job_id, slot.allocation.attempt) != (job_id, attempt):
            return None
        return slot

    def _release(self, slot: Slot, *, unwanted: bool = False, attempt_ends: bool = False) -> list[TableEffect]:
        """Free a slot: at once if it has no process, else when its process has ended.

        ``unwanted``: its job continues without it, or no JobMaster has claimed it.
        """
        slot.attempt_ends = slot.attempt_ends or attempt_ends
        if slot.state is SlotState.RELEASING:
            return []
        if slot.state not in _WITH_PROCESS:
            return self._free(slot, unwanted=unwanted)
        self._move(slot, SlotState.RELEASING)
        return [self._end_executor(slot)]

    def _end_executor(self, slot: Slot) -> EndExecutor:
        allocation = slot.allocation
        if slot.executor_id is None:
            raise self._impossible(slot, "end its executor")
        return EndExecutor(allocation.job_id, allocation.attempt, allocation.id, slot.executor_id)

    def _free(self, slot: Slot, *, unwanted: bool = False) -> list[TableEffect]:
        ended_by_itself = slot.state is SlotState.EXITED and not slot.decommissioned and not unwanted
        # Nothing ever ran in a slot that was not accepted: all that is kept for it was left by another slot's executor.
        never_used = slot.state is SlotState.OFFERED and not unwanted
        self._move(slot, None)
        del self.slots[slot.allocation.id]
        self._freed.append(slot.allocation.id)
        key = (slot.allocation.job_id, slot.allocation.attempt)
        if not self._of_attempt(*key):
            self._heard.pop(key, None)
        may_return = ended_by_itself or never_used or slot.attempt_ends or self.fences.is_refused(*key)
        return [SlotFreed(slot.allocation, may_return), ReportChanged()]

    def _move(self, slot: Slot, to: SlotState | None) -> None:
        if to not in TRANSITIONS[slot.state]:
            raise self._impossible(slot, "free it" if to is None else f"go to {to.value}")
        if to is not None:
            slot.state = to

    def _impossible(self, slot: Slot, what: str) -> IllegalTransition:
        return IllegalTransition(f"slot {slot.allocation.id}", slot.state.value, what, tuple(self._history))

    # --- drivers ------------------------------------------------------------------------------------------------------

    def _reserve_driver(self, event: ReserveDriver, now: float) -> list[TableEffect]:
        self.fences.check(event.job_id, event.attempt)
        if (event.job_id, event.attempt) in self.drivers.by_attempt:
            return []
        self._check_open()
        self.drivers.check_free()
        if event.memory_mb > self.free.memory_mb:
            raise Conflict(f"a driver of {event.memory_mb} MiB does not fit in what is free: {self.free}")
        effects = self._supersede(event.job_id, event.attempt)
        self.take_driver(HeldDriver(event.job_id, event.attempt, event.memory_mb, DriverState.STARTING), now)
        return [*effects, LaunchDriver(event.job_id, event.attempt), ReportChanged()]

    def _driver_started(self, event: DriverStarted, _: float) -> list[TableEffect]:
        return [*self.drivers.started(event), ReportChanged()]

    def _driver_ended(self, event: DriverEnded, _: float) -> list[TableEffect]:
        if not self.drivers.ended(event):
            return []
        return [*self._end_attempts(event.job_id, event.attempt), ReportChanged()]

    def _stop_wanted(self, event: StopWanted, _: float) -> list[TableEffect]:
        if (event.job_id, event.attempt) in self.drivers.by_attempt:
            return self.drivers.end(event.job_id, event.attempt, event.grace)
        return self._end_attempts(event.job_id, event.attempt)

    def _driver_acknowledged(self, event: DriverAcknowledged, _: float) -> list[TableEffect]:
        self.drivers.acknowledge(event.job_id, event.attempt)
        return []

    def _attempts_over(self, event: AttemptsOver, _: float) -> list[TableEffect]:
        return self._end_attempts(event.job_id, event.attempt)

    def _end_attempts(self, job_id: JobId, attempt: int) -> list[TableEffect]:
        """End this attempt and all older ones permanently."""
        self.fences.end(job_id, attempt)
        return self._clear_until(job_id, attempt)

    def _supersede(self, job_id: JobId, attempt: int) -> list[TableEffect]:
        """Begin a newer attempt, and end the slots and drivers that older ones still hold here."""
        self.fences.see(job_id, attempt)
        return self._clear_until(job_id, attempt - 1)

    def _clear_until(self, job_id: JobId, attempt: int) -> list[TableEffect]:
        effects = self.drivers.end_until(job_id, attempt)
        for slot in list(self.slots.values()):
            if slot.allocation.job_id == job_id and slot.allocation.attempt <= attempt:
                effects += self._release(slot)
        return effects

    # --- time and end -------------------------------------------------------------------------------------------------

    def _stop_lapsed(self, event: StopLapsed, _: float) -> list[TableEffect]:
        if event.allocation_id is not None:
            slot = self._slot_of(event.job_id, event.attempt, event.allocation_id)
            return [self._end_executor(slot)] if slot is not None and slot.state is SlotState.RELEASING else []
        if not self.drivers.is_alive(event.job_id, event.attempt):
            return []
        return self.drivers.end_again(self.drivers.by_attempt[(event.job_id, event.attempt)], 0.0)

    def _drain(self, event: Drain, _: float) -> list[TableEffect]:
        self.closing = True
        self.draining = self.draining or event.moves
        return [ReportChanged()]

    def _close(self, event: Close, _: float) -> list[TableEffect]:
        self.closing = True
        effects: list[TableEffect] = []
        for driver in self.drivers.living():
            effects += self.drivers.end(driver.job_id, driver.attempt, event.grace)
        for slot in list(self.slots.values()):
            if not self.drivers.is_alive(slot.allocation.job_id, slot.allocation.attempt):
                effects += self._release(slot)
        return effects

    def _check_open(self) -> None:
        if self.closing:
            raise Conflict("this task manager is shutting down")

    def _tick(self, _: Tick, now: float) -> list[TableEffect]:
        effects: list[TableEffect] = []
        for slot in list(self.slots.values()):
            if not self._is_abandoned(slot, now):
                continue
            if slot.claim_until is not None:
                effects += self._release_unclaimed(slot)
            else:
                # A silent JobMaster is usually lost: the next attempt follows.
                effects += self._release(slot, attempt_ends=True)
        return [*effects, *self._forget_idle(now)]

    def _is_abandoned(self, slot: Slot, now: float) -> bool:
        """True if the JobMaster did not accept the slot in time, or is silent.

        A slot that was accepted or recovered is not abandoned while its attempt's driver runs on this task manager.
        """
        key = (slot.allocation.job_id, slot.allocation.attempt)
        if slot.state is SlotState.OFFERED:
            return slot.claim_until is not None and now >= slot.claim_until
        if self.drivers.is_alive(*key):
            return False
        if slot.claim_until is not None:
            return now >= slot.claim_until
        return now - self._heard[key] > self.limits.silence_timeout

    def _jobs_ended(self, event: JobsEnded, _: float) -> list[TableEffect]:
        holding = self._holding()
        ended = [job_id for job_id in event.job_ids if job_id in self._held_at and job_id not in holding]
        for job_id in ended:
            del self._held_at[job_id]
        return [ForgetJob(job_id) for job_id in ended]

    def _holding(self) -> set[JobId]:
        """Return the jobs with a slot or a driver here, including ended drivers that are still reported."""
        holding = {slot.allocation.job_id for slot in self.slots.values()}
        holding.update(job_id for job_id, _ in self.drivers.by_attempt)
        return holding

    def _forget_idle(self, now: float) -> list[TableEffect]:
        holding = self._holding()
        effects: list[TableEffect] = []
        for job_id, held_at in list(self._held_at.items()):
            if job_id in holding:
                self._held_at[job_id] = now
            elif now - held_at >= self.limits.forget_after:
                del self._held_at[job_id]
                effects.append(ForgetJob(job_id))
        self.fences.forget_idle(holding)
        return effects
