"""Jobs give slots back in a slot manager: who is asked, who gets them, and what is said."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from emberkeep.base.ids import JobId
from emberkeep.slots.ledger import Gives
from emberkeep.slots.model import Allocation, Reclaim
from emberkeep.slots.namespace_quotas import NamespaceLimits
from emberkeep.slots.reclaim.reclaimer import LACKS_FOR, SPARED_FOR
from emberkeep.slots.reclaim.terms import Preemption, ReclaimTerms
from emberkeep.slots.registered_task_managers import SilenceLimits
from emberkeep.slots.slot_manager import SlotManager
from tests.unit.slots.test_slot_manager import LARGE, LOST_AFTER, ORPHAN, PATIENCE, PENDING, Rig, per_job

pytestmark = pytest.mark.req("RES-5")


class World(Rig):
    """A task manager with four slots, and a leader that has had time to settle, unless ``settled`` is False."""

    def __init__(
        self,
        guarantees: Mapping[str, int],
        quotas: NamespaceLimits | None = None,
        preemption: Preemption = Preemption.ELASTIC,
        *,
        settled: bool = True,
    ) -> None:
        super().__init__()
        self.slots = SlotManager(
            SilenceLimits(lost_after=LOST_AFTER, orphan_timeout=ORPHAN),
            pending_timeout=PENDING,
            patience=PATIENCE,
            quotas=quotas,
            reclaim=ReclaimTerms(guarantees, 0 if quotas is None else quotas.slots, preemption),
        )
        self.tm = self.add("tm-1")
        self.held: list[Allocation] = []
        self.slots.expire(0.0)
        self.now = 100.0 if settled else 0.0
        self.pass_time(0.0)

    def pass_time(self, seconds: float) -> None:
        """Time passes, in which the task manager reports what it holds."""
        self.now += seconds
        self.report(self.tm, *self.held, now=self.now)
        self.slots.expire(self.now)

    def matched(self) -> dict[JobId, int]:
        found = self.match(self.now)
        self.held += [allotted.allocation for allotted in found]
        self.report(self.tm, *self.held, now=self.now)
        return per_job(found)

    def borrower(self, count: int = 4, namespace: str = "", priority: int = 0, least: int = 1) -> JobId:
        job = self.job(count, namespace=namespace, priority=priority)
        self.matched()
        self.says(job, least=least)
        return job

    def slots_of(self, job: JobId) -> list[Allocation]:
        return [each for each in self.held if each.job_id == job]

    def says(self, job: JobId, *, least: int = 1, leaving: int = 0, follows: Reclaim | None = None) -> None:
        """A JobMaster reports that its newest executors leave."""
        newest = self.slots_of(job)[::-1][:leaving]
        gives = Gives(least=least, elastic=True, leaving=frozenset(each.id for each in newest))
        self.slots.reclaimer.take(job, 1, gives, follows, self.now)

    def frees(self, job: JobId, count: int) -> None:
        """The newest executors of the job have left."""
        for allocation in self.slots_of(job)[::-1][:count]:
            self.held.remove(allocation)
        self.report(self.tm, *self.held, now=self.now)

    def ceiling(self, job: JobId) -> int | None:
        order = self.slots.reclaimer.order_for(job)
        return None if order is None else order.ceiling


def test_borrowed_slots_come_back_and_go_to_whom_they_are_guaranteed() -> None:
    world = World({"b": 2})
    borrower = world.borrower()
    waiter = world.job(3, namespace="b")
    other = world.job(1, namespace="c", priority=100)
    assert world.matched() == {}
    world.pass_time(LACKS_FOR / 2)
    assert world.ceiling(borrower) is None, "nobody gives back for a short lack"
    world.pass_time(LACKS_FOR)
    assert world.ceiling(borrower) == 2
    text = world.slots.missing(waiter)
    assert "; 2 slots are being given back for it by other jobs; namespace 'b' has 0 of the 2 slots that it is" in text

    world.want(borrower, 2)
    world.says(borrower, leaving=2)
    world.pass_time(1.0)
    assert world.ceiling(borrower) == 2, "until they have gone it does not ask for them again"
    world.frees(borrower, 1)
    assert world.matched() == {waiter: 1}, "not to the other, although its priority is higher"
    world.pass_time(1.0)
    assert world.ceiling(borrower) == 2
    world.frees(borrower, 1)
    assert world.matched() == {waiter: 1}
    world.says(borrower)
    world.pass_time(1.0)
    assert world.ceiling(borrower) is None
    world.want(borrower, 4)
    for _ in range(10):
        assert world.matched() == {}
        world.pass_time(5.0)
        assert (world.ceiling(borrower), world.ceiling(waiter)) == (None, None), "nothing goes to and fro"
    assert world.slots.jobs.by_id[other].held == {}


def test_a_free_slot_goes_first_to_a_namespace_below_its_guarantee() -> None:
    world = World({"b": 2})
    world.borrower(3, least=3)
    high = world.job(2, priority=100)
    entitled = world.job(2, namespace="b", priority=-100)
    assert world.matched() == {entitled: 1}
    assert "namespace 'b' has 1 of the 2 slots that it is guaranteed" in world.slots.missing(entitled)
    assert world.slots.jobs.by_id[high].held == {}


def test_guarantees_end_where_they_are_met() -> None:
    """The second job of the namespace is entitled to nothing more once the first has got what is guaranteed."""
    world = World({"b": 2})
    other = world.job(3)
    first, second = world.job(2, namespace="b"), world.job(2, namespace="b", priority=-100)
    assert world.matched() == {first: 1, second: 1, other: 2}


def test_a_leader_that_has_just_begun_lifts_no_ceiling() -> None:
    """The job that the slots are for may not have registered with it yet."""
    world = World({"b": 2})
    borrower = world.borrower()
    fresh = World({"b": 2})
    fresh.slots.reclaimer._began = fresh.now  # it began just now
    job = fresh.borrower()
    order = Reclaim(ceiling=2, reason="job 7 waits")
    fresh.says(job, leaving=2, follows=order)
    fresh.pass_time(1.0)
    assert fresh.slots.reclaimer.order_for(job) == order
    fresh.pass_time(LOST_AFTER)
    assert fresh.ceiling(job) is None, "nobody waits"
    world.says(borrower, follows=order)
    assert world.ceiling(borrower) is None, "a leader that knows the jobs decides by itself"


def test_a_waiting_gang_has_the_slots_kept_that_others_give_back() -> None:
    world = World({"b": 3})
    borrower = world.borrower()
    gang = world.job(3, namespace="b", gang=True)
    greedy = world.job(4)
    assert world.matched() == {}
    world.pass_time(LACKS_FOR)
    assert world.ceiling(borrower) == 1
    world.want(borrower, 1)
    for left in (2, 1):
        world.says(borrower, leaving=left + 1)
        world.frees(borrower, 1)
        assert world.matched() == {}, "what is free stays free until all are there"
        world.says(borrower, leaving=left)
        world.pass_time(0.5)
    world.frees(borrower, 1)
    assert world.matched() == {gang: 3}
    assert world.slots.jobs.by_id[greedy].held == {}


def test_no_slot_is_asked_for_where_it_could_not_be_used() -> None:
    world = World({"b": 2})
    borrower = world.borrower()
    world.job(1, LARGE, namespace="b")
    world.matched()
    world.pass_time(LACKS_FOR)
    assert world.ceiling(borrower) is None


def test_a_namespace_at_its_quota_helps_itself() -> None:
    world = World({}, NamespaceLimits(slots=3))
    low = world.borrower(4, namespace="a")
    high = world.job(1, namespace="a", priority=100)
    assert world.matched() == {}
    world.pass_time(LACKS_FOR)
    assert world.ceiling(low) == 2
    assert "uses all 3 slots of its quota" in world.slots.missing(high)
    assert "1 slot is being given back for it by other jobs" in world.slots.missing(high)
    world.want(low, 2)
    world.says(low, leaving=1)
    world.frees(low, 1)
    assert world.matched() == {high: 1}


def test_an_attempt_that_is_over_gives_nothing_back() -> None:
    world = World({"b": 2})
    borrower = world.borrower()
    world.job(2, namespace="b")
    world.matched()
    world.pass_time(LACKS_FOR)
    assert world.ceiling(borrower) == 2
    world.slots.jobs.begin_attempt(borrower, 2, 0.0)
    assert world.ceiling(borrower) is None
    world.says(borrower)
    assert world.slots.jobs.by_id[borrower].gives == Gives(), "a late report of the earlier attempt"


def test_a_job_that_was_put_back_waits_then_gets_slots_again_and_keeps_them_for_a_while() -> None:
    world = World({}, preemption=Preemption.JOBS)
    low = world.borrower(4, namespace="a", least=4)
    high = world.job(4, namespace="a", priority=100, gang=True)
    assert world.matched() == {}
    world.pass_time(LACKS_FOR)
    order = world.slots.reclaimer.order_for(low)
    assert order == Reclaim(ceiling=0, reason=f"job {high} has a higher priority (100), and waits", whole=True)
    world.want(low, 0)
    world.says(low, least=4, leaving=4, follows=order)
    for left in (2, 0):
        world.frees(low, 2)
        assert world.matched() == ({high: 4} if left == 0 else {}), "the gang has the slots kept until all are free"
        world.says(low, least=4, leaving=left, follows=order)
        world.pass_time(0.5)
    assert world.ceiling(low) is None
    world.want(low, 4)
    for _ in range(5):
        assert world.matched() == {}
        world.pass_time(100.0)
        assert (world.ceiling(low), world.ceiling(high)) == (None, None), "nothing goes to and fro"

    world.slots.jobs.remove(high)
    world.held.clear()
    world.pass_time(1.0)
    assert world.matched() == {low: 4}
    world.says(low, least=4)
    world.job(4, namespace="a", priority=100, gang=True)
    assert world.matched() == {}
    world.pass_time(SPARED_FOR - 10.0)
    assert world.ceiling(low) is None, "it has been put back once, and is spared now"
    world.pass_time(20.0)
    assert world.ceiling(low) == 0


def test_a_job_whose_graph_cannot_be_read_gives_nothing_back() -> None:
    """Its namespace may have a guarantee, and its priority may be the highest."""
    world = World({"b": 2})
    unread = world.borrower()
    world.slots.jobs.by_id[unread].is_described = False
    world.job(2, namespace="b")
    assert world.matched() == {}
    world.pass_time(2 * LACKS_FOR)
    assert world.ceiling(unread) is None
    world.slots.jobs.describe(unread, "a", 0, gang=False)
    world.pass_time(2 * LACKS_FOR)
    assert world.ceiling(unread) == 2
