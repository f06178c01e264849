"""Reserved standbys in the pool of a task manager: cases."""

from __future__ import annotations

import pytest

from emberkeep.base.errors import IllegalTransition
from emberkeep.base.ids import JobId
from emberkeep.slots.standbys.back_off import FIRST_PAUSE
from emberkeep.slots.standbys.events import (
    EndStandby,
    Look,
    Prepared,
    PrepareStandby,
    Reserve,
    StandbyEffect,
    StandbyEnded,
    StandbyEvent,
    StandbyKind,
    StandbyProfile,
    StandbyTaken,
    StartStandby,
    TakeEnded,
    Warmed,
)
from emberkeep.slots.standbys.machine import PRESSURE_SECONDS, StandbyPool

DRIVER, EXECUTOR = StandbyProfile(StandbyKind.DRIVER, 1024), StandbyProfile(StandbyKind.EXECUTOR, 1024)
LARGE = StandbyProfile(StandbyKind.DRIVER, 4096)
ONE, TWO = JobId("1" * 32), JobId("2" * 32)
FREE = Look(free_mb=100_000, is_busy=False)
BUSY = Look(free_mb=100_000, is_busy=True)


def handled(pool: StandbyPool, *events: StandbyEvent, now: float = 0.0) -> list[StandbyEffect]:
    """Return the effects of the last event."""
    effects: list[StandbyEffect] = []
    for event in events:
        effects = pool.handle(event, now)
        pool.check_invariants()
    return effects


def with_ready_driver(executors: int = 0) -> StandbyPool:
    """Return a pool for one driver, which is ready as ``driver-1``."""
    sizes = {StandbyKind.DRIVER: 1, StandbyKind.EXECUTOR: executors}
    pool = StandbyPool(sizes, {StandbyKind.DRIVER: DRIVER, StandbyKind.EXECUTOR: EXECUTOR})
    assert handled(pool, FREE) == [StartStandby("driver-1", DRIVER)]
    handled(pool, Warmed("driver-1"))
    return pool


def with_reserved(profile: StandbyProfile = DRIVER) -> StandbyPool:
    """Return a pool with a reserved standby for job ONE. The id of what it keeps for any job is ``driver-2``, if any.

    The reserved one is ``driver-1`` with DRIVER, else ``driver-2``.
    """
    pool = with_ready_driver()
    handled(pool, Reserve({ONE: profile}))
    for standby_id in ("driver-1", "driver-2"):
        handled(pool, Prepared(standby_id), Warmed(standby_id), Prepared(standby_id))
    assert pool.reserved() == {ONE: ""}
    return pool


def test_a_ready_process_becomes_the_jobs_and_another_one_is_started_for_any_job() -> None:
    pool = with_ready_driver()
    assert handled(pool, Reserve({ONE: DRIVER})) == [PrepareStandby("driver-1", ONE), StartStandby("driver-2", DRIVER)]
    assert pool.reserved() == {ONE: "it still imports what the job needs"}
    assert pool.count_ready()[StandbyKind.DRIVER] == 0
    assert handled(pool, Prepared("driver-1")) == []
    assert pool.reserved() == {ONE: ""}
    handled(pool, Warmed("driver-2"))
    assert pool.count_ready()[StandbyKind.DRIVER] == 1, "the reserved one is no other job's to take"


def test_a_process_of_the_jobs_own_profile_is_started_for_it_before_others() -> None:
    pool = with_ready_driver(executors=1)
    handled(pool, StandbyEnded("executor-2", "killed"))
    assert handled(pool, Reserve({ONE: LARGE})) == [StartStandby("driver-3", LARGE)]
    assert pool.reserved() == {ONE: "it is still warming up"}
    assert handled(pool, Warmed("driver-3"))[0] == PrepareStandby("driver-3", ONE)
    handled(pool, Prepared("driver-3"))
    assert pool.ready(LARGE, ONE) == "driver-3"
    assert pool.ready(DRIVER) == "driver-1"


def test_the_job_takes_its_own_and_others_do_not_get_it() -> None:
    pool = with_reserved()
    assert pool.ready(DRIVER, ONE) == "driver-1"
    assert pool.ready(DRIVER, TWO) == pool.ready(DRIVER) == "driver-2"
    handled(pool, BUSY, StandbyTaken("driver-2"))
    assert pool.ready(DRIVER, TWO) is None
    assert pool.why_none(DRIVER, TWO) == "no standby driver was ready"
    handled(pool, StandbyTaken("driver-1"), TakeEnded(DRIVER, failed=False, job_id=ONE))
    assert pool.reserved() == {ONE: "it has not been started yet"}
    assert handled(pool, FREE)[0] == StartStandby("driver-3", DRIVER)


