"""A decided slot counts as taken until a report shows it, or until it is withdrawn."""

from __future__ import annotations

from emberkeep.base.ids import AllocationId, JobId
from emberkeep.slots.ledger import JobAccount, Member
from emberkeep.slots.model import Allocation, SlotRequirement
from emberkeep.slots.pending_slots import PendingSlots
from emberkeep.slots.shelves import Due, Shelves
from emberkeep.slots.unmet.lacking_jobs import LackingJobs
from tests.unit.slots.test_slot_manager import RUNTIME, SMALL, info

TIMEOUT = 10.0
WANTED = SlotRequirement(count=2, profile=SMALL, runtime=RUNTIME)


class Bench:
    """One task manager with four slots, and a job that wants two of them."""

    def __init__(self) -> None:
        self.due = Due()
        self.shelves = Shelves(self.due)
        self.lacking = LackingJobs(self.due)
        self.pending = PendingSlots(self.shelves, self.lacking, timeout=TIMEOUT)
        self.member = Member(info=info("tm-1"), ordinal=1)
        self.shelves.add(self.member)
        self.job = JobAccount(job_id=JobId("1" * 32), order=1, attempt=1, requirements=(WANTED,))
        self.lacking.review(self.job)

    def add(self, name: str, now: float = 0.0) -> AllocationId:
        allocation = Allocation(
            id=AllocationId(name), slot_index=-1, job_id=self.job.job_id, attempt=1, profile=SMALL, job_master="jm:1"
        )
        self.pending.add(allocation, self.job, self.member, now)
        self.lacking.review(self.job)
        return allocation.id


def test_a_withdrawn_slot_is_free_and_wanted_again() -> None:
    bench = Bench()
    first, second = bench.add("a"), bench.add("b")
    assert (bench.member.free_slots, list(bench.lacking)) == (2, [])
    bench.due.slots = False
    bench.pending.withdraw(first)
    assert (bench.member.free_slots, list(bench.lacking), bench.due.slots) == (3, [bench.job], True)
    assert (set(bench.pending.ids()), set(bench.job.held)) == ({second}, {second})


def test_only_slots_that_no_report_shows_in_time_lapse() -> None:
    bench = Bench()
    reported, late = bench.add("a", now=0.0), bench.add("b", now=5.0)
    assert bench.pending.take_reported(reported, bench.member)
    bench.pending.expire(TIMEOUT)
    assert bench.pending.member_of(late) is bench.member
    bench.pending.expire(5.0 + TIMEOUT)
    assert bench.pending.member_of(late) is None
    assert set(bench.job.held) == {reported}, "a reported slot is the job's"


def test_a_slot_that_another_task_manager_reports_stays_pending() -> None:
    bench = Bench()
    slot = bench.add("a")
    other = Member(info=info("tm-2"), ordinal=2)
    assert not bench.pending.take_reported(slot, other)
    assert bench.pending.member_of(slot) is bench.member


def test_all_slots_on_a_task_manager_are_withdrawn_together() -> None:
    bench = Bench()
    bench.add("a")
    bench.add("b")
    bench.pending.withdraw_from(bench.member)
    assert (set(bench.pending.ids()), bench.job.held, bench.member.free_slots) == (set(), {}, 4)
