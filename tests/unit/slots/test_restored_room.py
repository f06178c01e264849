"""What of an earlier life has room in the next one: it does not depend on the order in which the record lists it."""

from __future__ import annotations

import itertools

import pytest

from emberkeep.base.ids import AllocationId, ExecutorId, JobId
from emberkeep.slots.model import Allocation, ResourceProfile
from emberkeep.slots.table.driver_places import DriverState
from emberkeep.slots.table.invariants import check
from emberkeep.slots.table.record import DriverRecord, SlotRecord, TableRecord, restore_table
from emberkeep.slots.table.slot import SlotState
from emberkeep.slots.table.state import TableLimits

pytestmark = [pytest.mark.req("LOC-11"), pytest.mark.req("SAFE-17")]

ONE = ResourceProfile(cores=1, memory_mb=1_000)


def limits(*, slots: int, memory_mb: int = 10_000, driver_places: int = 2) -> TableLimits:
    total = ResourceProfile(cores=10, memory_mb=memory_mb)
    return TableLimits(slots, driver_places, total, 10.0, 10.0, 10.0, 100.0)


def slot(name: str, index: int, state: SlotState) -> SlotRecord:
    with_executor = state not in (SlotState.OFFERED, SlotState.ACTIVE)
    allocation = Allocation(
        id=AllocationId(name), slot_index=index, job_id=JobId(name), attempt=1, profile=ONE, job_master="x:1"
    )
    return SlotRecord(allocation=allocation, state=state, executor_id=ExecutorId(name) if with_executor else None)


def driver(name: str, stop_grace: float | None = None) -> DriverRecord:
    return DriverRecord(
        job_id=JobId(name), attempt=1, memory_mb=1_000, state=DriverState.RUNNING, stop_grace=stop_grace
    )


IDLE = [
    slot("leaving", 0, SlotState.RELEASING),
    slot("empty", 1, SlotState.OFFERED),
    slot("ended", 2, SlotState.EXITED),
    slot("works", 3, SlotState.RUNNING),
    slot("starts", 4, SlotState.STARTING),
]


@pytest.mark.parametrize("room", [{"slots": 2}, {"slots": 5, "memory_mb": 2_000}], ids=["fewer slots", "less memory"])
def test_executors_keep_their_slots_before_those_without(room: dict[str, int]) -> None:
    for slots in itertools.permutations(IDLE):
        table = restore_table(limits(**room), TableRecord(slots=slots), 0.0)
        assert set(table.slots) == {"works", "starts"}
        check(table)


def test_a_slot_whose_number_is_too_high_takes_one_that_is_free() -> None:
    slots = (slot("first", 0, SlotState.RUNNING), slot("last", 3, SlotState.RUNNING))
    table = restore_table(limits(slots=2), TableRecord(slots=slots), 0.0)
    assert {key: held.allocation.slot_index for key, held in table.slots.items()} == {"first": 0, "last": 1}
    check(table)


def test_slots_keep_their_numbers_where_there_is_room_for_all() -> None:
    for slots in itertools.permutations(IDLE):
        table = restore_table(limits(slots=5), TableRecord(slots=slots), 0.0)
        assert {key: held.allocation.slot_index for key, held in table.slots.items()} == {
            each.allocation.id: each.allocation.slot_index for each in IDLE
        }


def test_a_driver_that_is_to_end_takes_no_place_from_one_that_works() -> None:
    for drivers in itertools.permutations([driver("ends", 5.0), driver("works")]):
        table = restore_table(limits(slots=1, driver_places=1), TableRecord(drivers=drivers), 0.0)
        assert [each.job_id for each in table.drivers.living()] == ["works"]
        check(table)
