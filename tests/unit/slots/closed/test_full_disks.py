"""Task managers whose disk is full: they get nothing new until there is room again, and it is said."""

from __future__ import annotations

import pytest

from emberkeep.base.ids import TaskManagerId
from tests.unit.slots.closed.test_blocked import Places
from tests.unit.slots.test_slot_manager import PATIENCE, Rig

pytestmark = pytest.mark.req("BLK-19")

TM_1, TM_2 = TaskManagerId("tm-1"), TaskManagerId("tm-2")
LEAST, DISK = 200, 100_000  # MiB


@pytest.fixture
def rig() -> Rig:
    return Rig(min_free_disk_mb=LEAST)


def fill(rig: Rig, task_manager: TaskManagerId = TM_1, free_mb: int = LEAST - 1) -> bool:
    return rig.slots.restrictions.take_disk(task_manager, free_mb, DISK)


def test_nothing_new_is_placed_on_a_full_disk_until_it_has_room(rig: Rig) -> None:
    for name in ("tm-1", "tm-2"):
        rig.add(name)
    assert fill(rig)
    job_id = rig.job(6)
    assert {allotted.info.id for allotted in rig.match()} == {TM_2}
    reason = "2 of 6 slots (1 core and 1024 MiB each) are missing: all 4 slots are taken (4 more on full disks)"
    assert rig.slots.missing(job_id) == reason
    for number in range(3):
        rig.ask(rig.job(), 512)
        assert set(rig.places().values()) == ({TM_2} if number < 2 else set())
    assert fill(rig, free_mb=DISK)
    assert {allotted.info.id for allotted in rig.match()} == {TM_1}
    assert rig.slots.missing(job_id) == ""


def test_who_misses_something_waits_for_room_on_a_disk(rig: Rig) -> None:
    rig.add("tm-1")
    job_id, driver = rig.job(1), rig.job()
    rig.ask(driver, 512)
    fill(rig)
    assert rig.match() == []
    assert rig.slots.waits_for_blocked(job_id)
    assert rig.slots.waits_for_blocked(driver)
    assert rig.slots.supply().standing[0].blocked, "it does not count as supply: another one may be started"


def test_a_full_disk_must_have_clearly_more_room_before_it_is_used_again(rig: Rig) -> None:
    rig.add("tm-1")
    assert not fill(rig, free_mb=LEAST)
    assert fill(rig, free_mb=LEAST - 1)
    assert not fill(rig, free_mb=LEAST - 2), "nothing new"
    assert not fill(rig, free_mb=LEAST + 1)
    rig.job(1)
    assert rig.match() == []
    assert fill(rig, free_mb=LEAST + LEAST // 4)
    assert len(rig.match()) == 1


def test_of_a_small_disk_a_twentieth_must_be_free_and_of_an_unknown_one_nothing(rig: Rig) -> None:
    rig.add("tm-1")
    take = rig.slots.restrictions.take_disk
    assert not take(TM_1, 50, 1000)
    assert take(TM_1, 49, 1000)
    assert take(TM_1, 0, 0), "not known to be full any more"


def test_without_a_limit_no_disk_is_full() -> None:
    rig = Rig()
    rig.add("tm-1")
    assert not fill(rig, free_mb=0)


def test_what_was_placed_before_stays(rig: Rig) -> None:
    rig.add("tm-1")
    job_id = rig.job(2)
    (first, _) = rig.match()
    fill(rig)
    assert rig.slots.is_pending(first.allocation.id)
    rig.slots.check_invariants()
    assert rig.slots.missing(job_id) == ""


def test_it_is_said_what_closes_the_last_slots(rig: Rig) -> None:
    rig.add("tm-1", slots=1, driver_places=1)
    job_id = rig.job(1)
    fill(rig)
    assert rig.match() == []
    assert rig.slots.missing(job_id).endswith("is missing: the only slot is on a node whose disk is full")
    rig.add("tm-2", slots=3, driver_places=1)
    fill(rig, TM_2)
    assert rig.match() == []
    assert rig.slots.missing(job_id).endswith("all 4 slots are on nodes whose disk is full")
    rig.slots.restrictions.block(Places("tm-2"))
    assert rig.match() == []
    assert rig.slots.missing(job_id).endswith("all slots are on nodes that are blocked (3) or whose disk is full (1)")
    waiting = rig.job()
    rig.ask(waiting, 512)
    assert rig.places() == {}
    assert rig.slots.missing(waiting).endswith(
        "all driver places are on nodes that are blocked (1) or whose disk is full (1)"
    )


def test_a_task_manager_that_comes_back_is_as_full_as_it_says_then(rig: Rig) -> None:
    rig.add("tm-1")
    fill(rig)
    rig.slots.expire(100.0, 100.0)
    rig.add("tm-1", instance="tm-1/2")
    assert not fill(rig, free_mb=DISK), "its disk was emptied meanwhile"
    rig.job(1)
    assert len(rig.match()) == 1


def test_no_driver_that_waits_for_long_claims_a_full_disk() -> None:
    rig = Rig(min_free_disk_mb=LEAST)
    rig.add("tm-1", driver_places=1)
    holder, waiting = rig.job(), rig.job()
    rig.ask(holder, 512)
    assert rig.places() == {holder: TM_1}
    rig.ask(waiting, 512)
    (member,) = rig.slots.task_managers.all()
    rig.slots.task_managers.take_heartbeat(TM_1, member.info.instance, 1, PATIENCE)
    assert rig.places(PATIENCE) == {}
    assert member.claimed_by == waiting
    fill(rig)
    rig.slots.jobs.withdraw_place(holder)
    rig.ask(rig.job(), 1_000_000)  # makes a round due
    assert rig.places(PATIENCE) == {}
    fill(rig, free_mb=DISK)
    assert rig.places(PATIENCE) == {waiting: TM_1}
