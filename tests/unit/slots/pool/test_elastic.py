"""The slot pool of an application with dynamic allocation, step by step."""

from __future__ import annotations

import pytest

from emberkeep.base.ids import AllocationId, ExecutorId, JobId
from emberkeep.slots.model import Allocation, SlotRequirement
from emberkeep.slots.pool.events import (
    AcceptOffer,
    ApplicationStarted,
    ApplicationStopping,
    BeatAnswered,
    BeatNow,
    ExecutorExited,
    ExecutorRuns,
    ExecutorsDemanded,
    FailAttempt,
    FoundExecutor,
    PlacesBlocked,
    PoolEffect,
    ReleaseSlotAt,
    RemoveExecutor,
    SlotsOffered,
    SparkSaw,
    StatusChanged,
    Tick,
)
from emberkeep.slots.pool.held_slot import ExecutorState
from emberkeep.slots.pool.machine import SlotPool
from tests.property.slots.test_slot_pool import LIMITS, RUNTIME, SMALL, Places, task_manager

IDLE = 5.0
INFO = task_manager("tm0#1")


def slot(number: int) -> Allocation:
    return Allocation(
        id=AllocationId(f"al{number}"),
        slot_index=number,
        job_id=JobId("1" * 32),
        attempt=1,
        profile=SMALL,
        job_master="jm:1",
    )


def elastic(initial: int, *, registered: int = 0) -> SlotPool:
    """An application that wants ``initial`` executors first; ``registered`` ones run, 0 on tm0, 1 on tm1, …"""
    pool = SlotPool(LIMITS)
    requirement = SlotRequirement(count=initial, profile=SMALL, runtime=RUNTIME)
    pool.handle(ApplicationStarted(requirement, decommissions=True, idle_timeout=IDLE), 0.0)
    for number in range(registered):
        offer(pool, number, now=0.0)
        pool.handle(ExecutorRuns(AllocationId(f"al{number}"), ExecutorId(str(number)), 10 + number), 0.0)
    saw(pool, *range(registered), now=0.0)
    return pool


def offer(pool: SlotPool, number: int, *, now: float) -> bool:
    effects = pool.handle(SlotsOffered(task_manager(f"tm{number}#1"), (slot(number),)), now)
    return any(isinstance(effect, AcceptOffer) and effect.allocations for effect in effects)


def saw(pool: SlotPool, *executors: int, now: float) -> list[PoolEffect]:
    names = frozenset(ExecutorId(str(executor)) for executor in executors)
    for number in range(3):
        info = task_manager(f"tm{number}#1")
        pool.handle(BeatAnswered(info.id, info.instance, (), ()), now)
    return pool.handle(SparkSaw(names, takers=names), now)


def demand(
    pool: SlotPool, count: int, *, decommissioned: tuple[int, ...] = (), killed: tuple[int, ...] = (), now: float
) -> list[PoolEffect]:
    leaving, ended = (frozenset(ExecutorId(str(one)) for one in group) for group in (decommissioned, killed))
    return pool.handle(ExecutorsDemanded(count, leaving, ended), now)


def declared(pool: SlotPool) -> int:
    return sum(requirement.count for requirement in pool.state.declared())


@pytest.mark.req("ELASTIC-1")
def test_the_request_for_slots_follows_what_spark_wants() -> None:
    pool = elastic(1, registered=1)
    assert demand(pool, 3, now=1.0) == [StatusChanged()]
    assert declared(pool) == 3
    assert demand(pool, 3, now=1.1) == [], "the same number is no news"
    assert offer(pool, 1, now=1.2)
    demand(pool, 1, now=1.3)
    assert declared(pool) == 2, "what is held is not given up by itself, and nothing more is requested"
    assert not offer(pool, 2, now=1.4), "a slot that comes too late is refused"


@pytest.mark.req("ELASTIC-3")
def test_who_spark_decommissions_ends_by_itself_without_a_failure_a_pause_or_a_replacement() -> None:
    pool = elastic(3, registered=3)
    demand(pool, 1, now=1.0)
    demand(pool, 1, decommissioned=(1, 2), now=2.0)
    assert (pool.state.staying, declared(pool)) == (1, 3), "its slots are taken until they have ended"
    demand(pool, 2, decommissioned=(1, 2), now=2.5)
    assert declared(pool) == 4, "what Spark wants anew is requested beside those that leave"
    demand(pool, 1, decommissioned=(1, 2), now=2.6)

    for number in (1, 2):
        effects = pool.handle(ExecutorExited(AllocationId(f"al{number}"), ExecutorId(str(number)), 0, ""), 5.0)
        assert ReleaseSlotAt(AllocationId(f"al{number}"), f"tm{number}:1") in effects
        assert [one.orderly for one in effects if isinstance(one, RemoveExecutor)] == [True]
    assert (declared(pool), pool.state.waiting(5.0)) == (1, "")
    assert not pool.state.replacements.pauses
    assert not pool.state.replacements.failures


