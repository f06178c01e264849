"""Drivers with custom resources: placed where these are free, and alone with their addresses."""

from __future__ import annotations

import msgspec
import pytest

from emberkeep.base.errors import Conflict
from emberkeep.base.ids import AllocationId, JobId
from emberkeep.slots.custom.amounts import amounts
from emberkeep.slots.ledger import DriverNeed, DriverUse
from emberkeep.slots.model import ResourceProfile
from emberkeep.slots.table.driver_places import DriverState
from emberkeep.slots.table.events import DriverEnded, DriverStarted, ReserveDriver, ReserveSlot
from emberkeep.slots.table.machine import SlotTable
from emberkeep.slots.table.record import TableRecord, record_table, restore_table
from emberkeep.slots.table.state import TableState
from tests.unit.slots.custom.test_held_addresses import limits
from tests.unit.slots.test_slot_manager import PATIENCE, Rig

pytestmark = pytest.mark.req("RES-1")

GPU = amounts({"gpu": 1})
NEED = DriverNeed(512, "", custom=GPU)
JOB, OTHER, SLOT = JobId("1" * 32), JobId("2" * 32), AllocationId("a" * 32)
ONE_GPU = ResourceProfile(cores=4, memory_mb=8192, custom=GPU)
WITH_GPU = ResourceProfile(cores=1, memory_mb=100, custom=GPU)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def ask(rig: Rig, job_id: JobId, need: DriverNeed = NEED) -> None:
    rig.slots.jobs.request_place(job_id, need, 2, 0.0)


def test_a_driver_goes_where_its_resource_is_free_and_takes_it(rig: Rig) -> None:
    rig.add("tm-1", total=ResourceProfile(cores=4, memory_mb=16_000))
    registered = rig.add("tm-2", total=ONE_GPU)
    first, second = rig.job(), rig.job()
    ask(rig, first)
    assert rig.places() == {first: "tm-2"}
    ask(rig, second)
    assert not rig.places(), "the place is reserved"
    rig.slots.jobs.begin_attempt(first, 2, 0.0)
    rig.report(registered, drivers=(DriverUse(first, 2, 512, live=True, custom=GPU),))
    assert not rig.places(), "the driver runs"
    assert rig.slots.missing(second) == (
        "no place for the driver (512 MiB and 1 gpu): 3 of 4 driver places are free, but none on a task manager with "
        "enough free memory and 1 gpu free"
    )
    rig.report(registered, drivers=(DriverUse(first, 2, 0, live=False),))
    assert rig.places() == {second: "tm-2"}


def test_a_slot_does_not_get_what_a_driver_has(rig: Rig) -> None:
    rig.add("tm-1", total=ONE_GPU)
    job_id = rig.job(1, WITH_GPU)
    ask(rig, rig.job())
    assert rig.places()
    assert not rig.match()
    assert "no task manager has 1 core, 100 MiB and 1 gpu free" in rig.slots.missing(job_id)


def test_slots_leave_free_what_a_driver_needs_that_has_waited_for_long(rig: Rig) -> None:
    two = amounts({"gpu": 2})
    registered = rig.add("tm-1", total=ResourceProfile(cores=4, memory_mb=8192, custom=two))
    holder = rig.job(2, WITH_GPU)
    slots = [allotted.allocation for allotted in rig.match()]
    rig.report(registered, *slots)
    waiting = rig.job()
    ask(rig, waiting, DriverNeed(512, "", custom=two))
    rig.report(registered, *slots, now=PATIENCE)
    assert not rig.places(PATIENCE)
    other = rig.job(1, WITH_GPU)
    rig.slots.jobs.close_requirements(holder, 1, 0.0)
    rig.report(registered, slots[0], now=PATIENCE)
    assert not rig.match(PATIENCE), "the first GPU stays free"
    rig.report(registered, now=PATIENCE)
    assert rig.places(PATIENCE) == {waiting: "tm-1"}
    assert "no task manager has 1 core, 100 MiB and 1 gpu free" in rig.slots.missing(other)


def test_what_comes_back_with_the_driver_place_that_is_waited_for_may_be_given_to_slots(rig: Rig) -> None:
    two = amounts({"gpu": 2})
    registered = rig.add("tm-1", driver_places=1, total=ResourceProfile(cores=4, memory_mb=8192, custom=two))
    running = rig.job()
    ask(rig, running)
    assert rig.places()
    rig.slots.jobs.begin_attempt(running, 2, 0.0)
    driver = DriverUse(running, 2, 512, live=True, custom=GPU)
    rig.report(registered, drivers=(driver,))
    waiting = rig.job()
    ask(rig, waiting)
    rig.report(registered, drivers=(driver,), now=PATIENCE)
    assert not rig.places(PATIENCE)
    other = rig.job(1, WITH_GPU)
    slots = [allotted.allocation for allotted in rig.match(PATIENCE)]
    assert [each.job_id for each in slots] == [other], "the driver that ends gives back as much as the next one needs"
    rig.report(registered, *slots, drivers=(DriverUse(running, 2, 0, live=False),), now=PATIENCE)
    rig.slots.jobs.end_attempt(running, 2, PATIENCE)
    assert rig.places(PATIENCE) == {waiting: "tm-1"}


def test_what_no_task_manager_offers_is_an_obstacle(rig: Rig) -> None:
    rig.add("tm-1", total=ONE_GPU)
    assert rig.slots.obstacle(DriverNeed(512, "", custom=amounts({"gpu": 2})), None) == (
        "no task manager that is large enough for the driver (512 MiB and 2 gpu) offers 2 gpu "
        "(taskmanager.resources.*; offered: 1 gpu)"
    )
    assert rig.slots.obstacle(NEED, WITH_GPU) == (
        "the driver and one executor together need 2 gpu, but the only task manager that is large enough for either "
        "offers 1 gpu"
    )
    assert not rig.slots.obstacle(NEED, ResourceProfile(cores=1, memory_mb=100))


def test_the_table_gives_a_driver_addresses_until_it_has_ended() -> None:
    table = SlotTable(TableState(limits("0")))
    table.handle(ReserveDriver(JOB, 1, 100, GPU), 0.0)
    table.check_invariants()
    (driver,) = table.state.drivers.living()
    assert [each.addresses for each in driver.addresses] == [("0",)]
    with pytest.raises(Conflict, match="a driver with 1 gpu does not fit"):
        table.handle(ReserveDriver(OTHER, 1, 100, GPU), 0.0)
    with pytest.raises(Conflict, match="does not fit"):
        table.handle(ReserveSlot(SLOT, OTHER, 1, WITH_GPU, "jm:1"), 0.0)
    table.handle(DriverStarted(JOB, 1, 7), 0.0)
    table.handle(DriverEnded(JOB, 1), 0.0)
    table.handle(ReserveSlot(SLOT, OTHER, 1, WITH_GPU, "jm:1"), 0.0)
    table.check_invariants()


@pytest.mark.parametrize(("offered", "state"), [(("0",), DriverState.STARTING), ((), DriverState.EXITED)])
def test_the_next_process_of_the_task_manager_keeps_them_if_it_has_them(
    offered: tuple[str, ...], state: DriverState
) -> None:
    table = SlotTable(TableState(limits("0")))
    table.handle(ReserveDriver(JOB, 1, 100, GPU), 0.0)
    record = msgspec.json.decode(msgspec.json.encode(record_table(table.state)), type=TableRecord)
    (driver,) = restore_table(limits(*offered), record, 0.0).drivers.by_attempt.values()
    assert driver.state is state
    assert bool(driver.addresses) == bool(offered)
