"""What a slot pool does about executors and instances of task managers: offers, replies to beats, exits, silence."""

from __future__ import annotations

import msgspec
import pytest

from emberkeep.base.ids import AllocationId, ExecutorId, InstanceId
from emberkeep.slots.model import SlotRequirement
from emberkeep.slots.pool.events import (
    AcceptOffer,
    ApplicationStarted,
    BeatAnswered,
    ClusterLacks,
    ExecutorExited,
    ExecutorRuns,
    FailAttempt,
    FoundExecutor,
    PlacesBlocked,
    PoolEffect,
    ReleaseSlotAt,
    RemoveExecutor,
    SlotsOffered,
    SparkSaw,
    StartExecutorIn,
    StatusChanged,
    Tick,
)
from emberkeep.slots.pool.held_slot import ExecutorState
from emberkeep.slots.pool.machine import SlotPool
from emberkeep.slots.pool.task_manager_lives import REMEMBERED, TaskManagerLives
from tests.property.slots.test_slot_pool import LIMITS, RUNTIME, SMALL, Places, task_manager
from tests.unit.slots.test_slot_pool import slot_named

FIRST, SECOND = task_manager("tm0#1"), task_manager("tm0#2")
SUCCESSOR = msgspec.structs.replace(SECOND, predecessor=FIRST.instance)
SLOT, EXECUTOR = AllocationId("a"), ExecutorId("0")
RUNNING = FoundExecutor(SLOT, EXECUTOR, ExecutorState.RUNNING, pid=77)


def pool_of(count: int) -> SlotPool:
    pool = SlotPool(LIMITS)
    pool.handle(ApplicationStarted(SlotRequirement(count=count, profile=SMALL, runtime=RUNTIME)), 0.0)
    return pool


@pytest.fixture
def pool() -> SlotPool:
    """One executor runs in the only slot that is wanted."""
    pool = pool_of(1)
    offered = pool.handle(SlotsOffered(FIRST, (slot_named("a"),)), 0.0)
    assert offered == [AcceptOffer((SLOT,)), StartExecutorIn(SLOT), StatusChanged()]
    pool.handle(ExecutorRuns(SLOT, EXECUTOR, 77), 0.0)
    return pool


def answer(pool: SlotPool, *executors: FoundExecutor, holds: bool = True, now: float = 1.0) -> list[PoolEffect]:
    """The task manager replies to a beat about the slot."""
    held = (SLOT,) if holds else ()
    return pool.handle(BeatAnswered(FIRST.id, FIRST.instance, (SLOT,), held, executors), now)


def removals(effects: list[PoolEffect]) -> list[str]:
    return [effect.reason for effect in effects if isinstance(effect, RemoveExecutor)]


# --- replies to beats -------------------------------------------------------------------------------------------------


def test_a_slot_whose_executor_is_still_being_started_stays(pool: SlotPool) -> None:
    assert answer(pool) == []
    assert list(pool.state.held) == [SLOT]


def test_a_reply_shows_the_process_of_an_executor() -> None:
    pool = pool_of(1)
    pool.handle(SlotsOffered(FIRST, (slot_named("a"),)), 0.0)
    assert answer(pool, RUNNING) == [StatusChanged()]
    assert pool.state.held[SLOT].executor.pid == 77
    assert answer(pool, RUNNING) == []


def test_a_reply_shows_that_an_executor_has_ended(pool: SlotPool) -> None:
    effects = answer(pool, FoundExecutor(SLOT, EXECUTOR, None, pid=77, exit_code=-9, detail="out of memory"))
    assert removals(effects) == ["executor 0 on tm0 was killed by signal 9: out of memory"]
    assert pool.state.held == {}


def test_a_slot_that_its_task_manager_does_not_hold_any_more_is_lost(pool: SlotPool) -> None:
    effects = answer(pool, holds=False)
    assert removals(effects) == ["executor 0 on tm0 is lost: its task manager no longer holds the slot"]
    assert pool.state.held == {}


def test_an_executor_that_was_never_seen_to_run_is_not_reported_as_lost() -> None:
    pool = pool_of(1)
    pool.handle(SlotsOffered(FIRST, (slot_named("a"),)), 0.0)
    (gone,) = [effect for effect in answer(pool, holds=False) if isinstance(effect, RemoveExecutor)]
    assert gone.orderly, "the order to start it may have been lost with its task manager"
    assert pool.state.held == {}


# --- exits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("exit_code", "detail", "text"),
    [
        (0, "", "ended with exit code 0"),
        (3, "", "ended with exit code 3"),
        (-9, "", "was killed by signal 9"),
        (1, "no space left on device", "ended with exit code 1: no space left on device"),
        (None, "", "has ended; its exit code is not known"),
    ],
)
def test_the_reason_why_an_executor_is_removed(pool: SlotPool, exit_code: int | None, detail: str, text: str) -> None:
    effects = pool.handle(ExecutorExited(SLOT, EXECUTOR, exit_code, detail), 1.0)
    assert removals(effects) == [f"executor 0 on tm0 {text}"]


