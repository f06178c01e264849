"""Follows which slots their JobMasters claim: by replies to offers, by heartbeats, and by silence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from emberkeep.base.errors import RetryLater
from emberkeep.base.ids import AllocationId
from emberkeep.slots.table.events import (
    DecommissionExecutor,
    JobMasterHeard,
    OfferAnswered,
    OfferRefused,
    SlotReleased,
    TableEffect,
)
from emberkeep.slots.table.slot import Slot, SlotState
from emberkeep.slots.table.slot_release import SlotRelease
from emberkeep.slots.table.state import TableState

BEATS_MISSED = 2  # a heartbeat sent before a slot was accepted may not name it, so only the second in a row counts


class Claims:
    """Releases slots that their JobMasters do not claim. Part of the SlotTable."""

    def __init__(self, table: TableState, releases: SlotRelease) -> None:
        self._table = table
        self._releases = releases

    def offer_answered(self, event: OfferAnswered, now: float) -> list[TableEffect]:
        effects: list[TableEffect] = []
        for slot in self._unclaimed(event.offered):
            if slot.id in event.accepted:
                self._table.accept(slot, now)
            else:
                later = slot.id in event.later
                effects += self._releases.release(slot, unwanted=not later, attempt_ends=later)
        return effects

    def offer_refused(self, event: OfferRefused, _: float) -> list[TableEffect]:
        slots = self._unclaimed(event.offered)
        return [effect for slot in slots for effect in self._releases.release_unclaimed(slot)]

    def slot_released(self, event: SlotReleased, _: float) -> list[TableEffect]:
        slot = self._table.slot_of(event.job_id, event.attempt, event.allocation_id)
        return [] if slot is None else self._releases.release(slot, attempt_ends=event.stopped)

    def job_master_heard(self, event: JobMasterHeard, now: float) -> list[TableEffect]:
        table = self._table
        table.fences.check(event.job_id, event.attempt)
        own = table.of_attempt(event.job_id, event.attempt)
        if any(slot.is_recovered and not slot.is_claimed and slot.state is not SlotState.RELEASING for slot in own):
            raise RetryLater("this task manager was restarted and offers its slots again: answer that first")
        if own:
            table.heard[(event.job_id, event.attempt)] = now
        return [effect for slot in own for effect in self._take_beat(slot, event, now)]

    def _take_beat(self, slot: Slot, event: JobMasterHeard, now: float) -> list[TableEffect]:
        releasing = slot.state is SlotState.RELEASING
        if slot.id in event.allocations:
            slot.missed_beats = 0
            if not releasing:
                self._table.accept(slot, now)
            return _decommission(slot) if slot.id in event.decommissioned else []
        if releasing or not slot.is_claimed:
            return []
        slot.missed_beats += 1
        return self._releases.release(slot) if slot.missed_beats >= BEATS_MISSED else []

    def review(self, now: float) -> list[TableEffect]:
        """Release the slots that JobMasters no longer claim."""
        effects: list[TableEffect] = []
        for slot in list(self._table.slots.values()):
            if not self._is_abandoned(slot, now):
                continue
            if slot.is_claimed:
                # A silent JobMaster is usually lost: the next attempt follows.
                effects += self._releases.release(slot, attempt_ends=True)
            else:
                effects += self._releases.release_unclaimed(slot)
        return effects

    def _is_abandoned(self, slot: Slot, now: float) -> bool:
        """True if the JobMaster did not accept the slot in time, or is silent.

        A slot that was accepted or recovered is not abandoned while its attempt's driver runs on this task manager.
        """
        table = self._table
        if slot.state is not SlotState.OFFERED and table.drivers.is_alive(*slot.attempt):
            return False
        if slot.claim_until is not None:
            return now >= slot.claim_until
        return now - table.heard[slot.attempt] > table.limits.silence_timeout

    def _unclaimed(self, allocations: Iterable[AllocationId]) -> Iterator[Slot]:
        """Yield the slots in ``allocations`` that no JobMaster has accepted yet."""
        for allocation_id in allocations:
            slot = self._table.slots.get(allocation_id)
            if slot is not None and not slot.is_claimed:
                yield slot


def _decommission(slot: Slot) -> list[TableEffect]:
    """Ask the slot's executor once to hand over its blocks and exit. The next instance may harmlessly ask again."""
    if slot.state is not SlotState.RUNNING or slot.decommissioned or slot.executor_id is None:
        return []
    slot.decommissioned = True
    return [DecommissionExecutor(*slot.attempt, slot.id, slot.executor_id)]
