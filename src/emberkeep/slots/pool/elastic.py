"""Follows Spark's dynamic allocation: how many executors the application requires changes while it runs.

Spark alone chooses which executors end, because it knows what they run and keep. It removes idle executors only, and
lowers the number first. So for a while more slots are held than required. They stay until Spark decommissions their
executors, which then end by themselves, or kills them: then the slot is given back here. Neither is a failure, and
nothing replaces them beyond what is required.

Spark cannot name an executor that has not registered. If it is no longer required, it is cancelled after the idle
timeout, as on Kubernetes: between two stages the required number falls to the minimum, often for less than a second.
"""

from __future__ import annotations

import msgspec

from emberkeep.slots.pool.events import ExecutorsDemanded, PoolEffect, StatusChanged
from emberkeep.slots.pool.held_slot import DepartureState
from emberkeep.slots.pool.slot_end import SlotEnd
from emberkeep.slots.pool.state import PoolState


class Elastic:
    """Takes what dynamic allocation wants. Part of the SlotPool."""

    def __init__(self, pool: PoolState, slot_end: SlotEnd) -> None:
        self._pool = pool
        self._slot_end = slot_end

    def demanded(self, event: ExecutorsDemanded, _: float) -> list[PoolEffect]:
        pool = self._pool
        if not pool.is_elastic or pool.requirement is None or pool.stopping or pool.failed:
            return []
        if event.others:
            return pool.fail(
                f"the script wants {event.others} executors with a resource profile of their own, and all executors of "
                "a job have one size here: set spark.executor.cores and spark.executor.memory instead of a "
                "ResourceProfile"
            )
        effects: list[PoolEffect] = []
        if event.count != pool.requirement.count:
            pool.requirement = msgspec.structs.replace(pool.requirement, count=event.count)
            effects.append(StatusChanged())
        for slot in list(pool.held.values()):
            if slot.executor.id in event.killed:
                reason = f"executor {slot.executor.id} was dismissed by Spark"
                effects += self._slot_end.remove(slot, reason, orderly=True)
            elif slot.executor.id in event.decommissioned and slot.stays and not slot.executor.cordoned:
                slot.departure = DepartureState.DISMISSED
                effects.append(StatusChanged())
        return effects

    def review(self, now: float) -> list[PoolEffect]:
        """Cancel executors that have not registered, if they have not been required for the idle timeout."""
        pool = self._pool
        surplus = pool.staying - pool.wanted
        if pool.idle_timeout is None or pool.stopping or surplus <= 0:
            pool.surplus_since = None
            return []
        if pool.surplus_since is None:
            pool.surplus_since = now
        if now - pool.surplus_since < pool.idle_timeout:
            return []
        waiting = [slot for slot in pool.held.values() if slot.stays and not slot.executor.is_registered]
        effects: list[PoolEffect] = []
        for slot in waiting[-surplus:]:  # the newest ones
            reason = f"executor {slot.executor.id} is no longer wanted, and has not registered"
            effects += self._slot_end.remove(slot, reason, orderly=True)
        return effects