def test_an_executor_that_never_ran_could_not_be_started() -> None:
    pool = pool_of(1)
    pool.handle(SlotsOffered(FIRST, (slot_named("a"),)), 0.0)
    (reason,) = removals(pool.handle(ExecutorExited(SLOT, EXECUTOR, None, "no such file"), 1.0))
    assert reason == "executor 0 on tm0 could not be started: no such file"


def test_the_attempt_fails_once_when_too_many_executors_end() -> None:
    pool = pool_of(LIMITS.max_failures + 3)
    failed = []
    for number in range(LIMITS.max_failures + 3):
        name = str(number)
        pool.handle(SlotsOffered(FIRST, (slot_named(name),)), float(number))
        pool.handle(ExecutorRuns(AllocationId(name), ExecutorId(name), 77), float(number))
    for number in range(LIMITS.max_failures + 3):
        effects = pool.handle(ExecutorExited(AllocationId(str(number)), ExecutorId(str(number)), 1, ""), 20.0)
        failed.append([effect for effect in effects if isinstance(effect, FailAttempt)] != [])
    assert failed == [False] * LIMITS.max_failures + [True, False, False]
    assert pool.state.target == 0


# --- what Spark sees --------------------------------------------------------------------------------------------------


def saw(pool: SlotPool, *executors: ExecutorId, now: float) -> list[PoolEffect]:
    return pool.handle(SparkSaw(frozenset(executors)), now)


def test_an_executor_may_take_its_time_to_register() -> None:
    pool = pool_of(1)
    pool.handle(SlotsOffered(FIRST, (slot_named("a"),)), 0.0)
    pool.handle(ExecutorRuns(SLOT, EXECUTOR, 77), 0.0)
    for now in (LIMITS.start_timeout / 2, LIMITS.start_timeout):
        answer(pool, now=now)
        assert saw(pool, now=now) == []
    answer(pool, now=LIMITS.start_timeout + 0.1)
    assert removals(saw(pool, now=LIMITS.start_timeout + 0.1)) == [
        "executor 0 on tm0 did not register with Spark in time"
    ]


def test_an_executor_that_spark_does_not_list_any_more_is_removed_after_a_while(pool: SlotPool) -> None:
    assert saw(pool, EXECUTOR, now=1.0) == [StatusChanged()]
    answer(pool, now=1.0 + LIMITS.silence_timeout)
    assert saw(pool, now=1.0 + LIMITS.silence_timeout) == []
    late = 1.1 + LIMITS.silence_timeout
    answer(pool, now=late)
    assert removals(saw(pool, now=late)) == ["executor 0 on tm0 is no longer known to Spark"]


def test_an_executor_that_spark_vouches_for_outlives_a_silent_task_manager_for_the_orphan_timeout(
    pool: SlotPool,
) -> None:
    saw(pool, EXECUTOR, now=LIMITS.orphan_timeout)
    assert removals(pool.handle(Tick(), LIMITS.orphan_timeout)) == []
    assert removals(pool.handle(Tick(), LIMITS.orphan_timeout + 0.5)) == [
        "executor 0 on tm0 is lost: its task manager has been silent for 40 s"
    ]


# --- instances of a task manager --------------------------------------------------------------------------------------


def test_offers_of_an_instance_that_another_has_replaced_are_late(pool: SlotPool) -> None:
    assert AcceptOffer((SLOT,)) in pool.handle(SlotsOffered(SUCCESSOR, (slot_named("a"),), (RUNNING,)), 1.0)
    assert pool.handle(SlotsOffered(FIRST, (slot_named("b"),)), 2.0) == []
    assert pool.handle(BeatAnswered(FIRST.id, FIRST.instance, (SLOT,), ()), 2.0) == []
    assert list(pool.state.held) == [SLOT]


def test_an_instance_is_replaced_also_if_nothing_was_held_there() -> None:
    pool = pool_of(1)
    pool.handle(SlotsOffered(SUCCESSOR, ()), 1.0)
    assert pool.handle(SlotsOffered(FIRST, (slot_named("a"),)), 2.0) == []


def test_an_executor_that_a_restarted_task_manager_has_taken_over_continues(pool: SlotPool) -> None:
    effects = pool.handle(SlotsOffered(SECOND, (slot_named("a"),), (RUNNING,)), 1.0)
    assert removals(effects) == []
    slot = pool.state.held[SLOT]
    assert (slot.task_manager, slot.executor.id, slot.executor.pid) == (SECOND, EXECUTOR, 77)


ENDED = FoundExecutor(SLOT, EXECUTOR, None, pid=77, exit_code=1, detail="killed")


