"""A task manager's allocated resources: slots with the executors in them, driver places, memory.

Decides only: events in (see ``events``), effects out; time is an argument in seconds. A refusal raises Conflict, Absent
or RetryLater and changes nothing. A slot keeps its resources until its executor has provably ended, so the totals are
never exceeded. ``record`` has the part of the state that outlives the process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from emberkeep.base.ids import JobId
from emberkeep.slots.table import events as ev
from emberkeep.slots.table import invariants
from emberkeep.slots.table.attempts import Attempts
from emberkeep.slots.table.claims import Claims
from emberkeep.slots.table.events import TableEffect, TableEvent
from emberkeep.slots.table.executors import SlotExecutors
from emberkeep.slots.table.reservations import Reservations
from emberkeep.slots.table.slot import SlotState
from emberkeep.slots.table.slot_release import SlotRelease
from emberkeep.slots.table.state import TableState


class SlotTable:
    """One task manager's slots and driver places; see the module.

    ``state`` changes only in ``handle``, except that ``name_left`` rotates the jobs that it names.

    The parts of the state machine share it. Each part makes one kind of decision, and may use the parts that come
    before it in this list: the release of slots, the end of attempts, reservations, claims of JobMasters, executors.
    """

    def __init__(self, state: TableState) -> None:
        self.state = state
        self._releases = SlotRelease(state)
        attempts = Attempts(state, self._releases)
        reservations = Reservations(state, attempts)
        self._claims = Claims(state, self._releases)
        executors = SlotExecutors(state, self._releases)
        self._handlers: dict[type[Any], Callable[[Any, float], list[TableEffect]]] = {
            ev.EpochSeen: self._epoch_seen,
            ev.StoreFollowed: self._store_followed,
            ev.ReserveSlot: reservations.reserve_slot,
            ev.ReserveDriver: reservations.reserve_driver,
            ev.OfferAnswered: self._claims.offer_answered,
            ev.OfferRefused: self._claims.offer_refused,
            ev.SlotReleased: self._claims.slot_released,
            ev.JobMasterHeard: self._claims.job_master_heard,
            ev.StartWanted: executors.start_wanted,
            ev.ExecutorStarted: executors.executor_started,
            ev.ExecutorEnded: executors.executor_ended,
            ev.DriverStarted: self._driver_started,
            ev.DriverEnded: attempts.driver_ended,
            ev.DriverAcknowledged: self._driver_acknowledged,
            ev.StopWanted: attempts.stop_wanted,
            ev.AttemptsOver: attempts.attempts_over,
            ev.JobsEnded: self._jobs_ended,
            ev.StopLapsed: self._stop_lapsed,
            ev.Drain: self._drain,
            ev.Close: self._close,
            ev.Tick: self._tick,
        }

    def handle(self, event: TableEvent, now: float) -> list[TableEffect]:
        """Apply one event at ``now`` (seconds) and return the effects.

        Raises Conflict, Absent or RetryLater as the event's docstring says; in that case nothing has changed.
        """
        if not isinstance(event, ev.Tick):
            self.state.history.append(f"{now:.3f} {event}")
        return self._handlers[type(event)](event, now)

    def _epoch_seen(self, event: ev.EpochSeen, _: float) -> list[TableEffect]:
        self.state.fences.admit_epoch(event.epoch, event.lineage)
        return []

    def _store_followed(self, event: ev.StoreFollowed, _: float) -> list[TableEffect]:
        self.state.fences.follow(event.epoch, event.lineage)
        return []

    def _driver_started(self, event: ev.DriverStarted, _: float) -> list[TableEffect]:
        return [*self.state.drivers.started(event), ev.ReportChanged()]

    def _driver_acknowledged(self, event: ev.DriverAcknowledged, _: float) -> list[TableEffect]:
        self.state.drivers.acknowledge(event.job_id, event.attempt)
        return []

    def _jobs_ended(self, event: ev.JobsEnded, _: float) -> list[TableEffect]:
        return self.state.kept_jobs.forget_ended(event.job_ids, self.state.holding())

    def _stop_lapsed(self, event: ev.StopLapsed, _: float) -> list[TableEffect]:
        drivers = self.state.drivers
        if event.allocation_id is not None:
            slot = self.state.slot_of(event.job_id, event.attempt, event.allocation_id)
            if slot is None or slot.state is not SlotState.RELEASING:
                return []
            return [self._releases.end_executor(slot)]
        if not drivers.is_alive(event.job_id, event.attempt):
            return []
        return drivers.end_again(drivers.by_attempt[(event.job_id, event.attempt)], 0.0)

    def _drain(self, event: ev.Drain, _: float) -> list[TableEffect]:
        self.state.closing = True
        self.state.draining = self.state.draining or event.moves
        return [ev.ReportChanged()]

    def _close(self, event: ev.Close, _: float) -> list[TableEffect]:
        self.state.closing = True
        drivers = self.state.drivers
        effects: list[TableEffect] = []
        for driver in drivers.living():
            effects += drivers.end(driver.job_id, driver.attempt, event.grace)
        for slot in list(self.state.slots.values()):
            if not drivers.is_alive(*slot.attempt):
                effects += self._releases.release(slot)
        return effects

    def _tick(self, _: ev.Tick, now: float) -> list[TableEffect]:
        effects = self._claims.review(now)
        holding = self.state.holding()
        self.state.fences.forget_idle(holding)
        return [*effects, *self.state.kept_jobs.forget_idle(now, holding)]

    def name_left(self, most: int) -> tuple[JobId, ...]:
        """Return at most ``most`` jobs that hold nothing here and are not forgotten yet.

        Successive calls name different ones.
        """
        return self.state.kept_jobs.name_left(most, self.state.holding())

    def check_invariants(self) -> None:
        """Raise AssertionError naming the broken invariant. Cheap enough for every step of a test or simulation."""
        invariants.check(self.state)
