"""Empties places where nothing new may be placed: blocked and evacuated nodes, and draining task managers.

A slot on a blocked place is *outgoing*. It does not count towards the requirement, so another slot is requested at
once. Its executor works as before until the other one runs. Then it is *cordoned*: it keeps its blocks and running
tasks and takes no new ones. Once it has nothing left to do or to keep, it leaves.

A slot on an evacuated place is *leaving*. It does not count towards the requirement either. Its executor is
decommissioned as soon as another one can take over what it keeps, and ends by itself; after the evacuation timeout it
is removed. The slot never gets another executor. If the block ends before the executor was decommissioned, the slot
stays if it is still needed. Slots that are given back leave in the same way (see ``reclaiming``), and so do
slots on a draining task manager. But there an executor without a successor stays as long as its task manager does.

An executor in which tasks fail because its disk is full is outgoing as well, for LACKING_SECONDS after the last such
failure. It keeps the shuffle files that it has written, and other executors take its tasks. Its slot is not given back
before another one is there: the next executor in it would find the same disk.
"""

from __future__ import annotations

from emberkeep.base.ids import ExecutorId
from emberkeep.slots.pool.events import BeatNow, PlacesBlocked, PoolEffect, StatusChanged
from emberkeep.slots.pool.held_slot import DepartureState, HeldSlot
from emberkeep.slots.pool.slot_end import SlotEnd
from emberkeep.slots.pool.state import ClosedPlaces, PoolState

LACKING_SECONDS = 600.0  # an executor gets no new task for so long after one has failed for lack of disk space