def test_who_spark_kills_is_ended_here_because_nobody_else_does() -> None:
    pool = elastic(2, registered=2)
    effects = demand(pool, 1, killed=(1,), now=1.0)
    assert ReleaseSlotAt(AllocationId("al1"), "tm1:1") in effects
    assert [(one.executor_id, one.orderly) for one in effects if isinstance(one, RemoveExecutor)] == [("1", True)]
    assert declared(pool) == 1
    assert not pool.state.replacements.failures


def test_a_loss_beyond_what_is_wanted_is_a_failure_but_nothing_replaces_it() -> None:
    pool = elastic(3, registered=3)
    demand(pool, 1, now=1.0)
    for number in (0, 1):
        effects = pool.handle(ExecutorExited(AllocationId(f"al{number}"), ExecutorId(str(number)), -9, ""), 2.0)
        assert [one.orderly for one in effects if isinstance(one, RemoveExecutor)] == [False]
    assert (pool.state.staying, declared(pool)) == (1, 1)
    assert len(pool.state.replacements.failures) == 2
    pool.handle(ExecutorExited(AllocationId("al2"), ExecutorId("2"), -9, ""), 3.0)
    assert (pool.state.target, declared(pool)) == (0, 0), "now one is missing, and its replacement waits"
    assert "will be replaced" in pool.state.waiting(3.0)
    demand(pool, 0, now=3.1)
    assert not pool.state.replacements.pauses, "nothing is wanted, so nothing waits"


def test_an_executor_that_has_not_registered_is_cancelled_once_it_was_unwanted_for_the_idle_timeout() -> None:
    pool = elastic(3, registered=1)
    offer(pool, 1, now=1.0)
    offer(pool, 2, now=2.0)
    demand(pool, 1, now=3.0)
    demand(pool, 2, now=5.0)
    demand(pool, 1, now=6.0)
    assert not pool.handle(Tick(), 3.0 + IDLE - 0.1), "between two stages less is wanted for a moment"
    effects = pool.handle(Tick(), 3.0 + IDLE)
    assert ReleaseSlotAt(AllocationId("al1"), "tm1:1") in effects
    assert ReleaseSlotAt(AllocationId("al2"), "tm2:1") in effects
    assert all(one.orderly for one in effects if isinstance(one, RemoveExecutor))
    assert list(pool.state.held) == ["al0"]


def test_the_newest_is_cancelled_and_what_spark_knows_is_never_chosen_here() -> None:
    pool = elastic(3, registered=1)
    offer(pool, 1, now=1.0)
    offer(pool, 2, now=2.0)
    demand(pool, 2, now=3.0)
    pool.handle(Tick(), 3.0 + IDLE)
    assert list(pool.state.held) == ["al0", "al1"]
    saw(pool, 0, 1, now=9.0)
    demand(pool, 0, now=10.0)
    saw(pool, 0, 1, now=30.0)
    pool.handle(Tick(), 30.0)
    assert list(pool.state.held) == ["al0", "al1"], "idle ones are Spark's to remove"


def test_an_application_without_executors_waits_for_new_slots_without_a_limit() -> None:
    pool = elastic(1, registered=1)
    demand(pool, 0, killed=(0,), now=1.0)
    assert not pool.state.held
    demand(pool, 4, now=2.0)
    assert not pool.handle(Tick(), 2.0 + 10 * LIMITS.request_timeout)

    new = elastic(1)
    pool.handle(Tick(), 1.0)
    (failure,) = (one for one in new.handle(Tick(), LIMITS.request_timeout) if isinstance(one, FailAttempt))
    assert "slot.request.timeout" in failure.message, "one that never had a slot fails, as every job does"


def test_the_next_application_of_a_driver_has_to_get_a_first_slot_again() -> None:
    pool = elastic(1, registered=1)
    requirement = SlotRequirement(count=1, profile=SMALL, runtime=RUNTIME)
    pool.handle(ApplicationStarted(requirement, decommissions=True, idle_timeout=IDLE), 1.0)
    effects = pool.handle(Tick(), 1.0 + LIMITS.request_timeout)
    assert any(isinstance(one, FailAttempt) for one in effects)


