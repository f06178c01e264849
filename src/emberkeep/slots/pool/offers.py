"""Decides on the slots that task managers offer: new ones, and those that a restarted task manager has recovered."""

from __future__ import annotations

from emberkeep.base.ids import AllocationId
from emberkeep.slots.model import Allocation, TaskManagerInfo
from emberkeep.slots.pool.departures import Departures
from emberkeep.slots.pool.events import (
    AcceptOffer,
    FoundExecutor,
    PoolEffect,
    RemoveExecutor,
    SlotsOffered,
    StartExecutorIn,
    StatusChanged,
)
from emberkeep.slots.pool.held_slot import HeldExecutor, HeldSlot
from emberkeep.slots.pool.slot_end import SlotEnd
from emberkeep.slots.pool.state import PoolState


class Offers:
    """Accepts or refuses the slots that task managers offer. Part of the SlotPool."""

    def __init__(self, pool: PoolState, slot_end: SlotEnd, departures: Departures) -> None:
        self._pool = pool
        self._slot_end = slot_end
        self._departures = departures

    def slots_offered(self, event: SlotsOffered, now: float) -> list[PoolEffect]:
        pool, info = self._pool, event.task_manager
        if pool.lives.is_over(info.instance, now):
            return []  # a late message, unless it is repeated
        for instance in info.predecessors:
            pool.lives.end(instance, now)
        found = {executor.allocation_id: executor for executor in event.executors}
        accepted: list[AllocationId] = []
        later: list[AllocationId] = []
        effects: list[PoolEffect] = []
        for allocation in event.slots:
            held = pool.held.get(allocation.id)
            if held is not None:
                if held.task_manager.instance == info.instance:
                    accepted.append(allocation.id)  # the first reply was lost
                elif held.task_manager.id == info.id:
                    effects += self.bind_again(held, info, found.get(allocation.id), now)
                    accepted += [allocation.id] if allocation.id in pool.held else []
            elif pool.stopping or pool.requirement is None:
                later.append(allocation.id)  # the next application or attempt may need the state that is kept for it
            elif pool.places.is_closed(info) or not self._has_use_for(allocation, found.get(allocation.id)):
                continue
            elif pool.staying < pool.target:
                accepted.append(allocation.id)
                self._accept(allocation, info, now)
                effects.append(StartExecutorIn(allocation.id))
            elif pool.replacements.pauses:
                later.append(allocation.id)
        if effects:
            effects.append(StatusChanged())
        return [AcceptOffer(tuple(accepted), tuple(later)), *effects]

    def _has_use_for(self, allocation: Allocation, found: FoundExecutor | None) -> bool:
        """True if the slot may be held while slots are missing.

        A slot that this attempt has released is taken again only if its executor has provably ended. This is the case
        when its node comes back, with the job's local state, before another slot was found.
        """
        pool = self._pool
        fresh = found is None and allocation.id not in pool.given_up
        back = found is not None and found.state is None and allocation.id not in pool.releasing
        return pool.requirement is not None and allocation.profile == pool.requirement.profile and (fresh or back)

    def _accept(self, allocation: Allocation, info: TaskManagerInfo, now: float) -> None:
        self._pool.held[allocation.id] = HeldSlot(allocation, info, self._new_executor(now))
        self._pool.lives.heard(info, now)

    def _new_executor(self, now: float) -> HeldExecutor:
        return HeldExecutor(self._pool.new_executor_id(), unseen_since=now)

    def bind_again(
        self, slot: HeldSlot, info: TaskManagerInfo, found: FoundExecutor | None, now: float
    ) -> list[PoolEffect]:
        """Hold the slot on another instance of its task manager from now on.

        ``found``: the executor that this instance has in the slot; None if it has none.
        """
        pool, before = self._pool, slot.task_manager
        slot.task_manager = info
        pool.lives.heard(info, now)
        pool.lives.end(before.instance, now)
        self._slot_end.forget_instance(before.instance)
        if found is None or found.state is None:
            if pool.must_end(slot) or pool.places.is_closed(info):
                return self._slot_end.vacate(slot)  # no new executor may start there
            if pool.staying > pool.wanted:
                reason = f"executor {slot.executor.id} ended while its task manager {info.id} was away"
                return self._slot_end.remove(slot, f"{reason}, and needs no replacement", orderly=True)
            if found is None and not slot.executor.is_known_to_run:
                return self._start_again(slot, now)
            return self._start_replacement(slot, found, now)
        if found.executor_id == slot.executor.id:
            slot.executor.state, slot.executor.pid = found.state, found.pid
            return [*self._departures.obey(slot, now), *self._departures.welcome_back(now), StatusChanged()]
        reason = f"executor {found.executor_id} was found in the slot of executor {slot.executor.id} on {info.id}"
        return [
            *self._slot_end.give_back(slot),
            RemoveExecutor(found.executor_id, info.id, reason),
            RemoveExecutor(slot.executor.id, info.id, reason),
            StatusChanged(),
        ]

    def _start_again(self, slot: HeldSlot, now: float) -> list[PoolEffect]:
        """Request the start of the same executor again, because the first request did not reach its task manager.

        The first request may still arrive there. If this one named another executor, the first request would start an
        executor that this attempt does not know.
        """
        slot.executor.unseen_since = now
        return [StartExecutorIn(slot.allocation.id), StatusChanged()]

    def _start_replacement(self, slot: HeldSlot, found: FoundExecutor | None, now: float) -> list[PoolEffect]:
        """Start a new executor in the slot without a pause: the old one ended while its task manager was away."""
        known = found is not None and found.executor_id == slot.executor.id
        detail = f": {found.detail}" if found is not None and known and found.detail else ""
        reason = f"executor {slot.executor.id} ended while its task manager {slot.task_manager.id} was away{detail}"
        never_ran = not slot.executor.is_known_to_run and found is not None and not found.pid
        unseen = not slot.executor.is_registered and (not known or never_ran)  # it may never have started
        gone = RemoveExecutor(slot.executor.id, slot.task_manager.id, reason, orderly=unseen)
        slot.executor = self._new_executor(now)
        return [gone, StartExecutorIn(slot.allocation.id), StatusChanged()]
