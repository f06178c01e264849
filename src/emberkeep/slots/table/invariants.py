"""The invariants of a slot table, which hold between any two events."""

from __future__ import annotations

from emberkeep.slots.custom.addresses import shared
from emberkeep.slots.table.slot import SlotState
from emberkeep.slots.table.state import TableState


def check(table: TableState) -> None:
    """Raise AssertionError naming the broken invariant."""
    indices = [slot.allocation.slot_index for slot in table.slots.values()]
    _hold(len(indices) == len(set(indices)), "two allocations stand on one slot index")
    _hold(all(0 <= index < table.limits.slots for index in indices), "a slot index is out of range")
    _hold(table.free.cores >= 0 and table.free.memory_mb >= 0, "more is given away than there is")
    _hold(all(each.amount > 0 for each in table.free.custom), "more custom resources are given away than there are")
    _hold(not shared(table.held_addresses), "two processes have one address of a custom resource")
    living = table.drivers.living()
    _hold(len(living) <= table.limits.driver_places, "more drivers than places")
    executors = [(*slot.attempt, slot.executor_id) for slot in table.slots.values() if slot.executor_id is not None]
    _hold(len(executors) == len(set(executors)), "one executor lives in two slots")
    for slot in table.slots.values():
        _hold(slot.state is not SlotState.OFFERED or slot.claim_until is not None, f"nobody waits for {slot}")
        _hold(slot.executor_id not in slot.former, f"an executor came back: {slot}")
        has_executor = slot.state not in (SlotState.OFFERED, SlotState.ACTIVE)
        _hold(has_executor == (slot.executor_id is not None), f"executor of {slot} does not fit its state")
        fenced = table.fences.is_refused(*slot.attempt)
        _hold(not fenced or slot.state is SlotState.RELEASING, f"a fenced attempt keeps {slot}")
    for driver in living:
        fenced = table.fences.is_refused(driver.job_id, driver.attempt)
        _hold(not fenced or driver.stop_grace is not None, f"a fenced driver continues: {driver}")


def _hold(condition: bool, what: str) -> None:
    if not condition:
        raise AssertionError(what)