@pytest.mark.parametrize(
    ("found", "registered", "orderly"), [((), False, True), ((), True, False), ((ENDED,), False, False)]
)
def test_an_executor_that_ended_while_its_task_manager_was_away_is_replaced_in_its_slot(
    pool: SlotPool, found: tuple[FoundExecutor, ...], registered: bool, orderly: bool
) -> None:
    """Its end is no loss if nothing shows that it has ever started."""
    if registered:
        saw(pool, EXECUTOR, now=1.0)
    effects = pool.handle(SlotsOffered(SECOND, (slot_named("a"),), found), 1.0)
    detail = ": killed" if found else ""
    assert [effect for effect in effects if isinstance(effect, RemoveExecutor | StartExecutorIn)] == [
        RemoveExecutor(EXECUTOR, FIRST.id, f"executor 0 ended while its task manager tm0 was away{detail}", orderly),
        StartExecutorIn(SLOT),
    ]
    assert pool.state.held[SLOT].executor.id == ExecutorId("1")


def test_an_executor_that_a_killed_task_manager_may_not_have_started_yet_is_not_reported_as_lost() -> None:
    pool = pool_of(1)
    pool.handle(SlotsOffered(FIRST, (slot_named("a"),)), 0.0)
    found = FoundExecutor(SLOT, EXECUTOR, None, pid=0, detail="ended, or was not started yet")
    effects = pool.handle(SlotsOffered(SECOND, (slot_named("a"),), (found,)), 1.0)
    (gone,) = [effect for effect in effects if isinstance(effect, RemoveExecutor)]
    assert gone.orderly
    assert StartExecutorIn(SLOT) in effects


def test_an_executor_that_a_restarted_task_manager_has_never_heard_of_is_requested_there_again() -> None:
    """The first request may still arrive: it must not start an executor that this attempt does not know."""
    pool = pool_of(1)
    pool.handle(SlotsOffered(FIRST, (slot_named("a"),)), 0.0)

    effects = pool.handle(SlotsOffered(SECOND, (slot_named("a"),)), 1.0)

    assert StartExecutorIn(SLOT) in effects
    assert removals(effects) == []
    assert pool.state.held[SLOT].executor.id == EXECUTOR


def test_an_instance_is_over_for_as_long_as_its_messages_may_be_late() -> None:
    lives = TaskManagerLives(late=10.0)
    assert not lives.is_over(FIRST.instance, 0.0)
    lives.end(FIRST.instance, 0.0)
    assert lives.is_over(FIRST.instance, 9.9)
    assert not lives.is_over(FIRST.instance, 10.0), "so it is alive"
    lives.end(FIRST.instance, 20.0)
    assert lives.is_over(FIRST.instance, 29.0)
    assert not lives.is_over(SECOND.instance, 20.0)


def test_the_instances_that_ended_longest_ago_are_forgotten_first() -> None:
    lives = TaskManagerLives(late=10.0)
    for number in range(REMEMBERED):
        lives.end(InstanceId(str(number)), 0.0)
    lives.end(InstanceId("0"), 1.0)
    lives.end(InstanceId("one more"), 1.0)
    assert [lives.is_over(InstanceId(name), 2.0) for name in ("0", "1", "one more")] == [True, False, True]


def test_a_slot_on_a_blocked_node_is_given_back_unless_its_executor_runs_there() -> None:
    pool = pool_of(1)
    pool.handle(SlotsOffered(FIRST, (slot_named("a"),)), 0.0)
    effects = pool.handle(PlacesBlocked(Places(blocked=frozenset({FIRST.id}))), 1.0)
    assert ReleaseSlotAt(SLOT, FIRST.address) in effects
    assert pool.state.held == {}


# --- what is missing --------------------------------------------------------------------------------------------------


def test_what_the_cluster_lacks_is_named_while_slots_are_missing() -> None:
    pool = pool_of(1)
    pool.handle(ClusterLacks("no task manager is registered"), 0.0)
    assert pool.state.waiting(0.0) == "no task manager is registered"
    pool.handle(SlotsOffered(FIRST, (slot_named("a"),)), 1.0)
    assert pool.state.waiting(1.0) == ""


def test_during_the_pause_before_a_replacement_nothing_else_is_missing(pool: SlotPool) -> None:
    pool.handle(ExecutorExited(SLOT, EXECUTOR, 1, ""), 0.5)
    pool.handle(SlotsOffered(FIRST, (slot_named("b"),)), 0.5)
    pool.handle(ExecutorRuns(AllocationId("b"), ExecutorId("1"), 78), 0.5)
    pool.handle(ClusterLacks("all slots are taken"), 0.5)
    pool.handle(ExecutorExited(AllocationId("b"), ExecutorId("1"), 1, ""), 1.0)
    assert pool.state.waiting(1.2) == "1 of 1 executors ended and will be replaced, the next one in 0.3 s"
    pool.handle(Tick(), 1.5)
    assert pool.state.waiting(1.5) == "all slots are taken"


@pytest.mark.parametrize(("lacks", "fails"), [(ClusterLacks("no room"), True), (ClusterLacks("no room", True), False)])
def test_an_attempt_without_any_slot_fails_after_a_while_unless_unblocking_nodes_may_help(
    lacks: ClusterLacks, fails: bool
) -> None:
    pool = pool_of(1)
    pool.handle(lacks, 0.0)
    effects = pool.handle(Tick(), LIMITS.request_timeout + 1.0)
    assert any(isinstance(effect, FailAttempt) for effect in effects) == fails
