"""One namespace cannot take all slots and driver places: what it may have at most, and what its jobs are told."""

from __future__ import annotations

import pytest

from emberkeep.base.ids import AllocationId, JobId, TaskManagerId
from emberkeep.slots.ledger import DriverNeed, DriverUse
from emberkeep.slots.model import SlotRequirement
from emberkeep.slots.namespace_quotas import NamespaceLimits
from tests.unit.slots.closed.test_blocked import Places, require
from tests.unit.slots.test_slot_manager import RUNTIME, SMALL, Rig, per_job

pytestmark = pytest.mark.req("SEC-16")

ALL_IN_USE = "namespace 'a' uses all 3 slots of its quota (security.quota.slots-per-namespace)"


@pytest.fixture
def rig() -> Rig:
    return Rig(NamespaceLimits(slots=3, drivers=1))


def drive(rig: Rig, job_id: JobId, attempt: int = 2) -> None:
    """The job's driver starts on the task manager that it was granted."""
    rig.slots.jobs.begin_attempt(job_id, attempt, 0.0)


def some_ids(count: int) -> list[AllocationId]:
    return [AllocationId(f"{number:x}" * 32) for number in range(10, 10 + count)]


class TestSlots:
    def test_a_namespace_gets_no_more_than_its_quota_whatever_its_jobs_want(self, rig: Rig) -> None:
        rig.add("tm-1", slots=12)
        rig.add("tm-2", slots=12)
        first, second = rig.job(6, namespace="a"), rig.job(6, namespace="a")
        other = rig.job(2, namespace="b")
        found = per_job(rig.match())
        assert (found[first], found[second], found[other]) == (2, 1, 2)

    def test_others_get_their_slots_although_a_namespace_wants_everything(self, rig: Rig) -> None:
        rig.add("tm-1")
        for _ in range(50):
            rig.job(100, namespace="a")
        assert sum(per_job(rig.match()).values()) == 3
        other = rig.job(1, namespace="b")
        assert per_job(rig.match()) == {other: 1}

    def test_jobs_without_a_namespace_have_no_quota(self, rig: Rig) -> None:
        rig.add("tm-1")
        job = rig.job(4)
        assert per_job(rig.match()) == {job: 4}

    def test_slots_elsewhere_count_until_their_attempt_has_ended(self, rig: Rig) -> None:
        rig.add("tm-1")
        first = rig.job(namespace="a")
        require(rig, first, 3, dict.fromkeys(some_ids(3), TaskManagerId("not-registered")))
        second = rig.job(2, namespace="a")
        assert rig.match() == []
        rig.slots.jobs.end_attempt(first, 1, 0.0)
        assert per_job(rig.match()) == {second: 2}

    def test_a_job_is_told_that_it_waits_for_the_quota(self, rig: Rig) -> None:
        rig.add("tm-1")
        job = rig.job(4, namespace="a")
        rig.match()
        assert rig.slots.missing(job) == f"1 slot is missing: {ALL_IN_USE}"
        assert not rig.slots.waits_for_blocked(job)
        assert rig.slots.supply().demand.slots == (), "a further task manager would not help"

    def test_what_one_job_gives_up_is_for_the_next_of_its_namespace(self, rig: Rig) -> None:
        rig.add("tm-1")
        first, second = rig.job(3, namespace="a"), rig.job(2, namespace="a")
        assert per_job(rig.match()) == {first: 2, second: 1}
        rig.want(first, 1)
        assert rig.match() == [], "the first still holds what it no longer wants"
        rig.slots.jobs.remove(first)
        assert rig.slots.is_due
        assert per_job(rig.match()) == {second: 1}
        assert rig.slots.missing(second) == ""

    def test_a_lower_quota_takes_nothing_away(self, rig: Rig) -> None:
        """A leader with other settings learns from reports what is held."""
        registered = rig.add("tm-1")
        unlimited = Rig()
        unlimited.add("tm-1")
        job = unlimited.job(4, namespace="a")
        held = [allotted.allocation for allotted in unlimited.match()]
        assert rig.job(4, namespace="a") == job
        rig.report(registered, *held)
        other = rig.job(1, namespace="a")
        assert rig.match() == []
        assert len(rig.slots.jobs.by_id[job].held) == 4
        assert rig.slots.missing(other) == f"1 slot is missing: {ALL_IN_USE}"

    def test_a_job_at_its_limit_can_move_away_from_a_node(self, rig: Rig) -> None:
        """Its JobMaster does not name the slots that are about to leave, so they do not count."""
        registered = rig.add("tm-1", slots=3)
        job = rig.job(3, namespace="a")
        slots = [allotted.allocation for allotted in rig.match()]
        rig.report(registered, *slots)
        rig.add("tm-2", slots=3)
        rig.slots.restrictions.block(Places("tm-1!"))
        require(rig, job, 3, {})
        assert [allotted.info.id for allotted in rig.match()] == 3 * ["tm-2"]

    def test_slots_on_task_managers_that_are_not_known_yet_count(self, rig: Rig) -> None:
        rig.add("tm-1")
        job = rig.job(namespace="a")
        wanted = (SlotRequirement(count=4, profile=SMALL, runtime=RUNTIME),)
        elsewhere = {allocation_id: TaskManagerId("tm-9") for allocation_id in some_ids(2)}
        rig.slots.jobs.require(job, 1, "jm:1", wanted, elsewhere)
        assert per_job(rig.match()) == {job: 1}


class TestDrivers:
    def test_a_second_driver_waits_and_others_pass(self, rig: Rig) -> None:
        rig.add("tm-1")
        first, second = (rig.job(namespace="a", attempt=0) for _ in range(2))
        other = rig.job(namespace="b", attempt=0)
        for job_id in (first, second, other):
            rig.ask(job_id, 512)
        assert set(rig.places()) == {first, other}
        words = "namespace 'a' runs the only driver of its quota (security.quota.drivers-per-namespace)"
        assert rig.slots.missing(second) == f"no place for the driver: {words}"
        assert rig.slots.supply().demand.drivers == ()

    def test_the_next_driver_starts_when_the_first_is_over(self, rig: Rig) -> None:
        registered = rig.add("tm-1")
        first, second = (rig.job(namespace="a", attempt=0) for _ in range(2))
        for job_id in (first, second):
            rig.ask(job_id, 512)
        rig.places()
        drive(rig, first)
        rig.report(registered, drivers=(DriverUse(first, 2, 512, live=True),))
        assert rig.places() == {}
        rig.slots.jobs.end_attempt(first, 2, 0.0)
        rig.report(registered)
        assert rig.slots.is_due
        assert set(rig.places()) == {second}

    def test_a_driver_that_restarts_goes_before_later_jobs(self, rig: Rig) -> None:
        registered = rig.add("tm-1")
        first, second = (rig.job(namespace="a", attempt=0) for _ in range(2))
        for job_id in (first, second):
            rig.ask(job_id, 512)
        rig.places()
        drive(rig, first)
        rig.slots.jobs.end_attempt(first, 2, 0.0)
        rig.slots.jobs.request_place(first, DriverNeed(512, ""), 3, 0.0)
        rig.report(registered)
        assert set(rig.places()) == {first}

    def test_jobs_without_a_namespace_have_no_quota(self, rig: Rig) -> None:
        rig.add("tm-1")
        jobs = {rig.job(attempt=0) for _ in range(2)}
        for job_id in jobs:
            rig.ask(job_id, 512)
        assert set(rig.places()) == jobs
