"""The slot pool of an attempt that gives slots back to other jobs, step by step."""

from __future__ import annotations

import pytest

from emberkeep.base.ids import AllocationId, ExecutorId
from emberkeep.slots.model import Reclaim, SlotRequirement
from emberkeep.slots.pool.events import (
    ApplicationStarted,
    BeatNow,
    CeilingSet,
    ExecutorExited,
    PoolEffect,
    ReleaseSlotAt,
    RemoveExecutor,
    Tick,
)
from emberkeep.slots.pool.machine import SlotPool
from tests.property.slots.test_slot_pool import LIMITS, RUNTIME, SMALL
from tests.unit.slots.pool.test_elastic import declared, elastic, offer, saw

pytestmark = pytest.mark.req("RES-6")


def fixed(count: int) -> SlotPool:
    """An application with a fixed number of executors, all of which run."""
    pool = SlotPool(LIMITS)
    requirement = SlotRequirement(count=count, profile=SMALL, runtime=RUNTIME)
    pool.handle(ApplicationStarted(requirement, decommissions=True), 0.0)
    for number in range(count):
        offer(pool, number, now=0.1)
    saw(pool, *range(count), now=0.2)
    return pool


def ceiling(pool: SlotPool, count: int | None, *, now: float) -> list[PoolEffect]:
    order = None if count is None else Reclaim(ceiling=count, reason="job 7 waits")
    return pool.handle(CeilingSet(order), now)


def leaving(pool: SlotPool) -> list[str]:
    return sorted(pool.state.leaving())


def decommissioned(pool: SlotPool) -> set[str]:
    return set(pool.state.decommissioned(tuple(pool.state.held)))


def test_the_newest_executors_are_decommissioned_and_nothing_replaces_them() -> None:
    pool = elastic(3, registered=3)
    effects = ceiling(pool, 1, now=1.0)
    assert BeatNow() in effects, "another one can take over what they keep, so they begin at once"
    assert not [effect for effect in effects if isinstance(effect, RemoveExecutor)], "they hand over first"
    assert (leaving(pool), decommissioned(pool)) == (["1", "2"], {"al1", "al2"})
    assert declared(pool) == 1
    assert pool.state.waiting(1.0) == "2 slots are given back: job 7 waits"
    assert ceiling(pool, 1, now=1.5) == [], "the same again is no news"
    for number in (1, 2):
        effects = pool.handle(ExecutorExited(AllocationId(f"al{number}"), ExecutorId(str(number)), 0, ""), 5.0)
        assert ReleaseSlotAt(AllocationId(f"al{number}"), f"tm{number}:1") in effects
        assert [one.orderly for one in effects if isinstance(one, RemoveExecutor)] == [True]
    assert not pool.state.replacements.failures
    assert not offer(pool, 3, now=6.0), "it takes no further slot as long as there is a ceiling"

    ceiling(pool, None, now=7.0)
    assert declared(pool) == 3, "then it asks again for what it gave"
    assert offer(pool, 4, now=8.0)


def test_who_has_not_registered_goes_at_once() -> None:
    pool = elastic(3, registered=2)
    offer(pool, 2, now=0.5)
    effects = ceiling(pool, 2, now=1.0)
    assert ReleaseSlotAt(AllocationId("al2"), "tm2:1") in effects
    assert leaving(pool) == []


def test_the_last_executor_stays() -> None:
    pool = elastic(2, registered=2)
    ceiling(pool, 0, now=1.0)
    assert (leaving(pool), pool.state.staying) == (["1"], 1)


def test_an_attempt_that_is_put_back_keeps_no_slot_and_waits_without_a_limit() -> None:
    pool = fixed(2)
    effects = pool.handle(CeilingSet(Reclaim(ceiling=0, reason="job 7 waits", whole=True)), 1.0)
    assert BeatNow() in effects, "no other executor can take over, so they do not wait for one"
    assert (leaving(pool), decommissioned(pool)) == (["0", "1"], {"al0", "al1"})
    assert (declared(pool), pool.state.waiting(1.0)) == (0, "2 slots are given back: job 7 waits")
    for number in (0, 1):
        pool.handle(ExecutorExited(AllocationId(f"al{number}"), ExecutorId(str(number)), 0, ""), 5.0)
    pool.check_invariants()
    assert not offer(pool, 3, now=6.0)
    ceiling(pool, None, now=7.0)
    assert declared(pool) == 2
    assert not pool.handle(Tick(), 7.0 + 10 * LIMITS.request_timeout), "it was running, so it does not fail now"
    assert offer(pool, 4, now=9000.0)
    pool.check_invariants()


def test_a_ceiling_that_is_lifted_in_time_takes_nothing() -> None:
    pool = elastic(2, registered=2)
    pool.state.held[AllocationId("al0")].executor.takes_blocks = False  # nobody can take over yet
    ceiling(pool, 1, now=1.0)
    assert (leaving(pool), decommissioned(pool)) == (["1"], set())
    ceiling(pool, None, now=2.0)
    assert (leaving(pool), declared(pool)) == ([], 2)
    assert pool.state.waiting(2.0) == ""


def test_a_lost_executor_is_made_up_for_by_one_that_has_not_gone_yet() -> None:
    pool = elastic(2, registered=2)
    pool.state.held[AllocationId("al0")].executor.takes_blocks = False
    ceiling(pool, 1, now=1.0)
    pool.handle(ExecutorExited(AllocationId("al0"), ExecutorId("0"), -9, ""), 2.0)
    saw(pool, 1, now=2.1)
    assert declared(pool) == 1


def test_who_takes_too_long_is_ended() -> None:
    pool = elastic(2, registered=2)
    ceiling(pool, 1, now=1.0)
    late = 1.0 + LIMITS.reclaim_timeout
    saw(pool, 0, 1, now=late - 1)
    effects = pool.handle(Tick(), late)
    (lost,) = [one for one in effects if isinstance(one, RemoveExecutor)]
    assert "did not hand over its blocks and end within 25 s (slotmanager.preemption.timeout)" in lost.reason


def test_whose_executors_cannot_hand_over_gives_nothing_back() -> None:
    pool = SlotPool(LIMITS)
    requirement = SlotRequirement(count=2, profile=SMALL, runtime=RUNTIME)
    pool.handle(ApplicationStarted(requirement, decommissions=False), 0.0)
    offer(pool, 0, now=0.1)
    offer(pool, 1, now=0.1)
    saw(pool, 0, 1, now=0.2)
    ceiling(pool, 1, now=1.0)
    assert (leaving(pool), declared(pool), pool.state.waiting(1.0)) == ([], 2, "")


def test_a_fixed_number_gives_back_in_the_same_way() -> None:
    pool = fixed(2)
    ceiling(pool, 1, now=1.0)
    assert (leaving(pool), declared(pool)) == (["1"], 1)
    pool.check_invariants()
