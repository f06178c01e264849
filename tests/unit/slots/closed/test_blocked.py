"""What the slot manager gives when task managers are blocked, and what it says when nothing is left."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from emberkeep.base.ids import AllocationId, TaskManagerId
from emberkeep.slots.ledger import DriverNeed
from emberkeep.slots.model import SlotRequirement
from tests.unit.slots.test_slot_manager import PATIENCE, RUNTIME, SMALL, Rig, rig

__all__ = ["rig"]  # the fixture

pytestmark = pytest.mark.req("BLK-9")


class Places:
    """Nodes by name; a trailing "!" means evacuated."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def is_blocked(self, task_manager: TaskManagerId, node_id: str) -> bool:
        return node_id in self.names or self.is_evacuated(task_manager, node_id)

    def is_evacuated(self, task_manager: TaskManagerId, node_id: str) -> bool:
        return f"{node_id}!" in self.names

    def vacant(self, present: Iterable[tuple[TaskManagerId, str]]) -> tuple[str, ...]:
        nodes = {node_id for _, node_id in present}
        listed = (name.removesuffix("!") for name in self.names)
        return tuple(f"node {name}" for name in listed if name not in nodes)


def require(rig: Rig, job_id: str, count: int, held: dict[AllocationId, TaskManagerId]) -> None:
    wanted = (SlotRequirement(count=count, profile=SMALL, runtime=RUNTIME),)
    rig.slots.jobs.require(job_id, 1, "jm:1", wanted, held)  # type: ignore[arg-type]


def test_slots_and_places_go_elsewhere_until_it_is_given_back(rig: Rig) -> None:
    rig.slots.restrictions.block(Places("tm-1"))
    for name in ("tm-1", "tm-2"):
        rig.add(name)
    job_id = rig.job(6)
    assert {allotted.info.id for allotted in rig.match()} == {"tm-2"}
    reason = "2 of 6 slots (1 core and 1024 MiB each) are missing: all 4 slots are taken (4 more on blocked nodes)"
    assert rig.slots.missing(job_id) == reason
    for number in range(3):
        rig.ask(rig.job(), 512)
        assert set(rig.places().values()) == ({"tm-2"} if number < 2 else set())
    rig.slots.restrictions.block(Places())
    assert {allotted.info.id for allotted in rig.match()} == {"tm-1"}
    assert rig.slots.missing(job_id) == ""


def test_what_was_decided_and_is_not_there_yet_is_withdrawn(rig: Rig) -> None:
    first, _ = rig.add("tm-1"), rig.add("tm-2")
    job_id = rig.job(4)
    decided = {allotted.allocation: allotted.info.id for allotted in rig.match()}
    on_first = [allocation for allocation, where in decided.items() if where == "tm-1"]
    assert len(on_first) == 2
    rig.report(first, on_first[0])
    rig.slots.restrictions.block(Places("tm-1"))
    assert not rig.slots.is_pending(on_first[1].id)
    assert [allotted.info.id for allotted in rig.match()] == ["tm-2"], "the reported one stays, the other moves"
    assert rig.slots.missing(job_id) == ""


def test_all_blocked_is_said(rig: Rig) -> None:
    rig.slots.restrictions.block(Places("tm-1"))
    rig.add("tm-1", slots=1, driver_places=1)
    job_id = rig.job(1)
    assert not rig.match()
    assert rig.slots.missing(job_id).endswith("is missing: the only slot is on a blocked node")
    rig.ask(rig.job(), 512)
    rig.places()
    rig.slots.restrictions.block(Places("tm-1", "tm-2"))
    rig.add("tm-2", slots=1, driver_places=1)
    assert not rig.match()
    assert rig.slots.missing(job_id).endswith("all 2 slots are on blocked nodes")
    waiting = rig.job()
    rig.ask(waiting, 512)
    assert rig.places() == {}
    assert rig.slots.missing(waiting).endswith("all 2 driver places are on blocked nodes")
    assert rig.slots.obstacle(DriverNeed(512, ""), SMALL) == "", "it may run when they are given back"