def test_a_process_that_is_being_prepared_is_not_taken() -> None:
    pool = with_ready_driver()
    handled(pool, Reserve({ONE: DRIVER}))
    assert pool.ready(DRIVER, ONE) is None
    assert pool.why_none(DRIVER, ONE) == "the standby driver was still importing what the job needs"
    with pytest.raises(IllegalTransition):
        pool.handle(StandbyTaken("driver-1"), 0.0)


@pytest.mark.parametrize("profiles", [{}, {TWO: LARGE}, {ONE: LARGE}], ids=["nobody's", "another job's", "a new size"])
def test_a_process_is_ended_once_its_job_needs_it_no_longer(profiles: dict[JobId, StandbyProfile]) -> None:
    pool = with_reserved()
    ended = EndStandby("driver-1", "its job needs it no longer")
    assert handled(pool, BUSY, Reserve(profiles)) == [ended]
    assert pool.ready(DRIVER, ONE) == "driver-2"
    assert handled(pool, StandbyEnded("driver-1"), FREE) == [
        StartStandby("driver-3", profile) for profile in profiles.values()
    ]


def test_a_warm_up_for_a_job_that_needs_it_no_longer_ends() -> None:
    pool = with_ready_driver()
    handled(pool, Reserve({ONE: LARGE}))
    assert handled(pool, Reserve({})) == [EndStandby("driver-2", "its job needs it no longer")]
    assert handled(pool, Warmed("driver-2")) == []
    assert handled(pool, StandbyEnded("driver-2"), Reserve({ONE: LARGE})) == [StartStandby("driver-3", LARGE)]


def test_a_pool_without_drivers_reserves_none() -> None:
    pool = StandbyPool({StandbyKind.DRIVER: 0, StandbyKind.EXECUTOR: 0}, {})
    assert handled(pool, FREE, Reserve({ONE: DRIVER})) == []
    assert pool.reserved() == {}


# --- memory -----------------------------------------------------------------------------------------------------------


def test_under_pressure_what_is_reserved_ends_last() -> None:
    pool = with_reserved()
    less = Look(free_mb=1500, is_busy=False)
    handled(pool, less)
    assert handled(pool, less, now=PRESSURE_SECONDS) == [EndStandby("driver-2", "slots and drivers need its memory")]
    handled(pool, StandbyEnded("driver-2"), less, now=PRESSURE_SECONDS)
    assert pool.ready(DRIVER, ONE) == "driver-1"
    none = Look(free_mb=0, is_busy=False)
    handled(pool, none, now=20.0)
    assert handled(pool, none, now=20.0 + PRESSURE_SECONDS) == [
        EndStandby("driver-1", "slots and drivers need its memory")
    ]
    handled(pool, StandbyEnded("driver-1"), now=30.0)
    assert pool.reserved() == {ONE: "slots and drivers leave too little memory: it needs 1408 MiB"}


def test_another_process_ends_where_the_reserved_one_needs_its_memory() -> None:
    pool = with_ready_driver()
    tight = Look(free_mb=LARGE.memory_mb, is_busy=False)
    ends = [EndStandby("driver-1", "a job's reserved standby needs its memory")]
    assert handled(pool, tight, Reserve({ONE: LARGE})) == ends
    assert handled(pool, StandbyEnded("driver-1")) == [StartStandby("driver-2", LARGE)]


def with_two_executors() -> StandbyPool:
    """Return a pool with job ONE's reserved standby and, for any job, a driver and two executors, all of one size."""
    sizes = {StandbyKind.DRIVER: 1, StandbyKind.EXECUTOR: 1}
    pool = StandbyPool(sizes, {StandbyKind.DRIVER: DRIVER, StandbyKind.EXECUTOR: EXECUTOR}, slots=4)
    handled(pool, FREE, Warmed("driver-1"), Reserve({ONE: DRIVER}), Prepared("driver-1"))
    for number in (2, 3, 4):
        for kind in StandbyKind:
            handled(pool, Warmed(f"{kind.value}-{number}"))
    assert pool.count_ready() == {StandbyKind.DRIVER: 1, StandbyKind.EXECUTOR: 2}
    return pool