class Departures:
    """Replaces and empties slots on closed places. Part of the SlotPool."""

    def __init__(self, pool: PoolState, slot_end: SlotEnd) -> None:
        self._pool = pool
        self._slot_end = slot_end

    def places_blocked(self, event: PlacesBlocked, now: float) -> list[PoolEffect]:
        """Follow a new blocklist. Replace slots that must leave without a pause, because no executor has failed."""
        self._pool.places = ClosedPlaces(event.places, event.draining)
        effects = [effect for slot in list(self._pool.held.values()) for effect in self.obey(slot, now)]
        return [*effects, *self.welcome_back(now)]

    def obey(self, slot: HeldSlot, now: float) -> list[PoolEffect]:
        """Give back a slot without a running executor; mark others as leaving (evacuated) or outgoing (blocked)."""
        if self._pool.must_leave(slot):
            return self._depart(slot, now)
        if not slot.stays or not self._pool.places.is_closed(slot.task_manager):
            return []
        slot.departure = DepartureState.OUTGOING
        return [StatusChanged()]

    def _depart(self, slot: HeldSlot, now: float) -> list[PoolEffect]:
        """Mark a slot as leaving if its executor can hand over what it keeps; give back any other slot at once."""
        if not (slot.executor.is_registered and self._pool.decommissions):
            return self._slot_end.vacate(slot)
        slot.leave(now)
        return [StatusChanged()]

    def welcome_back(self, now: float) -> list[PoolEffect]:
        """Keep slots that were about to leave if their block has ended and they are still needed."""
        pool = self._pool
        effects: list[PoolEffect] = []
        for slot in list(pool.held.values()):
            is_closed, is_emptied = pool.places.is_closed(slot.task_manager), pool.places.is_emptied(slot.task_manager)
            wanted = pool.staying < pool.target
            if slot.departure is DepartureState.LEAVING and not is_emptied and wanted:
                is_outgoing = is_closed or slot.executor.lacks_space
                slot.departure = DepartureState.OUTGOING if is_outgoing else DepartureState.STAYS
                slot.reclaimed = False
                effects.append(StatusChanged())
            elif slot.is_outgoing and not is_closed and not slot.executor.lacks_space:
                effects += self._come_back(slot, now)
        return effects

    def _come_back(self, slot: HeldSlot, now: float) -> list[PoolEffect]:
        """Keep an outgoing slot if it is still needed; otherwise let it leave."""
        wanted = self._pool.staying < self._pool.target
        slot.departure = DepartureState.STAYS
        return [StatusChanged()] if wanted else self._depart(slot, now)

    def follow_disks(self, lacking_space: frozenset[ExecutorId], now: float) -> list[PoolEffect]:
        """Replace executors whose disk is full. ``lacking_space``: those in which tasks have failed because of that."""
        effects: list[PoolEffect] = []
        for slot in list(self._pool.held.values()):
            executor = slot.executor
            if executor.id in lacking_space:
                executor.lacks_space_until = now + LACKING_SECONDS
            if executor.lacks_space_until is None:
                continue
            if now < executor.lacks_space_until:
                if slot.stays:
                    slot.departure = DepartureState.OUTGOING
                    effects.append(StatusChanged())
            elif self._pool.decommissions or self._pool.staying < self._pool.target:
                executor.lacks_space_until = None
                if slot.is_outgoing and not self._pool.places.is_closed(slot.task_manager):
                    effects += self._come_back(slot, now)
        return effects

    def dismiss(self, idle: frozenset[ExecutorId], now: float) -> list[PoolEffect]:
        """Let cordoned executors leave once they have nothing left to do or to keep (BLK-8)."""
        outgoing = (slot for slot in self._pool.held.values() if slot.is_outgoing)
        done = [slot for slot in outgoing if slot.executor.cordoned and slot.executor.id in idle]
        return [effect for slot in done if not self._is_waiting(slot) for effect in self._depart(slot, now)]

    def _is_waiting(self, slot: HeldSlot) -> bool:
        """True if a slot is outgoing because of its disk alone, and no other one has taken its place yet."""
        pool = self._pool
        return slot.executor.lacks_space and not pool.places.is_closed(slot.task_manager) and pool.staying < pool.target

    def review(self, now: float) -> list[PoolEffect]:
        """Decommission leaving executors once another can take over what they keep; remove those that take too long."""
        pool = self._pool
        effects: list[PoolEffect] = []
        for slot in [slot for slot in pool.held.values() if slot.is_leaving]:
            if not self._is_pressed(slot):
                slot.leaving_since = now
            if now - slot.leaving_since >= self._timeout(slot):
                effects += self._slot_end.executor_left(slot, self._overdue(slot), orderly=False)
            elif not (slot.is_decommissioned or slot.executor.cordoned or pool.stopping) and self._has_successor():
                # Spark treats a cordoned executor as already decommissioned, so it could not hand over anything.
                slot.departure = DepartureState.DECOMMISSIONED
                effects.append(BeatNow())
        return effects

    def _is_pressed(self, slot: HeldSlot) -> bool:
        """True if the evacuation timeout runs for this slot.

        It does not run for an executor that waits for a successor on a draining task manager. That task manager ends
        the executor itself.
        """
        return slot.is_decommissioned or not self._pool.places.only_drains(slot.task_manager)

    def _has_successor(self) -> bool:
        """True if an executor that stays can take blocks. Without one, Spark would drop the blocks.

        An attempt that is put back keeps no executor, so it waits for none.
        """
        return self._pool.is_put_back or any(
            slot.executor.takes_blocks and slot.takes_new_work for slot in self._pool.held.values()
        )

    def _overdue(self, slot: HeldSlot) -> str:
        what = (
            "did not hand over its blocks and end" if slot.is_decommissioned else "found no other to hand its blocks to"
        )
        key = "slotmanager.preemption.timeout" if slot.reclaimed else "blocklist.evacuation.timeout"
        return f"{what} within {self._timeout(slot):g} s ({key}) and is ended"

    def _timeout(self, slot: HeldSlot) -> float:
        limits = self._pool.limits
        return limits.reclaim_timeout if slot.reclaimed else limits.evacuation_timeout
