"""For whom a node keeps local copies, and which of them go."""

from __future__ import annotations

import msgspec
import pytest

from emberkeep.base.ids import AllocationId, JobId
from emberkeep.local_state.machine import DropAllocation, DropJob, HandOver, Ownership, evictions
from emberkeep.local_state.model import STANDBY, CopyRecord, StatePath

JOB, OTHER = JobId("1" * 32), JobId("2" * 32)
A, B, C, D = (AllocationId(digit * 32) for digit in "abcd")
TIMEOUT = 100.0


@pytest.fixture
def ownership() -> Ownership:
    return Ownership(TIMEOUT)


@pytest.mark.req("LOC-4")
def test_a_slot_that_is_given_back_takes_its_copies_along(ownership: Ownership) -> None:
    ownership.begun(JOB, A)
    assert ownership.freed(JOB, A, may_return=False) == (DropAllocation(JOB, A),)
    assert ownership.held == frozenset()


def test_the_next_attempt_takes_over_what_the_last_one_left(ownership: Ownership) -> None:
    for allocation in (A, B):
        ownership.begun(JOB, allocation)
    for allocation in (A, B):
        assert ownership.freed(JOB, allocation, may_return=True) == ()
    assert ownership.begun(OTHER, C) == ()
    assert ownership.begun(JOB, C) == (HandOver(JOB, A, C),)
    assert ownership.begun(JOB, D) == (HandOver(JOB, B, D),)
    assert ownership.held == {(OTHER, C), (JOB, C), (JOB, D)}
    assert ownership.forgotten(JOB) == (DropJob(JOB),)
    assert ownership.held == {(OTHER, C)}


def test_the_first_slot_takes_over_what_was_copied_for_the_reserved_standby(ownership: Ownership) -> None:
    assert ownership.reserved({JOB}, 0.0) == ()
    assert ownership.held == frozenset(), "no executor writes for it"
    assert ownership.orphans([(JOB, STANDBY), (OTHER, STANDBY)]) == (DropAllocation(OTHER, STANDBY),)
    assert ownership.expired(10 * TIMEOUT) == ()
    assert ownership.begun(JOB, A) == (HandOver(JOB, STANDBY, A),)
    ownership.reserved({JOB}, 0.0)
    assert ownership.orphans([(JOB, STANDBY)]) == (), "copies go on"


def test_copies_of_a_standby_that_is_elsewhere_wait_for_the_next_attempt(ownership: Ownership) -> None:
    ownership.reserved({JOB, OTHER}, 0.0)
    ownership.reserved({OTHER}, 5.0)
    ownership.reserved({OTHER}, 50.0)
    assert ownership.expired(5.0 + TIMEOUT - 0.1) == ()
    assert ownership.expired(5.0 + TIMEOUT) == (DropAllocation(JOB, STANDBY), DropJob(JOB))


def test_a_job_that_has_slots_beside_its_standby_is_not_forgotten_with_that(ownership: Ownership) -> None:
    ownership.begun(JOB, A)
    ownership.reserved({JOB}, 0.0)
    ownership.reserved((), 5.0)
    assert ownership.expired(5.0 + TIMEOUT) == (DropAllocation(JOB, STANDBY),)


def test_copies_of_a_standby_that_comes_back_stay(ownership: Ownership) -> None:
    ownership.found([(JOB, STANDBY)], 0.0)
    ownership.reserved({JOB}, 1.0)
    assert ownership.expired(10 * TIMEOUT) == ()


def test_what_a_slot_took_over_and_its_job_did_not_use_goes_to_the_next(ownership: Ownership) -> None:
    ownership.begun(JOB, A)
    ownership.freed(JOB, A, may_return=True)
    assert ownership.begun(JOB, B) == (HandOver(JOB, A, B),)
    assert ownership.freed(JOB, B, may_return=True) == ()
    assert ownership.begun(JOB, C) == (HandOver(JOB, B, C),)


@pytest.mark.req("LOC-5")
def test_a_restarted_task_manager_keeps_what_its_slots_own(ownership: Ownership) -> None:
    ownership.found([(JOB, A), (JOB, B), (OTHER, C)], now=10.0)
    ownership.recovered(JOB, A)
    assert ownership.expired(10.0 + TIMEOUT - 1) == ()
    assert set(ownership.expired(10.0 + TIMEOUT)) == {
        DropAllocation(JOB, B),
        DropAllocation(OTHER, C),
    }
    assert ownership.held == {(JOB, A)}


@pytest.mark.req("LOC-5")
def test_what_was_found_waits_for_its_job(ownership: Ownership) -> None:
    ownership.found([(JOB, A)], now=0.0)
    assert ownership.begun(JOB, B) == (HandOver(JOB, A, B),)
    assert ownership.expired(10 * TIMEOUT) == ()
    assert ownership.orphans([(JOB, B)]) == ()


@pytest.mark.req("LOC-5")
def test_copies_of_nobody_are_orphans(ownership: Ownership) -> None:
    ownership.begun(JOB, A)
    ownership.freed(JOB, A, may_return=False)
    assert ownership.orphans([(JOB, A), (JOB, A), (OTHER, B)]) == (DropAllocation(JOB, A), DropAllocation(OTHER, B))


def copy(name: str, length: int) -> CopyRecord:
    return CopyRecord(
        path=StatePath(root="/r", name=name),
        job_id=JOB,
        allocation_id=A,
        attempt=0,
        length=length,
        generation="1",
        block_size=4096,
        checksums=(),
    )


def test_the_quota_takes_those_that_were_not_used_for_longest() -> None:
    records = [msgspec.structs.replace(copy(str(number), 100_000)) for number in range(10)]
    assert evictions(records, 1_000_000, 1_000_000) == ()
    going = evictions(records, 1_040_960, 1_000_000)
    assert going == tuple(records[: len(going)])
    assert 0 < len(going) < 3
    assert evictions(records, 10**9, 0) == tuple(records)
