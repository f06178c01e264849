"""Task managers that are closed to new work, for how long, and what closes them."""

from __future__ import annotations

import pytest

from emberkeep.base.ids import TaskManagerId
from emberkeep.slots.custom.amounts import amounts
from emberkeep.slots.ledger import DriverNeed, DriverUse, EndingState
from tests.unit.slots.test_slot_manager import RUNTIME, Rig, rig

__all__ = ["rig"]  # a fixture

TM_1, TM_2 = TaskManagerId("tm-1"), TaskManagerId("tm-2")


def test_a_retired_task_manager_gets_nothing_until_it_is_recalled(rig: Rig) -> None:
    rig.add("tm-1")
    assert rig.slots.restrictions.retire(TM_1)
    job_id = rig.job(1)
    assert rig.match() == []
    rig.slots.restrictions.recall(TM_1)
    assert [each.allocation.job_id for each in rig.match()] == [job_id]


def test_a_busy_or_unknown_task_manager_does_not_retire(rig: Rig) -> None:
    rig.add("tm-1")
    rig.job(1)
    assert len(rig.match()) == 1
    assert not rig.slots.restrictions.retire(TM_1)
    assert not rig.slots.restrictions.retire(TM_2)


@pytest.mark.parametrize("drains", [False, True])
def test_a_recall_does_not_bring_back_a_task_manager_that_reports_its_end(rig: Rig, drains: bool) -> None:
    rig.add("tm-1")
    assert rig.slots.restrictions.retire(TM_1)
    rig.slots.restrictions.take_leaving(TM_1, drains=drains)
    rig.slots.restrictions.recall(TM_1)
    rig.job(1)
    assert rig.match() == []
    (member,) = rig.slots.task_managers.all()
    assert member.ending is (EndingState.DRAINING if drains else EndingState.LEAVING)


def test_a_task_manager_that_leaves_may_begin_to_drain_later(rig: Rig) -> None:
    rig.add("tm-1")
    rig.slots.restrictions.take_leaving(TM_1, drains=False)
    assert rig.slots.restrictions.draining() == frozenset()
    rig.slots.restrictions.take_leaving(TM_1, drains=True)
    assert rig.slots.restrictions.draining() == {TM_1}


@pytest.mark.parametrize(("memory_mb", "movable"), [(8192, True), (8193, False)])
def test_a_driver_can_move_where_its_memory_is_free(rig: Rig, memory_mb: int, movable: bool) -> None:
    home = rig.add("tm-1")
    rig.add("tm-2")
    job_id = rig.job()
    rig.report(home, drivers=(DriverUse(job_id, 1, memory_mb, live=True),))
    assert rig.slots.restrictions.movable() == frozenset(), "its home does not drain"
    rig.slots.restrictions.take_leaving(TM_1, drains=True)
    assert rig.slots.restrictions.movable() == ({job_id} if movable else frozenset())


@pytest.mark.parametrize("own", [True, False])
def test_only_the_jobs_own_slots_make_room_for_its_driver(rig: Rig, own: bool) -> None:
    home, other = rig.add("tm-1"), rig.add("tm-2")
    job_id, stranger = rig.job(), rig.job()
    holder = job_id if own else stranger
    rig.slots.restrictions.take_leaving(TM_1, drains=True)
    rig.want(holder, 1)
    (slot,) = rig.match()
    assert slot.info == other
    rig.report(other, slot.allocation)
    rig.report(home, drivers=(DriverUse(job_id, 1, 8192, live=True),))
    assert rig.slots.restrictions.movable() == ({job_id} if own else frozenset())


def test_a_driver_that_has_ended_needs_no_room_and_does_not_move(rig: Rig) -> None:
    home = rig.add("tm-1")
    rig.add("tm-2")
    rig.report(home, drivers=(DriverUse(rig.job(), 1, 512, live=False),))
    rig.slots.restrictions.take_leaving(TM_1, drains=True)
    assert rig.slots.restrictions.movable() == frozenset()


@pytest.mark.req("BLK-21")
def test_a_draining_task_managers_drivers_without_room_elsewhere_are_asked_for(rig: Rig) -> None:
    home = rig.add("tm-1")
    job_id = rig.job()
    rig.report(home, drivers=(DriverUse(job_id, 1, 512, live=True), DriverUse(rig.job(), 1, 512, live=False)))
    assert (rig.slots.supply().demand.drivers, rig.slots.supply().moving) == ((), False)
    rig.slots.restrictions.take_leaving(TM_1, drains=True)
    assert [need.memory_mb for need in rig.slots.supply().demand.drivers] == [512]
    assert rig.slots.supply().moving
    rig.add("tm-2")
    assert (rig.slots.supply().demand.drivers, rig.slots.supply().moving) == ((), True), "there is room now"
    rig.report(home)
    assert not rig.slots.supply().moving


@pytest.mark.req("BLK-21")
@pytest.mark.req("RES-1")
def test_what_is_asked_for_a_driver_that_must_move_has_its_gpus(rig: Rig) -> None:
    home = rig.add("tm-1")
    gpu = amounts({"gpu": 1})
    rig.report(home, drivers=(DriverUse(rig.job(), 1, 512, live=True, custom=gpu),))
    rig.slots.restrictions.take_leaving(TM_1, drains=True)
    rig.add("tm-2")
    assert rig.slots.supply().demand.drivers == (DriverNeed(512, RUNTIME.python, custom=gpu),)
