"""Drops slots whose task manager is lost, or is silent while Spark does not vouch for the slot's executor."""

from __future__ import annotations

from emberkeep.slots.pool.events import PoolEffect, TaskManagerLost
from emberkeep.slots.pool.slot_end import SlotEnd
from emberkeep.slots.pool.state import PoolState


class Silence:
    """Drops slots of lost task managers, and of silent ones if nothing shows that the executor is alive.

    Part of the SlotPool.
    """

    def __init__(self, pool: PoolState, slot_end: SlotEnd) -> None:
        self._pool = pool
        self._slot_end = slot_end

    def task_manager_lost(self, event: TaskManagerLost, _: float) -> list[PoolEffect]:
        effects: list[PoolEffect] = []
        for allocation_id in self._pool.on_task_manager(event.instance):
            effects += self._slot_end.abandon(self._pool.held[allocation_id], event.reason)
        return effects

    def review(self, now: float) -> list[PoolEffect]:
        """Drop slots of silent task managers if Spark does not vouch for them, or after the orphan timeout."""
        pool = self._pool
        effects: list[PoolEffect] = []
        for slot in [slot for slot in pool.held.values() if pool.is_away(slot, now)]:
            silence = pool.lives.silence(slot.task_manager.instance, now)
            if not slot.executor.is_alive or silence > pool.limits.orphan_timeout:
                effects += self._slot_end.abandon(slot, f"its task manager has been silent for {silence:.0f} s")
        return effects
