"""Compares what a task manager lists in its reply to a heartbeat with what the attempt holds there."""

from __future__ import annotations

import msgspec

from emberkeep.slots.pool.events import BeatAnswered, FoundExecutor, PoolEffect
from emberkeep.slots.pool.executor_watch import ExecutorWatch
from emberkeep.slots.pool.held_slot import HeldSlot
from emberkeep.slots.pool.offers import Offers
from emberkeep.slots.pool.slot_end import SlotEnd
from emberkeep.slots.pool.state import PoolState


class BeatReplies:
    """Applies task managers' replies to heartbeats. Part of the SlotPool.

    The running instance of a task manager also replies for slots that were accepted from its earlier instances.
    """

    def __init__(self, pool: PoolState, slot_end: SlotEnd, offers: Offers, watch: ExecutorWatch) -> None:
        self._pool = pool
        self._slot_end = slot_end
        self._offers = offers
        self._watch = watch

    def beat_answered(self, event: BeatAnswered, now: float) -> list[PoolEffect]:
        lives = self._pool.lives
        if lives.is_over(event.instance, now):
            return []  # a late message
        lives.review_strays(event, self._pool.held)
        lives.heard_again(event.instance, now)
        found = {executor.allocation_id: executor for executor in event.executors}
        effects: list[PoolEffect] = []
        for allocation_id in event.asked:
            slot = self._pool.held.get(allocation_id)
            if slot is not None and slot.task_manager.id == event.task_manager:
                effects += self._compare(slot, event, found.get(allocation_id), now)
        return effects

    def _compare(
        self, slot: HeldSlot, event: BeatAnswered, executor: FoundExecutor | None, now: float
    ) -> list[PoolEffect]:
        same_instance = slot.task_manager.instance == event.instance
        if slot.allocation.id not in event.allocations:
            restarted = "" if same_instance else "was restarted and "
            return self._slot_end.drop(slot, f"its task manager {restarted}no longer holds the slot")
        if executor is None:
            return []  # it is being started, or another instance has the slot and will offer it
        if same_instance:
            return self._watch.found(executor, now)
        info = msgspec.structs.replace(slot.task_manager, instance=event.instance)
        return self._offers.bind_again(slot, info, executor, now)
