"""Gangs: all slots at once or none, and free slots kept for them for a bounded time."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emberkeep.base.ids import JobId
from emberkeep.slots.custom.amounts import amounts
from emberkeep.slots.model import Allocation, ResourceProfile, TaskManagerInfo
from emberkeep.slots.namespace_quotas import NamespaceLimits
from tests.unit.slots.test_ledger import member
from tests.unit.slots.test_slot_manager import LARGE, SMALL, Rig, per_job

pytestmark = pytest.mark.req("RES-4")

PATIENCE = 60.0  # the default


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_gang_gets_all_its_slots_in_one_round(rig: Rig) -> None:
    rig.add("tm-1")
    rig.add("tm-2")
    gang = rig.job(6, gang=True)
    assert per_job(rig.match()) == {gang: 6}
    assert not rig.slots.missing(gang)


def test_a_gang_that_does_not_fit_gets_none_and_others_use_what_is_free(rig: Rig) -> None:
    rig.add("tm-1")
    first = rig.job(1)
    assert per_job(rig.match()) == {first: 1}
    gang = rig.job(4, gang=True, priority=100)
    assert not rig.match()
    assert (
        rig.slots.missing(gang)
        == "4 slots (1 core and 1024 MiB each) are needed at once (job.gang): 3 of them are free"
    )
    other = rig.job(2)
    assert per_job(rig.match()) == {other: 2}


def test_two_gangs_do_not_hold_half_each(rig: Rig) -> None:
    rig.add("tm-1")
    first, second = rig.job(3, gang=True), rig.job(3, gang=True)
    assert per_job(rig.match()) == {first: 3}
    assert "1 of them are free" in rig.slots.missing(second)


def test_other_jobs_do_not_come_between_the_slots_of_a_gang(rig: Rig) -> None:
    rig.add("tm-1")
    other = rig.job(3)
    gang = rig.job(4, gang=True, priority=1)
    assert per_job(rig.match()) == {gang: 4}
    assert rig.slots.missing(other)


def test_a_gang_gets_a_lost_executor_replaced_alone(rig: Rig) -> None:
    registered = rig.add("tm-1", slots=3)
    gang = rig.job(3, gang=True)
    held = [allotted.allocation for allotted in rig.match()]
    rig.report(registered, *held)
    rig.report(registered, *held[1:])
    assert per_job(rig.match()) == {gang: 1}


@pytest.mark.parametrize(
    ("profile", "free"),
    [
        (SMALL, 4),
        (ResourceProfile(cores=2, memory_mb=1), 2),
        (ResourceProfile(cores=1, memory_mb=3000), 2),
        (ResourceProfile(cores=1, memory_mb=1, custom=amounts({"gpu": 1})), 0),
        (LARGE, 1),
        (ResourceProfile(cores=5, memory_mb=1), 0),
    ],
)
def test_how_many_slots_a_task_manager_could_give(profile: ResourceProfile, free: int) -> None:
    assert member().capacity(profile) == member().capacity_when_empty(profile) == free


def test_custom_resources_bound_the_number_of_slots() -> None:
    found = member()
    found.free_custom = amounts({"gpu": 3})
    assert found.capacity(ResourceProfile(cores=1, memory_mb=1, custom=amounts({"gpu": 2}))) == 1


def test_a_gang_larger_than_the_cluster_says_so(rig: Rig) -> None:
    rig.add("tm-1")
    gang = rig.job(5, gang=True)
    assert not rig.match()
    assert rig.slots.missing(gang).endswith("4 of them are free, and all task managers together have room for 4")


def test_the_quota_of_its_namespace_must_have_room_for_all() -> None:
    rig = Rig(NamespaceLimits(slots=3))
    rig.add("tm-1")
    first = rig.job(1, namespace="a")
    rig.match()
    gang = rig.job(3, namespace="a", gang=True)
    assert not rig.match()
    assert rig.slots.missing(gang) == (
        "3 slots are needed at once (job.gang): namespace 'a' has 2 of the 3 slots of its quota left "
        "(security.quota.slots-per-namespace)"
    )
    rig.slots.jobs.remove(first)
    assert per_job(rig.match()) == {gang: 3}


class Busy:
    """One task manager of four slots, which short jobs take one by one."""

    def __init__(self) -> None:
        self.rig = Rig()
        self.info: TaskManagerInfo = self.rig.add("tm-1")
        self.held: dict[JobId, Allocation] = {}
        self.now = 0.0

    def arrive(self) -> JobId:
        return self.rig.job(1)

    def end_one(self) -> None:
        self.end(next(iter(self.held)))

    def end(self, job_id: JobId) -> None:
        self.held.pop(job_id, None)
        self.rig.slots.jobs.remove(job_id)
        self.report()

    def report(self) -> None:
        self.rig.report(self.info, *self.held.values(), now=self.now)

    def step(self) -> Counter[JobId]:
        self.report()
        self.rig.slots.expire(self.now)
        found = self.rig.match(self.now)
        self.held |= {allotted.allocation.job_id: allotted.allocation for allotted in found}
        self.report()
        return per_job(found)


def test_free_slots_are_kept_for_a_gang_that_has_waited_for_the_patience() -> None:
    busy = Busy()
    for _ in range(4):
        busy.arrive()
    busy.step()
    gang = busy.rig.job(4, gang=True)
    busy.step()
    for _ in range(3):  # before the patience has passed, others come first
        busy.now += 10.0
        newcomer = busy.arrive()
        busy.end_one()
        assert busy.step() == {newcomer: 1}
    busy.now = PATIENCE
    waiting = busy.arrive()
    for _ in range(3):
        busy.now += 1.0
        busy.end_one()
        assert not busy.step()
    assert busy.rig.slots.missing(waiting).endswith(
        f"free slots are kept for job {gang}, which needs all its slots at once"
    )
    busy.end_one()
    assert busy.step()[gang] == 4


@given(gaps=st.lists(st.floats(0.5, 30.0), min_size=5, max_size=25))
def test_slots_are_kept_for_at_most_half_of_the_time(gaps: list[float]) -> None:
    """One slot is held by a stream that never ends, so the gang never fits; others are served in between."""
    busy = Busy()
    busy.arrive()
    busy.step()
    gang = busy.rig.job(4, gang=True)
    busy.step()
    began: float | None = None  # when slots were kept
    ended = float("-inf")
    for gap in gaps:
        busy.now += gap
        newcomer = busy.arrive()
        if busy.step()[newcomer]:
            ended = ended if began is None else busy.now
            began = None
        elif began is None:
            assert busy.now - ended >= PATIENCE - gap, "slots are kept again too early"
            began = busy.now
        else:
            assert busy.now - began < PATIENCE, "slots are kept for too long"
        busy.end(newcomer)
    assert not busy.rig.slots.jobs.by_id[gang].held
