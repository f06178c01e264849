"""The addresses that a task manager hands out with its slots."""

from __future__ import annotations

import msgspec
import pytest

from emberkeep.base.errors import Conflict
from emberkeep.base.ids import AllocationId, ExecutorId, JobId
from emberkeep.slots.custom.addresses import ResourceAddresses, amounts_of
from emberkeep.slots.custom.amounts import amounts
from emberkeep.slots.model import ResourceProfile
from emberkeep.slots.table.events import (
    EndExecutor,
    ExecutorEnded,
    ExecutorStarted,
    OfferAnswered,
    ReserveDriver,
    ReserveSlot,
    SlotReleased,
    StartWanted,
)
from emberkeep.slots.table.machine import SlotTable
from emberkeep.slots.table.record import TableRecord, record_table, restore_table
from emberkeep.slots.table.state import TableLimits, TableState
from tests.property.slots.test_slot_table import LIMITS

pytestmark = pytest.mark.req("RES-1")

JOB, A, B, C = JobId("1" * 32), AllocationId("a" * 32), AllocationId("b" * 32), AllocationId("c" * 32)
ONE_GPU = ResourceProfile(cores=1, memory_mb=100, custom=amounts({"gpu": 1}))


def limits(*addresses: str) -> TableLimits:
    offered = (ResourceAddresses(name="gpu", addresses=addresses),)
    total = msgspec.structs.replace(LIMITS.total, custom=amounts_of(offered))
    return LIMITS._replace(total=total, addresses=offered)


def reserve(table: SlotTable, allocation_id: AllocationId) -> None:
    table.handle(ReserveSlot(allocation_id, JOB, 1, ONE_GPU, "jm:1"), 0.0)
    table.check_invariants()


def start(table: SlotTable, allocation_id: AllocationId) -> None:
    table.handle(OfferAnswered((allocation_id,), (allocation_id,)), 0.0)
    executor = ExecutorId(allocation_id[0])
    table.handle(StartWanted(JOB, 1, allocation_id, executor), 0.0)
    table.handle(ExecutorStarted(allocation_id, executor, 7), 0.0)


def held(table: SlotTable) -> dict[AllocationId, tuple[str, ...]]:
    return {
        key: tuple(address for each in slot.allocation.addresses for address in each.addresses)
        for key, slot in table.state.slots.items()
    }


def test_each_slot_has_addresses_of_its_own_and_the_last_is_refused() -> None:
    table = SlotTable(TableState(limits("0", "1")))
    reserve(table, A)
    reserve(table, B)
    assert held(table) == {A: ("0",), B: ("1",)}
    with pytest.raises(Conflict, match="1 core, 100 MiB and 1 gpu does not fit in what is free"):
        reserve(table, C)


def test_addresses_come_back_when_the_executor_has_ended_and_no_earlier() -> None:
    table = SlotTable(TableState(limits("0")))
    reserve(table, A)
    start(table, A)
    assert isinstance(table.handle(SlotReleased(JOB, 1, A), 0.0)[0], EndExecutor)
    with pytest.raises(Conflict, match="does not fit"):
        reserve(table, B)
    table.handle(ExecutorEnded(A, ExecutorId("a"), -9, ""), 0.0)
    reserve(table, B)
    assert held(table) == {B: ("0",)}


def test_the_next_process_of_the_task_manager_keeps_the_addresses() -> None:
    table = SlotTable(TableState(limits("0", "1")))
    reserve(table, A)
    reserve(table, B)
    start(table, B)
    table.handle(OfferAnswered((A,), ()), 0.0)
    record = msgspec.json.decode(msgspec.json.encode(record_table(table.state)), type=TableRecord)
    # Its discovery script prints the addresses in another order, and one other.
    table = SlotTable(restore_table(limits("1", "2"), record, 0.0))
    assert held(table) == {B: ("1",)}
    reserve(table, C)
    assert held(table) == {B: ("1",), C: ("2",)}


def test_a_slot_without_room_for_its_addresses_is_dropped() -> None:
    table = SlotTable(TableState(limits("0")))
    reserve(table, A)
    assert not restore_table(limits(), record_table(table.state), 0.0).slots


def test_the_addresses_of_all_drivers_are_taken() -> None:
    table = SlotTable(TableState(limits("0", "1")))
    for number in (1, 2):
        table.handle(ReserveDriver(JobId(str(number) * 32), 1, 100, ONE_GPU.custom), 0.0)
    assert table.state.free.custom == ()
    with pytest.raises(Conflict, match="does not fit in what is free"):
        reserve(table, A)
