"""Ends the attempt's hold on a slot: gives it back to its task manager, or forgets it because it is lost there."""

from __future__ import annotations

from emberkeep.base.bounded import remember
from emberkeep.base.ids import InstanceId
from emberkeep.slots.pool.events import PoolEffect, ReleaseSlotAt, RemoveExecutor, StatusChanged
from emberkeep.slots.pool.held_slot import HeldSlot
from emberkeep.slots.pool.state import PoolState

REMEMBERED = 10_000  # allocations remembered after they were given up


class SlotEnd:
    """The ways in which a held slot ends. Part of the SlotPool."""

    def __init__(self, pool: PoolState) -> None:
        self._pool = pool

    def give_back(self, slot: HeldSlot) -> list[PoolEffect]:
        self._forget(slot)
        # If the release never arrives, heartbeats show the task manager that the slot is no longer held. The task
        # manager frees nothing on its own while the driver runs on the same node.
        self._pool.lives.stray(slot.task_manager)
        self._pool.releasing[slot.allocation.id] = slot.task_manager.address
        return [ReleaseSlotAt(slot.allocation.id, slot.task_manager.address, stopped=self._pool.stopping)]

    def vacate(self, slot: HeldSlot) -> list[PoolEffect]:
        """Give back a slot on a closed place. Its executor has nothing to hand over."""
        reason = f"executor {slot.executor.id} leaves {slot.task_manager.id}, which takes nothing new"
        return self.remove(slot, reason, orderly=True)

    def executor_left(self, slot: HeldSlot, reason: str, *, orderly: bool) -> list[PoolEffect]:
        """Give back the slot of an executor that had to leave. This is not a failure, so no pause follows.

        The replacement of a leaving executor was requested already. An executor that ends with its application is not
        reported as lost.
        """
        where = f"{slot.executor.id}, leaving {slot.task_manager.id}," if slot.is_leaving else f"{slot.executor.id}"
        return self.remove(slot, f"executor {where} {reason}", orderly=orderly or self._pool.stopping)

    def remove(self, slot: HeldSlot, reason: str, *, orderly: bool) -> list[PoolEffect]:
        """Give back a slot and make Spark remove its executor. ``orderly``: see RemoveExecutor."""
        gone = RemoveExecutor(slot.executor.id, slot.task_manager.id, reason, orderly=orderly)
        return [*self.give_back(slot), gone, StatusChanged()]

    def drop(self, slot: HeldSlot, reason: str) -> list[PoolEffect]:
        """Forget a slot that was lost through no fault of its executor. Notify only Spark; no pause follows.

        Not reported as lost are an executor that had to end, and whose end nobody could report, and one that was never
        seen to run: the order to start it may have been lost with its task manager.
        """
        self._forget(slot)
        where = f"executor {slot.executor.id} on {slot.task_manager.id}"
        expected = self._pool.stopping or slot.is_dismissed or not slot.executor.is_known_to_run
        gone = RemoveExecutor(slot.executor.id, slot.task_manager.id, f"{where} is lost: {reason}", orderly=expected)
        return [gone, StatusChanged()]

    def abandon(self, slot: HeldSlot, reason: str) -> list[PoolEffect]:
        """Drop a slot that its task manager may still hold. The next heartbeat that arrives there frees it."""
        self._pool.lives.stray(slot.task_manager)
        return self.drop(slot, reason)

    def _forget(self, slot: HeldSlot) -> None:
        del self._pool.held[slot.allocation.id]
        remember(self._pool.given_up, slot.allocation.id, None, REMEMBERED)
        self.forget_instance(slot.task_manager.instance)

    def forget_instance(self, instance: InstanceId) -> None:
        """Stop watching an instance of a task manager on which slots are no longer held."""
        if not self._pool.on_task_manager(instance):
            self._pool.lives.forget(instance)