def test_as_many_others_end_as_the_reserved_one_needs_and_none_takes_their_memory() -> None:
    pool = with_two_executors()
    tight = Look(free_mb=2 * DRIVER.memory_mb + LARGE.memory_mb, is_busy=False)
    handled(pool, tight)
    effects = handled(pool, Reserve({ONE: DRIVER, TWO: LARGE}))
    ended = [effect.standby_id for effect in effects if isinstance(effect, EndStandby)]
    assert len(effects) == len(ended) == 2
    assert handled(pool, tight) == [], "they are on their way"
    assert handled(pool, StandbyEnded(ended[0])) == []
    assert handled(pool, StandbyEnded(ended[1])) == [StartStandby("driver-5", LARGE)]


def test_nothing_ends_where_that_would_not_make_enough_room() -> None:
    pool = with_ready_driver()
    assert handled(pool, Look(free_mb=LARGE.memory_mb - 1, is_busy=False), Reserve({ONE: LARGE})) == []


# --- failures ---------------------------------------------------------------------------------------------------------


def test_a_failure_while_it_is_prepared_delays_only_the_jobs_next_one_which_imports_nothing() -> None:
    pool = with_ready_driver()
    handled(pool, Reserve({ONE: DRIVER}), Warmed("driver-2"))
    assert handled(pool, StandbyEnded("driver-1", "it has ended")) == []
    assert pool.reserved() == {ONE: "the last one has failed; see the task manager's log"}
    assert pool.ready(DRIVER) == "driver-2"
    assert pool.why_none(DRIVER, ONE) == "the last such standby driver has failed; see the task manager's log"
    assert handled(pool, FREE, now=FIRST_PAUSE - 1) == []
    prepared, _ = handled(pool, FREE, now=FIRST_PAUSE)
    assert prepared == PrepareStandby("driver-2", ONE, imports=False)


def test_after_a_take_that_worked_the_next_one_imports_again() -> None:
    pool = with_ready_driver()
    handled(pool, Reserve({ONE: DRIVER}), StandbyEnded("driver-1"), Warmed("driver-2"))
    handled(pool, FREE, Prepared("driver-2"), StandbyTaken("driver-2"), now=FIRST_PAUSE)
    handled(pool, TakeEnded(DRIVER, failed=False, job_id=ONE))
    assert handled(pool, Warmed("driver-3"))[0] == PrepareStandby("driver-3", ONE, imports=True)


def test_a_take_that_fails_counts_for_the_job() -> None:
    pool = with_reserved()
    handled(pool, BUSY, StandbyTaken("driver-1"), TakeEnded(DRIVER, failed=True, job_id=ONE))
    assert pool.reserved() == {ONE: "the last one has failed; see the task manager's log"}
    assert pool.ready(DRIVER) == "driver-2"


def with_executors(slots: int) -> StandbyPool:
    """Return a pool that keeps one executor for any job, which is ready as ``executor-2``."""
    sizes = {StandbyKind.DRIVER: 1, StandbyKind.EXECUTOR: 1}
    pool = StandbyPool(sizes, {StandbyKind.DRIVER: DRIVER, StandbyKind.EXECUTOR: EXECUTOR}, slots)
    handled(pool, FREE, Warmed("driver-1"), Warmed("executor-2"))
    assert pool.count_ready() == {StandbyKind.DRIVER: 1, StandbyKind.EXECUTOR: 1}
    return pool


def warmed(pool: StandbyPool) -> int:
    """Warm and prepare all that the pool starts. Return how many executors any job can take."""
    for _ in range(10):
        for standby in pool.standbys():
            handled(pool, FREE, Warmed(standby.standby_id), Prepared(standby.standby_id))
    return pool.count_ready()[StandbyKind.EXECUTOR]


@pytest.mark.parametrize(("slots", "kept"), [(1, 1), (2, 2), (3, 3), (9, 3)])
def test_a_reserved_standby_brings_one_executor_more_than_otherwise_up_to_the_slots(slots: int, kept: int) -> None:
    pool = with_executors(slots)
    handled(pool, Reserve({ONE: DRIVER, TWO: DRIVER}))
    assert warmed(pool) == pool.size(StandbyKind.EXECUTOR) == kept


def test_executors_are_ended_once_no_reserved_standby_needs_them() -> None:
    pool = with_executors(slots=3)
    handled(pool, Reserve({ONE: DRIVER}))
    assert warmed(pool) == 2
    newest = [each.standby_id for each in pool.standbys() if each.profile == EXECUTOR][-1]
    assert EndStandby(newest, "no reserved standby needs it any longer") in handled(pool, Reserve({}))
    assert pool.count_ready()[StandbyKind.EXECUTOR] == 1


def test_a_pool_that_keeps_no_executors_keeps_none_for_reserved_standbys() -> None:
    pool = with_ready_driver()
    handled(pool, Reserve({ONE: DRIVER}))
    assert warmed(pool) == 0
