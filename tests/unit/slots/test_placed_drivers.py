"""Where drivers are placed, and how it is said that there is no place for one."""

from __future__ import annotations

from typing import Any

import pytest

from emberkeep.base.ids import JobId, TaskManagerId
from emberkeep.slots.ledger import DriverNeed, DriverUse
from emberkeep.slots.model import ResourceProfile, SlotRequirement
from tests.unit.slots.test_slot_manager import RUNTIME, SMALL, Rig


def memory(memory_mb: int) -> dict[str, Any]:
    return {"total": ResourceProfile(cores=4, memory_mb=memory_mb)}


@pytest.fixture
def rig() -> Rig:
    return Rig()


def granted(rig: Rig, memory_mb: int = 1024, *shunned: str) -> tuple[str, bool]:
    """Where a new job's driver is placed, and if no task manager on another node could have hosted it."""
    job_id = rig.job()
    rig.slots.jobs.request_place(job_id, DriverNeed(memory_mb, "", frozenset(shunned)), 2, 0.0)
    (place,) = rig.slots.match(0.0, lambda: next(rig.ids)).places
    assert place.job_id == job_id
    return place.info.id, place.only_node


def test_a_driver_that_could_not_be_started_goes_to_the_freest_task_manager_on_another_node(rig: Rig) -> None:
    rig.add("tm-1", **memory(9000))
    rig.add("tm-2", **memory(6000))
    rig.add("tm-3", **memory(5000))
    assert granted(rig, 1024, "tm-1") == ("tm-2", False)
    assert granted(rig, 1024, "tm-1", "tm-2") == ("tm-3", False)
    assert granted(rig, 5500, "tm-1", "tm-2") == ("tm-1", False), "no other node has room, and tm-2 could have"


def test_a_driver_that_could_not_be_started_returns_to_the_only_node_that_could_host_it(rig: Rig) -> None:
    rig.add("tm-1", **memory(9000))
    rig.add("tm-2", node_id="tm-1")
    rig.add("tm-3", **memory(1000))
    rig.add("tm-4", driver_places=0)
    assert granted(rig, 1024, "tm-1") == ("tm-1", True)


def test_a_task_manager_that_is_about_to_stop_is_no_other_node(rig: Rig) -> None:
    rig.add("tm-1", **memory(9000))
    rig.add("tm-2")
    rig.slots.restrictions.take_leaving(TaskManagerId("tm-2"), drains=False)
    assert granted(rig, 1024, "tm-1") == ("tm-1", True)


def test_the_freest_task_manager_is_found_again_after_each_placement(rig: Rig) -> None:
    rig.add("tm-1", **memory(5000), driver_places=4)
    rig.add("tm-2", **memory(4500), driver_places=4)
    assert [granted(rig, 1000)[0] for _ in range(4)] == ["tm-1", "tm-2", "tm-1", "tm-2"]


def test_a_warm_driver_is_worth_more_than_room(rig: Rig) -> None:
    rig.add("tm-1", **memory(20_000), driver_places=4)
    warm = rig.add("tm-2", **memory(5000), driver_places=4)
    rig.report(warm, standby_drivers=2)
    assert granted(rig, 6000)[0] == "tm-1", "the driver does not fit beside the warm ones"
    assert [granted(rig, 1000)[0] for _ in range(3)] == ["tm-2", "tm-2", "tm-1"], "each driver takes a warm one"
    rig.report(warm, standby_drivers=3)
    assert granted(rig, 1000)[0] == "tm-2"
    rig.report(warm, standby_drivers=0)
    assert granted(rig, 1000)[0] == "tm-1"


def test_the_freest_of_the_task_managers_with_warm_drivers_is_chosen(rig: Rig) -> None:
    for name, size in (("tm-1", 5000), ("tm-2", 6000)):
        rig.report(rig.add(name, **memory(size), driver_places=4), standby_drivers=1)
    assert [granted(rig, 100)[0] for _ in range(2)] == ["tm-2", "tm-1"]


@pytest.mark.parametrize(
    ("task_managers", "reason"),
    [
        ({}, "no task manager is registered"),
        ({"tm-1": {"driver_places": 1}}, "the only driver place is taken"),
        ({"tm-1": {"driver_places": 2}}, "all 2 driver places are taken"),
        ({"tm-1": memory(900)}, "no task manager is large enough: the largest has 4 cores and 900 MiB"),
    ],
)
def test_why_there_is_no_place_for_a_driver(rig: Rig, task_managers: dict[str, dict[str, Any]], reason: str) -> None:
    for name, changes in task_managers.items():
        registered = rig.add(name, **changes)
        places = registered.driver_places
        if registered.total.memory_mb > 1000:
            rig.report(registered, drivers=tuple(DriverUse(JobId(f"x{n}"), 1, 600, live=True) for n in range(places)))
    waiting = rig.job()
    rig.ask(waiting, 1024)
    assert rig.places() == {}
    assert rig.slots.missing(waiting) == f"no place for the driver (1024 MiB): {reason}"


def test_free_driver_places_without_enough_memory_are_named(rig: Rig) -> None:
    registered = rig.add("tm-1", driver_places=3, **memory(2000))
    rig.report(registered, drivers=(DriverUse(JobId("x"), 1, 1500, live=True),))
    waiting = rig.job()
    rig.ask(waiting, 1024)
    assert rig.places() == {}
    assert rig.slots.missing(waiting).endswith(
        "2 of 3 driver places are free, but none on a task manager with enough free memory"
    )


def test_the_next_attempt_of_a_job_gets_slots_after_the_one_before_was_over(rig: Rig) -> None:
    rig.add("tm-1")
    job_id = rig.job(1)
    rig.slots.jobs.end_attempt(job_id, 1, 0.0)
    assert rig.match() == []
    assert rig.slots.jobs.is_void(job_id, 1)
    rig.slots.jobs.begin_attempt(job_id, 2, 0.0)
    assert not rig.slots.jobs.is_void(job_id, 2)
    wanted = SlotRequirement(count=1, profile=SMALL, runtime=RUNTIME)
    rig.slots.jobs.require(job_id, 2, "jm:1", (wanted,), {})
    assert [allotted.allocation.attempt for allotted in rig.match()] == [2]