def test_nobody_is_kept_free_on_a_blocked_task_manager(rig: Rig) -> None:
    rig.add("tm-1", slots=1, driver_places=1)
    holder, waiting = rig.job(), rig.job()
    rig.ask(holder, 512)
    assert rig.places() == {holder: "tm-1"}
    rig.ask(waiting, 512)
    rig.slots.task_managers.take_heartbeat(
        TaskManagerId("tm-1"), rig.slots.task_managers.all()[0].info.instance, 1, PATIENCE
    )
    assert rig.places(PATIENCE) == {}
    assert rig.slots.task_managers.all()[0].claimed_by == waiting
    rig.slots.restrictions.block(Places("tm-1"))
    rig.slots.check_invariants()
    assert rig.slots.task_managers.all()[0].claimed_by is None
    rig.slots.expire(PATIENCE)
    assert rig.places(PATIENCE) == {}
    assert rig.slots.task_managers.all()[0].claimed_by is None


def test_a_job_that_has_left_an_evacuated_task_manager_gets_others_before_that_one_says_so(rig: Rig) -> None:
    first = rig.add("tm-1")
    job_id = rig.job(2)
    slots = [allotted.allocation for allotted in rig.match()]
    rig.report(first, *slots)
    held = {slot.id: TaskManagerId("tm-1") for slot in slots}
    rig.add("tm-2")
    rig.slots.restrictions.block(Places("tm-1!"))
    require(rig, job_id, 2, held)
    assert not rig.match(), "it has not heard of it yet"
    require(rig, job_id, 2, {})
    assert [allotted.info.id for allotted in rig.match()] == ["tm-2", "tm-2"]
    rig.report(first, *slots)  # a report from before the slots were given back
    rig.report(first)
    assert not rig.match()
    assert rig.slots.missing(job_id) == ""


def test_who_misses_something_waits_also_for_blocked_nodes_whose_task_managers_are_gone(rig: Rig) -> None:
    waiting = rig.job()
    rig.ask(waiting, 512)
    assert rig.places() == {}
    assert not rig.slots.waits_for_blocked(waiting)
    rig.slots.restrictions.block(Places("tm-1"))
    first = rig.add("tm-1")
    rig.places()
    assert rig.slots.waits_for_blocked(waiting)
    assert "without a task manager" not in rig.slots.missing(waiting)

    rig.slots.task_managers.remove(first.id)
    rig.places()
    assert rig.slots.missing(waiting) == (
        "no place for the driver (512 MiB): no task manager is registered; "
        "blocked and without a task manager now: node tm-1"
    )
    assert rig.slots.waits_for_blocked(waiting)
    rig.slots.expire(10_000_000.0, None)
    rig.places()
    assert rig.slots.waits_for_blocked(waiting), "without a timeout for as long as it is blocked"
    rig.slots.restrictions.block(Places(*(f"node-{number}" for number in range(5))))
    assert rig.slots.missing(waiting).endswith("now: node node-0, node node-1, node node-2 and 2 more")
    rig.slots.restrictions.block(Places())
    assert not rig.slots.waits_for_blocked(waiting)


def test_a_block_of_a_node_that_is_gone_is_waited_for_no_longer_than_its_timeout() -> None:
    rig = Rig(vacant_timeout=100.0)
    waiting = rig.job()
    rig.ask(waiting, 512)
    rig.slots.restrictions.block(Places("gone"))
    rig.places()
    for now, waits in ((10.0, True), (109.0, True), (110.0, False)):
        rig.slots.expire(now, None)
        assert rig.slots.waits_for_blocked(waiting) is waits
    rig.places()
    assert rig.slots.missing(waiting).endswith("now: node gone"), "it is still named"
    rig.slots.restrictions.block(Places("gone", "new"))
    rig.slots.expire(120.0, None)
    assert rig.slots.waits_for_blocked(waiting), "for the other one"
    rig.slots.restrictions.block(Places())
    rig.slots.expire(130.0, None)
    rig.slots.restrictions.block(Places("gone"))
    rig.slots.expire(140.0, None)
    assert rig.slots.waits_for_blocked(waiting), "it was blocked anew"
