"""Slots that were thought lost come back, and leave a namespace with more than its quota."""

from __future__ import annotations

import pytest

from emberkeep.base.ids import JobId
from emberkeep.slots.model import Allocation
from emberkeep.slots.namespace_quotas import NamespaceLimits
from emberkeep.slots.reclaim.terms import Preemption
from tests.unit.slots.reclaim.test_reclaimer import World
from tests.unit.slots.test_slot_manager import LOST_AFTER, Rig

pytestmark = pytest.mark.req("SEC-16")

QUOTA = NamespaceLimits(slots=2)


def at_its_quota(preemption: Preemption = Preemption.ELASTIC) -> World:
    return World({}, QUOTA, preemption)


def comes_back(world: World, job: JobId) -> Allocation:
    """A slot of the job that its JobMaster had given up is in a report again."""
    lost = world.slots_of(job)[0]
    world.held.remove(lost)
    world.pass_time(1.0)
    assert world.matched() == {job: 1}
    world.held.append(lost)
    world.pass_time(0.0)
    return lost


@pytest.mark.parametrize("preemption", [Preemption.NONE, Preemption.ELASTIC])
def test_a_job_gives_back_what_its_namespace_has_above_its_quota(preemption: Preemption) -> None:
    world = at_its_quota(preemption)
    job = world.borrower(3, namespace="a")
    assert len(world.held) == 2
    comes_back(world, job)
    world.pass_time(LOST_AFTER / 2)
    assert world.ceiling(job) is None, "for a moment slots may be counted twice"
    world.pass_time(LOST_AFTER)
    order = world.slots.reclaimer.order_for(job)
    assert order is not None
    assert not order.whole
    assert order.ceiling == 2
    assert order.reason == "namespace 'a' has 3 slots, and its quota is 2 (security.quota.slots-per-namespace)"

    world.says(job, leaving=1, follows=order)
    world.pass_time(1.0)
    assert world.ceiling(job) == 2, "until the slot is free"
    world.frees(job, 1)
    world.pass_time(1.0)
    assert world.ceiling(job) is None
    assert world.matched() == {}, "it does not get another one instead"
    world.pass_time(2 * LOST_AFTER)
    assert world.ceiling(job) is None


def test_the_newest_job_of_the_lowest_priority_gives_back_and_keeps_its_least() -> None:
    world = at_its_quota()
    older, newer = world.borrower(1, namespace="a"), world.borrower(1, namespace="a")
    lost = comes_back(world, newer)
    world.pass_time(2 * LOST_AFTER)
    assert (world.ceiling(older), world.ceiling(newer)) == (None, 1)
    world.held.remove(lost)
    world.pass_time(1.0)
    comes_back(world, older)
    world.pass_time(2 * LOST_AFTER)
    assert (world.ceiling(older), world.ceiling(newer)) == (1, None), "the newer one needs its only slot"


def test_a_job_that_can_give_nothing_back_is_not_asked() -> None:
    world = at_its_quota()
    job = world.borrower(3, namespace="a", least=0)
    comes_back(world, job)
    world.pass_time(2 * LOST_AFTER)
    assert world.ceiling(job) is None


def test_another_namespace_is_not_asked() -> None:
    world = at_its_quota()
    job, other, free = (world.borrower(1, namespace=name) for name in ("a", "b", ""))
    comes_back(world, job)
    world.pass_time(2 * LOST_AFTER)
    assert [world.ceiling(each) for each in (job, other, free)] == [None, None, None]


def test_a_lowered_quota_takes_nothing() -> None:
    before = Rig(NamespaceLimits(slots=4))
    before.add("tm-1")
    job = before.job(4, namespace="a")
    held = [allotted.allocation for allotted in before.match()]

    world = World({}, QUOTA, settled=False)
    world.held = held[:]
    assert world.job(4, namespace="a") == job
    world.pass_time(0.0)
    world.says(job)
    for _ in range(10):
        world.pass_time(LOST_AFTER)
        assert world.ceiling(job) is None
    world.frees(job, 1)
    world.pass_time(LOST_AFTER)
    world.held = held
    for _ in range(3):
        world.pass_time(LOST_AFTER)
    assert world.ceiling(job) == 3, "what it has given back is not its own any longer"
