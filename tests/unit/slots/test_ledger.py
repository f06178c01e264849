"""The accounts of one task manager and one job."""

from __future__ import annotations

from typing import Any

import pytest

from emberkeep.base.ids import AllocationId, JobId
from emberkeep.slots.ledger import BlockState, DriverUse, EndingState, JobAccount, Member, Reservation, Want
from emberkeep.slots.model import Allocation, ResourceProfile, SlotRequirement
from tests.unit.slots.test_slot_manager import RUNTIME, SMALL, info

JOB = JobId("1" * 32)


def member(**changes: Any) -> Member:
    """Four cores, 8 GiB, four slots and two driver places."""
    found = Member(info("tm"), 1)
    for name, value in changes.items():
        setattr(found, name, value)
    found.recount()
    return found


def allocation(name: str = "a", profile: ResourceProfile = SMALL) -> Allocation:
    return Allocation(
        id=AllocationId(name * 32), slot_index=0, job_id=JOB, attempt=1, profile=profile, job_master="jm:1"
    )


A, B = allocation("a"), allocation("b")
LIVE, DEAD = DriverUse(JOB, 1, 512, live=True), DriverUse(JOB, 1, 512, live=False)


def free(found: Member) -> tuple[int, int, int, int]:
    return found.free_slots, found.free_cores, found.free_memory, found.free_places


@pytest.mark.parametrize(
    ("found", "left"),
    [
        (member(), (4, 4, 8192, 2)),
        (member(allocations={A.id: A}), (3, 3, 7168, 2)),
        (member(allocations={A.id: A}, pending={B.id: B}), (2, 2, 6144, 2)),
        (member(drivers=(LIVE,)), (4, 4, 7680, 1)),
        (member(drivers=(DEAD,)), (4, 4, 8192, 2)),
        (member(reservations={JOB: Reservation(1, 1000)}), (4, 4, 7192, 1)),
        (member(allocations={A.id: A}, ending=EndingState.LEAVING), (0, 3, 7168, 0)),
        (member(ending=EndingState.DRAINING), (0, 4, 8192, 0)),
        (member(ending=EndingState.RETIRING), (4, 4, 8192, 2)),
    ],
)
def test_what_is_free(found: Member, left: tuple[int, int, int, int]) -> None:
    assert free(found) == left


def test_nothing_is_free_where_all_is_taken_or_promised_twice() -> None:
    everything = ResourceProfile(cores=4, memory_mb=8192)
    assert member(allocations={A.id: allocation("a", everything)}).free() == ResourceProfile(cores=0, memory_mb=0)
    twice = {A.id: allocation("a", everything), B.id: allocation("b", everything)}
    assert member(pending=twice).free() == ResourceProfile(cores=0, memory_mb=0)


def test_a_promise_counts_like_a_recount_and_only_growth_is_told() -> None:
    found = member()
    found.promise(A)
    promised = free(found)
    assert not found.recount()
    assert free(found) == promised == (3, 3, 7168, 2)
    found.pending.clear()
    assert found.recount()
    found.reservations[JOB] = Reservation(1, 1000)
    assert not found.recount()
    found.reservations.clear()
    assert found.recount(), "a place, and memory"
    found.drivers = (DEAD,)
    assert not found.recount()


@pytest.mark.parametrize(
    ("found", "level"),
    [
        (member(), 4),
        (member(allocations={A.id: allocation(profile=ResourceProfile(cores=3, memory_mb=1))}), 1),
        (member(allocations={A.id: A, B.id: B}), 2),
        (member(allocations={A.id: allocation(profile=ResourceProfile(cores=1, memory_mb=8192))}), 0),
        (member(claimed_memory=8192), 0),
        (member(claimed_memory=8191), 4),
        (member(away=True), 0),
        (member(avoided=True), 0),
        (member(block=BlockState.BLOCKED), 0),
        (member(block=BlockState.EVACUATED), 0),
        (member(ending=EndingState.RETIRING), 0),
    ],
)
def test_how_many_slots_may_be_given(found: Member, level: int) -> None:
    assert found.usable_level() == level


@pytest.mark.parametrize(
    ("profile", "fits"),
    [
        (ResourceProfile(cores=4, memory_mb=8092), True),
        (ResourceProfile(cores=5, memory_mb=1), False),
        (ResourceProfile(cores=1, memory_mb=8093), False),
    ],
)
def test_a_slot_leaves_what_is_claimed(profile: ResourceProfile, fits: bool) -> None:
    assert member(claimed_memory=100).fits(profile) is fits
    assert not member(claimed_memory=100, ending=EndingState.LEAVING).fits(profile)


@pytest.mark.parametrize(
    ("state", "moves"),
    [
        ({}, False),
        ({"block": BlockState.BLOCKED}, False),
        ({"block": BlockState.EVACUATED}, True),
        ({"ending": EndingState.LEAVING}, False),
        ({"ending": EndingState.DRAINING}, True),
    ],
)
def test_whose_work_moves(state: dict[str, Any], moves: bool) -> None:
    assert member(**state).is_evacuated is moves


@pytest.mark.parametrize(
    ("state", "is_idle"),
    [
        ({}, True),
        ({"allocations": {A.id: A}}, False),
        ({"pending": {A.id: A}}, False),
        ({"drivers": (DEAD,)}, False),
        ({"reservations": {JOB: Reservation(1, 1)}}, False),
        ({"away": True}, False),
        ({"claimed_by": JOB}, False),
    ],
)
def test_who_is_idle(state: dict[str, Any], is_idle: bool) -> None:
    assert member(**state).is_idle is is_idle


def account(*wanted: SlotRequirement) -> JobAccount:
    return JobAccount(JOB, 1, 1, requirements=wanted)


def wants(count: int, profile: ResourceProfile = SMALL) -> SlotRequirement:
    return SlotRequirement(count=count, profile=profile, runtime=RUNTIME)


def test_what_a_job_lacks() -> None:
    job, here = account(wants(3)), member()
    job.review()
    assert job.wants == [Want(wants(3), 3)]
    job.add(A, here)
    job.add(A, here)
    job.review()
    assert (job.wants, job.spread) == ([Want(wants(3), 2)], {here: 1})
    job.elsewhere = 1
    job.review()
    assert job.wants == [Want(wants(3), 1)]
    job.add(B, here)
    job.review()
    assert job.wants == []
    job.drop(A)
    job.drop(A)
    assert (job.spread, list(job.left), job.held_by_profile) == ({here: 1}, [], {SMALL: 1})
    job.drop(B)
    assert (job.spread, list(job.left), job.held_by_profile) == ({}, [here], {})
    job.add(A, here)
    assert not job.left, "it holds something there again"


def test_slots_of_one_size_serve_one_requirement_after_the_other() -> None:
    large = ResourceProfile(cores=2, memory_mb=2048)
    job = account(wants(1), wants(2), wants(1, large))
    job.add(A, member())
    job.add(B, member())
    job.review()
    assert job.wants == [Want(wants(2), 1), Want(wants(1, large), 1)]
    job.elsewhere = 5
    job.review()
    assert job.wants == []
