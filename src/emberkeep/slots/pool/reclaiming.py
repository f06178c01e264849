"""Gives slots back that other jobs are entitled to, or that are above the quota of the namespace.

While the JobManager sets a ceiling, the attempt wants no more slots than that, whatever the application requires. Slots
beyond the ceiling leave: those whose executors have not registered at once, then those of the newest executors, which
are decommissioned once another one can take over what they keep. The oldest stay, because they keep the most. If the
ceiling is lifted in time, slots whose executors have not been decommissioned yet stay.

An attempt that is put back keeps no slot. Its driver continues: Spark waits for executors, and computes again what the
last ones could hand over to nobody.
"""

from __future__ import annotations

from emberkeep.slots.pool.departures import Departures
from emberkeep.slots.pool.events import CeilingSet, PoolEffect, StatusChanged
from emberkeep.slots.pool.held_slot import HeldSlot
from emberkeep.slots.pool.slot_end import SlotEnd
from emberkeep.slots.pool.state import PoolState


class Reclaiming:
    """Follows the ceiling. Part of the SlotPool."""

    def __init__(self, pool: PoolState, slot_end: SlotEnd, departures: Departures) -> None:
        self._pool = pool
        self._slot_end = slot_end
        self._departures = departures

    def ceiling_set(self, event: CeilingSet, now: float) -> list[PoolEffect]:
        pool = self._pool
        if event.reclaim == pool.reclaim:
            return []
        pool.reclaim = event.reclaim
        return [*self._departures.welcome_back(now), StatusChanged()]

    def review(self, now: float) -> list[PoolEffect]:
        """Let slots beyond the ceiling leave."""
        pool, ceiling = self._pool, self._pool.ceiling
        if ceiling is None or pool.requirement is None or pool.stopping:
            return []
        beyond = pool.staying - ceiling
        if beyond <= 0:
            return []
        effects: list[PoolEffect] = []
        for slot in self._last_first(now)[:beyond]:
            if slot.executor.is_registered:
                slot.leave(now, reclaimed=True)
                effects.append(StatusChanged())
            else:
                reason = f"executor {slot.executor.id} has not registered, and its slot is given back"
                effects += self._slot_end.remove(slot, reason, orderly=True)
        return effects

    def _last_first(self, now: float) -> list[HeldSlot]:
        """Return the slots that stay: first those without a registered executor, last those that nobody could use."""
        newest_first = [slot for slot in reversed(self._pool.held.values()) if slot.stays]
        return sorted(newest_first, key=lambda slot: (self._pool.is_away(slot, now), slot.executor.is_registered))
