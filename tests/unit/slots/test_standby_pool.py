"""Which standby processes a task manager keeps: cases."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from emberkeep.base.errors import IllegalTransition
from emberkeep.slots.standbys.back_off import FIRST_PAUSE, LONGEST_PAUSE
from emberkeep.slots.standbys.events import (
    Asked,
    EndStandby,
    Look,
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
from emberkeep.slots.standbys.members import StandbyState

DRIVER, EXECUTOR = StandbyProfile(StandbyKind.DRIVER, 1024), StandbyProfile(StandbyKind.EXECUTOR, 1024)
LARGE = StandbyProfile(StandbyKind.DRIVER, 4096)
WITH_OPTIONS = StandbyProfile(StandbyKind.DRIVER, 1024, ("-Xss4m",))
PLENTY = 100_000  # MiB
FREE = Look(free_mb=PLENTY, is_busy=False)
BUSY = Look(free_mb=PLENTY, is_busy=True)
FULL = Look(free_mb=0, is_busy=False)


def pool(drivers: int = 1, executors: int = 1) -> StandbyPool:
    sizes = {StandbyKind.DRIVER: drivers, StandbyKind.EXECUTOR: executors}
    return StandbyPool(sizes, {StandbyKind.DRIVER: DRIVER, StandbyKind.EXECUTOR: EXECUTOR})


def handled(pool: StandbyPool, *events: StandbyEvent, now: float = 0.0) -> list[StandbyEffect]:
    """Return the effects of the last event."""
    effects: list[StandbyEffect] = []
    for event in events:
        effects = pool.handle(event, now)
        pool.check_invariants()
    return effects


def with_ready_driver(profile: StandbyProfile = DRIVER) -> StandbyPool:
    """Return a pool for one driver, with this profile, which is ready as ``driver-1``."""
    sizes = {StandbyKind.DRIVER: 1}
    found = StandbyPool(sizes, {StandbyKind.DRIVER: profile})
    assert handled(found, FREE) == [StartStandby("driver-1", profile)]
    handled(found, Warmed("driver-1"))
    return found


@pytest.mark.parametrize(("heap_mb", "memory_mb"), [(512, 896), (1024, 1408), (3840, 4224), (3850, 4235), (8192, 9011)])
def test_a_process_needs_its_heap_and_sparks_overhead(heap_mb: int, memory_mb: int) -> None:
    assert StandbyProfile(StandbyKind.DRIVER, heap_mb).memory_mb == memory_mb


def test_the_processes_are_warmed_one_after_the_other() -> None:
    kept = pool()
    assert handled(kept, FREE) == [StartStandby("driver-1", DRIVER)]
    assert handled(kept, FREE) == []
    assert handled(kept, Warmed("driver-1")) == [StartStandby("executor-2", EXECUTOR)]
    assert handled(kept, Warmed("executor-2"), FREE) == []
    assert [standby.state for standby in kept.standbys()] == [StandbyState.READY] * 2
    assert kept.memory_mb == 2 * 1408


@pytest.mark.parametrize(
    ("event", "started"),
    [
        (FREE, True),
        (BUSY, False),
        (Look(free_mb=1407, is_busy=False), False),
        (Look(free_mb=1408, is_busy=False), True),
        (Look(free_mb=-1, is_busy=False), False),
        (Asked(DRIVER), False),  # nothing is known of the memory before the first look
    ],
)
def test_when_a_process_starts(event: StandbyEvent, started: bool) -> None:
    assert handled(pool(), event) == ([StartStandby("driver-1", DRIVER)] if started else [])


def test_a_pool_of_size_0_starts_nothing() -> None:
    assert handled(pool(0, 0), FREE, Asked(DRIVER), FREE) == []


def test_a_taken_process_leaves_the_pool_and_is_replaced() -> None:
    kept = with_ready_driver()
    assert kept.ready(DRIVER) == "driver-1"
    assert handled(kept, BUSY, StandbyTaken("driver-1")) == []
    assert kept.ready(DRIVER) is None
    assert kept.memory_mb == 0
    assert handled(kept, FREE) == [StartStandby("driver-2", DRIVER)]


@pytest.mark.parametrize("event", [Warmed("unknown"), StandbyEnded("unknown")])
def test_a_late_event_of_a_process_that_has_left_changes_nothing(event: StandbyEvent) -> None:
    kept = with_ready_driver()
    before = kept.standbys()
    assert handled(kept, event) == []
    assert kept.standbys() == before


@pytest.mark.parametrize("warmed", [True, False])
def test_only_a_ready_process_is_taken(warmed: bool) -> None:
    kept = pool()
    handled(kept, FREE)
    if warmed:
        handled(kept, Warmed("driver-1"), StandbyTaken("driver-1"))
    with pytest.raises(IllegalTransition):
        kept.handle(StandbyTaken("driver-1"), 0.0)


# --- profiles ---------------------------------------------------------------------------------------------------------


def test_a_profile_that_jobs_ask_for_as_often_takes_the_place() -> None:
    kept = with_ready_driver()
    assert handled(kept, Asked(LARGE)) == [EndStandby("driver-1", "jobs ask for other processes now")]
    assert handled(kept, Warmed("driver-1"), FREE) == [], "its memory and its place are not free yet"
    assert handled(kept, StandbyEnded("driver-1")) == [StartStandby("driver-2", LARGE)]


def test_a_profile_that_jobs_ask_for_less_often_does_not_take_the_place() -> None:
    kept = with_ready_driver()
    assert handled(kept, Asked(DRIVER), Asked(LARGE), FREE) == []


def test_what_only_a_cold_process_can_do_is_not_learned() -> None:
    kept = with_ready_driver()
    assert handled(kept, *[Asked(LARGE, fits=False)] * 20, FREE) == []


def test_two_profiles_share_two_places() -> None:
    kept = pool(2, 0)
    handled(kept, FREE, Warmed("driver-1"), Warmed("driver-2"))
    assert handled(kept, Asked(LARGE)) == [EndStandby("driver-1", "jobs ask for other processes now")]
    assert handled(kept, StandbyEnded("driver-1")) == [StartStandby("driver-3", LARGE)]
    assert handled(kept, Warmed("driver-3"), FREE) == []


@pytest.mark.parametrize("look", [BUSY, Look(free_mb=1408, is_busy=False)], ids=["busy", "too little memory"])
def test_a_process_is_not_ended_for_one_that_cannot_start(look: Look) -> None:
    kept = with_ready_driver()
    assert handled(kept, look, Asked(LARGE)) == []
    assert kept.ready(DRIVER) == "driver-1"


def test_a_process_is_ended_where_the_wanted_one_needs_its_memory() -> None:
    kept = pool(2, 0)
    handled(kept, FREE, Warmed("driver-1"), Warmed("driver-2"), BUSY, StandbyTaken("driver-2"), *[Asked(LARGE)] * 2)
    assert kept.ready(DRIVER) == "driver-1"
    handled(kept, *[Asked(WITH_OPTIONS)] * 2)
    assert handled(kept, Look(free_mb=4480, is_busy=False)) == [StartStandby("driver-3", WITH_OPTIONS)]
    handled(kept, Warmed("driver-3"))
    assert handled(kept, Look(free_mb=5913, is_busy=False)) == [
        EndStandby("driver-1", "jobs ask for other processes now")
    ]


def test_a_standby_that_is_warming_up_is_replaced_once_it_is_ready() -> None:
    kept = pool(1, 0)
    assert handled(kept, FREE, Asked(LARGE)) == []
    assert handled(kept, Warmed("driver-1")) == [EndStandby("driver-1", "jobs ask for other processes now")]


# --- memory -----------------------------------------------------------------------------------------------------------


def test_reserved_memory_is_given_back_after_a_while_the_warming_process_first() -> None:
    kept = pool()
    handled(kept, FREE, Warmed("driver-1"))
    less = Look(free_mb=2000, is_busy=False)
    assert handled(kept, less, now=1.0) == []
    assert handled(kept, less, now=1.0 + PRESSURE_SECONDS - 0.1) == []
    ends = handled(kept, less, now=1.0 + PRESSURE_SECONDS)
    assert ends == [EndStandby("executor-2", "slots and drivers need its memory")]
    assert handled(kept, less, now=100.0) == []
    assert handled(kept, StandbyEnded("executor-2"), less, now=100.0) == [], "one fits, the other does not"
    assert handled(kept, FREE, now=100.0) == [StartStandby("executor-3", EXECUTOR)], "it was no failure"


def test_a_short_shortage_costs_nothing() -> None:
    kept = with_ready_driver()
    assert handled(kept, FULL, now=0.0) == []
    assert handled(kept, FREE, now=9.0) == []
    assert handled(kept, FULL, now=11.0) == []
    assert handled(kept, FULL, now=11.0 + PRESSURE_SECONDS) != []


def test_nothing_starts_during_a_shortage() -> None:
    kept = pool(1, 1)
    handled(kept, FREE, Warmed("driver-1"), StandbyEnded("executor-2"))
    assert handled(kept, FULL, now=FIRST_PAUSE) == []


# --- failures ---------------------------------------------------------------------------------------------------------


def pauses(failure: Callable[[str], Iterable[StandbyEvent]], times: int) -> list[float]:
    """Let one process after the other become ready and fail. Return the pauses before their successors start."""
    kept, now, found = pool(1, 0), 0.0, []
    effects = handled(kept, FREE)
    for _ in range(times):
        (start,) = effects
        assert isinstance(start, StartStandby)
        handled(kept, Warmed(start.standby_id), *failure(start.standby_id), now=now)
        failed_at = now
        while not (effects := handled(kept, FREE, now=now)):
            now += 1.0
        found.append(now - failed_at)
    return found


def test_the_pause_doubles_up_to_its_longest_even_if_each_process_becomes_ready() -> None:
    found = pauses(lambda standby: [StandbyEnded(standby, "killed")], 8)
    assert found == [15.0, 30.0, 60.0, 120.0, 240.0, 480.0, LONGEST_PAUSE, LONGEST_PAUSE]


def test_a_process_that_is_taken_ends_the_back_off() -> None:
    kept = pool(1, 0)
    handled(kept, FREE, StandbyEnded("driver-1", "killed"))
    assert handled(kept, FREE, now=FIRST_PAUSE) == [StartStandby("driver-2", DRIVER)]
    handled(kept, Warmed("driver-2"), BUSY, StandbyTaken("driver-2"), TakeEnded(DRIVER, failed=False), now=FIRST_PAUSE)
    handled(kept, FREE, StandbyEnded("driver-3", "killed"), now=FIRST_PAUSE)
    assert handled(kept, FREE, now=2 * FIRST_PAUSE) == [StartStandby("driver-4", DRIVER)]


def test_a_process_that_fails_while_it_is_taken_counts_as_a_failure() -> None:
    found = pauses(lambda standby: [BUSY, StandbyTaken(standby), TakeEnded(DRIVER, failed=True)], 3)
    assert found == [15.0, 30.0, 60.0]


def test_a_profile_that_fails_keeps_no_other_waiting() -> None:
    kept = pool()
    assert handled(kept, FREE, StandbyEnded("driver-1", "no such option")) == [StartStandby("executor-2", EXECUTOR)]
    kept = pool(1, 0)
    handled(kept, FREE, Asked(WITH_OPTIONS), Asked(WITH_OPTIONS), StandbyEnded("driver-1", "killed"))
    assert [standby.profile for standby in kept.standbys()] == [WITH_OPTIONS]


def test_an_end_that_the_pool_has_ordered_is_no_failure() -> None:
    kept = with_ready_driver()
    handled(kept, Asked(LARGE))
    assert handled(kept, StandbyEnded("driver-1", "killed")) == [StartStandby("driver-2", LARGE)]
    assert kept.why_none(DRIVER) == "no standby driver was ready"


# --- why none ---------------------------------------------------------------------------------------------------------


def test_why_there_is_none() -> None:
    kept = pool(1, 0)
    assert kept.why_none(EXECUTOR) == "", "this task manager keeps none"
    assert kept.why_none(DRIVER) == "no standby driver was ready"
    handled(kept, FREE)
    assert kept.why_none(DRIVER) == "the standby driver was still warming up"
    handled(kept, Warmed("driver-1"))
    assert kept.why_none(LARGE) == "no standby driver has a heap of 4096 MiB yet"
    assert kept.why_none(WITH_OPTIONS) == "no standby driver has a heap of 1024 MiB and the options -Xss4m yet"
    handled(kept, StandbyEnded("driver-1", "killed"))
    assert kept.why_none(DRIVER) == "the last such standby driver has failed; see the task manager's log"