@pytest.mark.req("BLK-18")
def test_an_evacuated_executor_gets_a_successor_even_if_spark_wants_none() -> None:
    pool = elastic(1, registered=1)
    demand(pool, 0, now=1.0)
    assert declared(pool) == 1, "it keeps blocks, so Spark does not remove it"
    pool.handle(PlacesBlocked(Places(frozenset({"tm0"}), frozenset({"tm0"}))), 2.0)
    assert declared(pool) == 1, "a successor"
    assert offer(pool, 1, now=2.5)
    assert BeatNow() in saw(pool, 0, 1, now=3.0)
    assert pool.state.decommissioned([AllocationId("al0")])
    pool.handle(ExecutorExited(AllocationId("al0"), ExecutorId("0"), 0, ""), 4.0)
    assert (pool.state.wanted, pool.state.staying) == (0, 1)


@pytest.mark.req("BLK-18")
def test_an_evacuated_executor_hands_nothing_over_to_one_that_spark_removes() -> None:
    pool = elastic(2, registered=2)
    demand(pool, 1, decommissioned=(1,), now=1.0)
    pool.handle(PlacesBlocked(Places(frozenset({"tm0"}), frozenset({"tm0"}))), 2.0)
    assert BeatNow() not in saw(pool, 0, 1, now=2.5)
    assert not pool.state.decommissioned([AllocationId("al0")]), "Spark would drop its blocks"
    assert offer(pool, 2, now=3.0)
    pool.handle(ExecutorRuns(AllocationId("al2"), ExecutorId("2"), 12), 3.1)
    assert BeatNow() in saw(pool, 0, 1, 2, now=3.5)
    assert pool.state.decommissioned([AllocationId("al0")])


def test_a_dismissed_executor_on_an_evacuated_place_leaves_within_its_bound() -> None:
    pool = elastic(2, registered=2)
    demand(pool, 1, decommissioned=(1,), now=1.0)
    pool.handle(PlacesBlocked(Places(frozenset({"tm1"}), frozenset({"tm1"}))), 2.0)
    assert pool.state.leaving() == {ExecutorId("1")}
    saw(pool, 0, 1, now=3.0)
    saw(pool, 0, 1, now=2.0 + LIMITS.evacuation_timeout)
    assert list(pool.state.held) == ["al0"]


def test_a_dismissed_executor_whose_task_manager_is_away_when_it_ends_is_not_reported_as_lost() -> None:
    pool = elastic(2, registered=2)
    demand(pool, 1, decommissioned=(1,), now=1.0)
    pool.handle(SparkSaw(frozenset({ExecutorId("0")})), 5.0)
    pool.handle(BeatAnswered(INFO.id, INFO.instance, (), ()), 9.0)
    effects = pool.handle(Tick(), 1.0 + LIMITS.silence_timeout)
    assert [(one.executor_id, one.orderly) for one in effects if isinstance(one, RemoveExecutor)] == [("1", True)]
    assert declared(pool) == 1


def test_a_restarted_task_manager_keeps_what_runs_and_gets_no_executor_that_nobody_wants() -> None:
    pool = elastic(2, registered=2)
    demand(pool, 1, now=1.0)
    runs = FoundExecutor(AllocationId("al0"), ExecutorId("0"), ExecutorState.RUNNING, 10)
    pool.handle(SlotsOffered(task_manager("tm0#2"), (slot(0),), (runs,)), 2.0)
    assert "al0" in pool.state.held
    ended = FoundExecutor(AllocationId("al1"), ExecutorId("1"), None, 11, -9)
    effects = pool.handle(SlotsOffered(task_manager("tm1#2"), (slot(1),), (ended,)), 2.0)
    assert ReleaseSlotAt(AllocationId("al1"), "tm1:1") in effects
    assert list(pool.state.held) == ["al0"]


def test_what_spark_wants_is_ignored_while_it_stops_and_where_the_number_is_fixed() -> None:
    pool = elastic(2, registered=2)
    pool.handle(ApplicationStopping(), 1.0)
    assert demand(pool, 0, killed=(0,), now=1.1) == []
    assert len(pool.state.held) == 2

    fixed = SlotPool(LIMITS)
    fixed.handle(ApplicationStarted(SlotRequirement(count=2, profile=SMALL, runtime=RUNTIME)), 0.0)
    assert demand(fixed, 5, now=1.0) == []
    assert declared(fixed) == 2


def test_executors_of_another_size_are_refused_with_the_way_out() -> None:
    pool = elastic(1)
    effects = pool.handle(ExecutorsDemanded(1, others=2), 1.0)
    (failure,) = (one for one in effects if isinstance(one, FailAttempt))
    assert "instead of a ResourceProfile" in failure.message
    assert not pool.handle(ExecutorsDemanded(1, others=2), 1.2), "the attempt fails once"
