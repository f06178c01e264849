"""The invariants of a slot pool, which hold between any two events."""

from __future__ import annotations

from emberkeep.slots.pool.held_slot import HeldSlot
from emberkeep.slots.pool.state import PoolState


def check(pool: PoolState) -> None:
    """Raise AssertionError naming the broken invariant."""
    executors = [slot.executor.id for slot in pool.held.values()]
    _hold(len(executors) == len(set(executors)), "one executor lives in two slots")
    _hold(not (pool.held.keys() & pool.releasing.keys()), "a slot is held and being released")
    pauses = pool.replacements.pauses
    _hold(pool.is_elastic or pool.staying <= pool.wanted, "more is held than required")
    _hold(len(pauses) <= max(0, pool.wanted - pool.staying), "more is about to be wanted than required")
    _hold(pool.is_elastic or not any(slot.is_dismissed for slot in pool.held.values()), "dismissed, but none may be")
    _hold(pool.requirement is not None or not pauses, "a pause without an application")
    instances = {slot.task_manager.instance for slot in pool.held.values()}
    _hold(instances == set(pool.lives.views), "task managers watched are not those that hold slots")
    for key, slot in pool.held.items():
        _hold(key == slot.allocation.id, "a slot stands under another allocation's id")
        _check_slot(pool, slot)


def _check_slot(pool: PoolState, slot: HeldSlot) -> None:
    fits = pool.requirement is not None and slot.allocation.profile == pool.requirement.profile
    _hold(fits, f"a slot of the wrong size is held: {slot}")
    _hold(not pool.must_leave(slot), f"a slot is held where the blocklist allows none: {slot}")
    closed = pool.places.is_closed(slot.task_manager)
    lacks_space = slot.executor.lacks_space
    _hold(closed or lacks_space or not slot.is_outgoing, f"a slot is outgoing where nothing is blocked: {slot}")
    _hold(not (lacks_space and slot.stays), f"a slot stays whose executor has no disk space: {slot}")
    _hold(not slot.stays or not closed, f"a slot stays on a blocked place: {slot}")


def _hold(condition: bool, what: str) -> None:
    if not condition:
        raise AssertionError(what)
