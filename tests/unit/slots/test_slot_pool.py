"""The slot pool, step by step; what holds for all steps is in tests/property/slots/test_slot_pool.py."""

from __future__ import annotations

import msgspec
import pytest

from emberkeep.base.ids import AllocationId, ExecutorId, InstanceId, JobId
from emberkeep.slots.model import Allocation, ResourceProfile, SlotRequirement
from emberkeep.slots.pool import departures
from emberkeep.slots.pool.events import (
    AcceptOffer,
    ApplicationStarted,
    ApplicationStopped,
    ApplicationStopping,
    BeatAnswered,
    BeatNow,
    ExecutorExited,
    ExecutorRuns,
    PlacesBlocked,
    PoolEffect,
    ReleaseDone,
    ReleaseSlotAt,
    RemoveExecutor,
    SlotsOffered,
    SparkSaw,
    StartExecutorIn,
    StatusChanged,
    Tick,
)
from emberkeep.slots.pool.held_slot import HeldExecutor
from emberkeep.slots.pool.machine import SlotPool
from tests.property.slots.test_slot_pool import LIMITS, RUNTIME, SMALL, Places, task_manager

SLOT = AllocationId("a" * 32)
INFO = task_manager("tm0#1")


@pytest.mark.req("LOC-4")
def test_a_slot_whose_release_was_lost_is_told_of_by_beats() -> None:
    pool = SlotPool(LIMITS)
    pool.handle(ApplicationStarted(SlotRequirement(count=1, profile=SMALL, runtime=RUNTIME)), 0.0)
    slot = Allocation(id=SLOT, slot_index=0, job_id=JobId("1" * 32), attempt=1, profile=SMALL, job_master="jm:1")
    pool.handle(SlotsOffered(INFO, (slot,)), 0.0)
    assert pool.state.to_beat() == [(INFO, (SLOT,))]

    effects = pool.handle(ExecutorExited(SLOT, ExecutorId("0"), -9, ""), 1.0)
    assert ReleaseSlotAt(SLOT, INFO.address) in effects
    pool.handle(ReleaseDone(SLOT), 11.0)  # given up: nobody has answered

    assert pool.state.to_beat() == [(INFO, ())], "it is to free what is not named"
    pool.handle(BeatAnswered(INFO.id, INFO.instance, (), (SLOT,)), 12.0)
    assert pool.state.to_beat() == [(INFO, ())], "it holds the slot still"
    pool.handle(BeatAnswered(INFO.id, INFO.instance, (), ()), 13.0)
    assert pool.state.to_beat() == []


def held_pool(*, decommissions: bool) -> SlotPool:
    """Two executors that run: 0 on tm0, 1 on tm1."""
    pool = SlotPool(LIMITS)
    pool.handle(ApplicationStarted(SlotRequirement(count=2, profile=SMALL, runtime=RUNTIME), decommissions), 0.0)
    for number in range(2):
        pool.handle(SlotsOffered(task_manager(f"tm{number}#1"), (slot_named(str(number)),)), 0.0)
        pool.handle(ExecutorRuns(AllocationId(str(number)), ExecutorId(str(number)), 10 + number), 0.0)
    saw(pool, "0", "1")
    return pool


def slot_named(name: str) -> Allocation:
    return Allocation(
        id=AllocationId(name), slot_index=0, job_id=JobId("1" * 32), attempt=1, profile=SMALL, job_master="jm:1"
    )


def saw(pool: SlotPool, *executors: str, takers: tuple[str, ...] = (), now: float = 1.0) -> list[PoolEffect]:
    return pool.handle(SparkSaw(frozenset(map(ExecutorId, executors)), takers=frozenset(map(ExecutorId, takers))), now)


def heard(pool: SlotPool, since: float, until: float) -> float:
    """Both task managers answer all the time. Returns ``until``."""
    while since < until:
        since = min(until, since + 1.0)
        for info in (INFO, task_manager("tm1#1")):
            pool.handle(BeatAnswered(info.id, info.instance, (), ()), since)
        saw(pool, *(slot.executor.id for slot in pool.state.held.values()), now=since)
        pool.handle(Tick(), since)
    return until


def evacuated(*task_managers: str) -> PlacesBlocked:
    return PlacesBlocked(Places(frozenset(task_managers), frozenset(task_managers)))


@pytest.mark.req("BLK-18")
def test_an_executor_leaves_once_another_can_take_its_blocks_and_its_slot_is_wanted_elsewhere_at_once() -> None:
    pool = held_pool(decommissions=True)
    assert pool.handle(evacuated("tm0"), 1.0) == [StatusChanged()]
    assert (pool.state.staying, pool.state.target, pool.state.declared()[0].count) == (1, 2, 2), (
        "another one is wanted for it"
    )
    assert pool.state.leaving() == {ExecutorId("0")}
    assert pool.state.decommissioned([AllocationId("0")]) == ()

    assert BeatNow() in saw(pool, "0", "1", takers=("0", "1"))
    assert pool.state.decommissioned([AllocationId("0"), AllocationId("1")]) == (AllocationId("0"),)
    assert BeatNow() not in saw(pool, "0", "1", takers=("1",)), "beats repeat it"
    assert pool.handle(evacuated("tm0", "tm1"), 2.0) == [StatusChanged()], "the last one has nobody to hand over to"

    effects = pool.handle(ExecutorExited(AllocationId("0"), ExecutorId("0"), 0, ""), 9.0)
    gone = [effect for effect in effects if isinstance(effect, RemoveExecutor)]
    assert [(one.executor_id, one.orderly) for one in gone] == [(ExecutorId("0"), True)]
    assert ReleaseSlotAt(AllocationId("0"), "tm0:1") in effects
    assert (pool.state.target, pool.state.waiting(9.0)) == (2, ""), "no pause: it is no failure"


@pytest.mark.req("BLK-18")
def test_who_finds_no_successor_is_ended_in_time_or_stays_when_the_block_ends() -> None:
    pool = held_pool(decommissions=True)
    pool.handle(evacuated("tm0", "tm1"), 1.0)
    saw(pool, "0", "1", takers=("0", "1"), now=2.0)
    assert not pool.state.decommissioned([AllocationId("0"), AllocationId("1")])
    pool.handle(evacuated("tm1"), 3.0)
    assert pool.state.leaving() == {ExecutorId("1")}, "the other one stays: its node is not blocked any more"
    saw(pool, "0", "1", takers=("0",), now=4.0)
    assert pool.state.decommissioned([AllocationId("1")])
    pool.handle(PlacesBlocked(Places()), 5.0)
    assert pool.state.leaving() == {ExecutorId("1")}, "what was told to end leaves"

    assert not pool.handle(Tick(), LIMITS.evacuation_timeout)
    effects = pool.handle(Tick(), LIMITS.evacuation_timeout + 1.0)
    (gone,) = [effect for effect in effects if isinstance(effect, RemoveExecutor)]
    assert not gone.orderly
    assert "blocklist.evacuation.timeout" in gone.reason
    assert ReleaseSlotAt(AllocationId("1"), "tm1:1") in effects
    assert pool.state.target == 2


@pytest.mark.req("BLK-18")
def test_however_executors_end_with_their_application_nobody_is_told_of_a_loss() -> None:
    pool = held_pool(decommissions=True)
    pool.handle(evacuated("tm0"), 1.0)
    saw(pool, "0", "1", takers=("1",))
    assert pool.state.decommissioned([AllocationId("0")])
    pool.handle(ApplicationStopping(), 2.0)
    pool.handle(evacuated("tm0", "tm1"), 2.5)
    assert not pool.state.decommissioned([AllocationId("1")]), "there is nobody to hand over to any more"
    effects = [
        *pool.handle(ExecutorExited(AllocationId("0"), ExecutorId("0"), 50, "Could not find the scheduler"), 3.0),
        *pool.handle(ExecutorExited(AllocationId("1"), ExecutorId("1"), 1, "the driver is gone"), 3.0),
    ]
    gone = [effect for effect in effects if isinstance(effect, RemoveExecutor)]
    assert [(one.executor_id, one.orderly) for one in gone] == [("0", True), ("1", True)]
    assert (pool.state.target, pool.state.declared()[0].count, pool.state.waiting(3.0)) == (0, 0, ""), (
        "none is wanted in their place"
    )
    pool.handle(ApplicationStopped(), 4.0)
    pool.handle(ApplicationStarted(SlotRequirement(count=1, profile=SMALL, runtime=RUNTIME)), 5.0)
    assert pool.state.target == 1, "the next one begins anew, without a pause"


def test_a_slot_without_its_executor_is_not_used_again_while_the_application_stops() -> None:
    pool = held_pool(decommissions=True)
    pool.handle(ApplicationStopping(), 2.0)
    later = msgspec.structs.replace(task_manager("tm0#2"), predecessor=InstanceId("tm0#1"))
    effects = pool.handle(SlotsOffered(later, (slot_named("0"), slot_named("7"))), 3.0)
    assert AcceptOffer((), later=(AllocationId("7"),)) in effects
    assert ReleaseSlotAt(AllocationId("0"), "tm0:1", stopped=True) in effects
    assert not [effect for effect in effects if isinstance(effect, StartExecutorIn)]


@pytest.mark.req("LOC-4", "LOC-5")
def test_a_slot_that_comes_within_the_pause_of_a_replacement_is_refused_for_now_and_one_too_many_for_good() -> None:
    pool = held_pool(decommissions=False)
    assert pool.handle(SlotsOffered(INFO, (slot_named("8"),)), 1.0) == [AcceptOffer(())], "the job has all its slots"
    for number in ("0", "1"):  # the first one is replaced at once
        pool.handle(ExecutorExited(AllocationId(number), ExecutorId(number), 1, "killed"), 2.0)
    first, early = slot_named("8"), slot_named("9")
    accepted, *_ = pool.handle(SlotsOffered(INFO, (first, early)), 2.0)
    assert accepted == AcceptOffer((first.id,), later=(early.id,))
    other = msgspec.structs.replace(early, profile=ResourceProfile(cores=2, memory_mb=7))
    assert pool.handle(SlotsOffered(INFO, (other,)), 2.0) == [AcceptOffer(())], "that is of the wrong size"


@pytest.mark.req("LOC-5")
@pytest.mark.parametrize("stopped", [False, True])
def test_a_slot_offered_while_the_application_stops_keeps_its_state_for_the_next_attempt(stopped: bool) -> None:
    """The executors end first. Their slots are allocated again before the JobManager knows that no more are wanted."""
    pool = held_pool(decommissions=True)
    pool.handle(ApplicationStopping(), 2.0)
    if stopped:
        pool.handle(ApplicationStopped(), 2.0)
    late = slot_named("9")
    assert pool.handle(SlotsOffered(INFO, (late,)), 3.0) == [AcceptOffer((), later=(late.id,))]


@pytest.mark.req("LOC-4")
@pytest.mark.parametrize("announced", [False, True])
def test_task_managers_are_told_whether_a_slot_goes_back_with_its_application(announced: bool) -> None:
    pool = held_pool(decommissions=True)
    effects = pool.handle(ExecutorExited(AllocationId("0"), ExecutorId("0"), -9, ""), 1.0)
    assert ReleaseSlotAt(AllocationId("0"), "tm0:1", stopped=False) in effects
    if announced:
        pool.handle(ApplicationStopping(), 2.0)
    effects = pool.handle(ApplicationStopped(), 2.0)
    assert ReleaseSlotAt(AllocationId("1"), "tm1:1", stopped=True) in effects
    assert not pool.state.stopping


@pytest.mark.req("BLK-18", "LOC-6")
def test_executors_leave_a_task_manager_that_drains_as_soon_as_others_can_take_over_and_stay_until_then() -> None:
    pool = held_pool(decommissions=True)
    drains = PlacesBlocked(Places(), frozenset({INFO.id, task_manager("tm1#1").id}))
    pool.handle(drains, 1.0)
    assert (pool.state.staying, pool.state.target) == (0, 2), "both are wanted elsewhere at once"
    late = slot_named("7")
    assert pool.handle(SlotsOffered(INFO, (late,)), 2.0) == [AcceptOffer(())], "what was on its way comes too late"
    now = heard(pool, 2.0, LIMITS.evacuation_timeout + 2.0)
    assert len(pool.state.held) == 2, "nobody is there to take over: they work on"

    pool.handle(SlotsOffered(task_manager("tm2#1"), (slot_named("2"),)), now)
    saw(pool, "0", "1", "2", takers=("2",), now=now)
    assert len(pool.state.decommissioned([AllocationId("0"), AllocationId("1")])) == 2
    assert heard(pool, now, now + LIMITS.evacuation_timeout - 1.0)
    assert len(pool.state.held) == 3, "their time runs from now on"
    effects = pool.handle(Tick(), now + LIMITS.evacuation_timeout)
    assert {one.executor_id for one in effects if isinstance(one, RemoveExecutor)} == {"0", "1"}
    pool.check_invariants()


@pytest.mark.req("BLK-8")
def test_offers_from_a_blocked_task_manager_are_refused() -> None:
    pool = SlotPool(LIMITS)
    pool.handle(ApplicationStarted(SlotRequirement(count=1, profile=SMALL, runtime=RUNTIME)), 0.0)
    pool.handle(blocked("tm0"), 0.0)
    assert pool.handle(SlotsOffered(INFO, (slot_named("0"),)), 1.0) == [AcceptOffer(())]
    assert AcceptOffer((AllocationId("1"),)) in pool.handle(
        SlotsOffered(task_manager("tm1#1"), (slot_named("1"),)), 1.0
    )


@pytest.mark.req("BLK-8")
@pytest.mark.parametrize("is_blocked", [False, True])
def test_a_slot_that_becomes_free_on_a_blocked_task_manager_is_given_back(is_blocked: bool) -> None:
    """The executor ended while its task manager was down. Elsewhere the slot gets another executor."""
    pool = held_pool(decommissions=False)
    if is_blocked:
        pool.handle(blocked("tm0"), 1.0)
    restarted = msgspec.structs.replace(task_manager("tm0#2"), predecessor=InstanceId("tm0#1"))
    effects = pool.handle(SlotsOffered(restarted, (slot_named("0"),)), 2.0)
    assert (ReleaseSlotAt(AllocationId("0"), "tm0:1") in effects) is is_blocked
    assert any(isinstance(effect, StartExecutorIn) for effect in effects) is not is_blocked
    assert (AllocationId("0") in pool.state.held) is not is_blocked


@pytest.mark.req("BLK-2")
def test_an_executor_that_cannot_hand_over_anything_leaves_at_once() -> None:
    pool = held_pool(decommissions=False)
    effects = pool.handle(evacuated("tm0"), 1.0)
    assert ReleaseSlotAt(AllocationId("0"), "tm0:1") in effects
    assert list(pool.state.held) == [AllocationId("1")]


def blocked(*task_managers: str) -> PlacesBlocked:
    return PlacesBlocked(Places(frozenset(task_managers), frozenset()))


def with_replacement(pool: SlotPool, *, now: float = 2.0) -> None:
    """Executor 2 runs on tm2, in place of one on a blocked task manager."""
    effects = pool.handle(SlotsOffered(task_manager("tm2#1"), (slot_named("2"),)), now)
    assert AcceptOffer((AllocationId("2"),)) in effects
    pool.handle(ExecutorRuns(AllocationId("2"), ExecutorId("2"), 12), now)


@pytest.mark.req("BLK-2")
def test_an_executor_on_a_blocked_place_takes_no_new_task_once_another_one_is_there() -> None:
    pool = held_pool(decommissions=True)
    assert pool.handle(blocked("tm0"), 1.0) == [StatusChanged()]
    assert (pool.state.staying, pool.state.target, pool.state.declared()[0].count) == (1, 2, 2), (
        "another one is wanted for it"
    )
    assert pool.state.to_cordon() == frozenset(), "until that one is there, it goes on"
    with_replacement(pool)
    assert pool.state.to_cordon() == frozenset(), "it has not registered with Spark yet"
    saw(pool, "0", "1", "2", now=3.0)
    assert pool.state.to_cordon() == {ExecutorId("0")}
    assert AllocationId("0") in pool.state.held, "it keeps its blocks, and the tasks that run"

    pool.handle(ExecutorExited(AllocationId("2"), ExecutorId("2"), -9, ""), 4.0)
    assert pool.state.to_cordon() == frozenset(), "it works again while there is nobody else"


@pytest.mark.req("BLK-2")
def test_of_the_executors_on_blocked_places_those_that_spark_hears_keep_working() -> None:
    pool = held_pool(decommissions=True)
    pool.handle(blocked("tm0", "tm1"), 1.0)
    with_replacement(pool)
    executors = frozenset(map(ExecutorId, ("0", "1", "2")))
    pool.handle(SparkSaw(executors, silent=frozenset({ExecutorId("0")})), 3.0)
    assert pool.state.to_cordon() == {ExecutorId("0")}, "of two wanted, 1 and 2 work; 0 cannot"


def test_a_cordoned_executor_with_nothing_left_to_do_or_to_keep_leaves() -> None:
    pool = held_pool(decommissions=True)
    pool.handle(blocked("tm0"), 1.0)
    with_replacement(pool)
    saw(pool, "0", "1", "2", now=3.0)
    zero, executors = frozenset({ExecutorId("0")}), frozenset(map(ExecutorId, ("0", "1", "2")))
    pool.handle(SparkSaw(executors, cordoned=zero, idle=zero), 4.0)
    assert pool.state.leaving() == zero
    pool.handle(SparkSaw(executors, takers=executors, cordoned=zero), 5.0)
    assert not pool.state.decommissioned([AllocationId("0")]), (
        "Spark takes it to be decommissioned, and would not let it"
    )
    assert pool.state.to_cordon() == frozenset()
    pool.handle(SparkSaw(executors, takers=executors), 6.0)
    assert pool.state.decommissioned([AllocationId("0")])
    effects = pool.handle(ExecutorExited(AllocationId("0"), ExecutorId("0"), 0, ""), 9.0)
    assert ReleaseSlotAt(AllocationId("0"), "tm0:1") in effects
    assert (pool.state.staying, pool.state.target, pool.state.waiting(9.0)) == (2, 2, "")


@pytest.mark.req("BLK-4")
def test_an_executor_stays_where_its_block_ends_before_another_one_is_there_and_leaves_after_that() -> None:
    pool = held_pool(decommissions=True)
    pool.handle(blocked("tm0"), 1.0)
    pool.handle(PlacesBlocked(Places()), 2.0)
    assert (pool.state.staying, pool.state.leaving()) == (2, frozenset())

    pool.handle(blocked("tm0"), 3.0)
    with_replacement(pool, now=4.0)
    pool.handle(PlacesBlocked(Places()), 5.0)
    assert pool.state.leaving() == {ExecutorId("0")}, "there is one too many: it hands over and ends"
    assert pool.state.staying == 2


@pytest.mark.req("BLK-2")
def test_the_end_of_an_executor_on_a_blocked_place_is_told_and_needs_no_pause() -> None:
    pool = held_pool(decommissions=True)
    pool.handle(blocked("tm0"), 1.0)
    effects = pool.handle(ExecutorExited(AllocationId("0"), ExecutorId("0"), -9, ""), 2.0)
    (gone,) = [effect for effect in effects if isinstance(effect, RemoveExecutor)]
    assert not gone.orderly
    assert (pool.state.staying, pool.state.target) == (1, 2), "it was wanted elsewhere already"


def lacks_space(pool: SlotPool, *executors: str, now: float) -> list[PoolEffect]:
    """Tasks have failed in these executors because their disk is full."""
    known = frozenset(slot.executor.id for slot in pool.state.held.values())
    return pool.handle(SparkSaw(known, lacking_space=frozenset(map(ExecutorId, executors))), now)


def test_an_executor_whose_disk_is_full_takes_no_new_task_while_any_other_runs() -> None:
    pool = held_pool(decommissions=True)
    assert StatusChanged() in lacks_space(pool, "0", now=2.0)
    assert (pool.state.staying, pool.state.target, pool.state.declared()[0].count) == (1, 2, 2), "one is wanted for it"
    assert pool.state.to_cordon() == {ExecutorId("0")}, "it need not wait for its replacement"
    assert AllocationId("0") in pool.state.held, "it keeps its shuffle files"

    pool.handle(ExecutorExited(AllocationId("1"), ExecutorId("1"), -9, ""), 3.0)
    assert pool.state.to_cordon() == frozenset(), "it works while there is nobody else"


def test_executors_whose_disks_are_all_full_go_on() -> None:
    pool = held_pool(decommissions=True)
    lacks_space(pool, "0", "1", now=2.0)
    assert pool.state.to_cordon() == frozenset()
    with_replacement(pool, now=3.0)
    saw(pool, "0", "1", "2", now=4.0)
    assert pool.state.to_cordon() == {ExecutorId("0"), ExecutorId("1")}


def test_a_blocked_place_is_used_before_a_full_disk() -> None:
    pool = held_pool(decommissions=True)
    pool.handle(blocked("tm1"), 1.0)
    lacks_space(pool, "0", now=2.0)
    assert pool.state.to_cordon() == {ExecutorId("0")}


def test_an_executor_works_again_some_time_after_its_disk_was_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(departures, "LACKING_SECONDS", 5.0)
    pool = held_pool(decommissions=True)
    lacks_space(pool, "0", now=2.0)
    lacks_space(pool, "0", now=4.0)
    for now in (7.0, 8.9):
        lacks_space(pool, now=now)
        assert pool.state.to_cordon() == {ExecutorId("0")}, "the last failure counts"
    lacks_space(pool, now=9.0)
    assert (pool.state.to_cordon(), pool.state.staying) == (frozenset(), 2)

    lacks_space(pool, "0", now=10.0)
    pool.handle(blocked("tm0"), 11.0)
    lacks_space(pool, now=15.0)
    assert pool.state.staying == 1, "its place is blocked by now"
    pool.handle(PlacesBlocked(Places()), 16.0)
    assert pool.state.staying == 2


def test_a_slot_on_a_full_disk_is_given_back_only_once_another_has_taken_its_place() -> None:
    """The next executor in it would find the same disk."""
    pool = held_pool(decommissions=True)
    known, full = frozenset({ExecutorId("0"), ExecutorId("1")}), frozenset({ExecutorId("0")})
    lacks_space(pool, "0", now=2.0)
    pool.handle(SparkSaw(known, cordoned=full, idle=full), 3.0)
    assert pool.state.held[AllocationId("0")].is_outgoing
    with_replacement(pool, now=4.0)
    saw(pool, "0", "1", "2", now=5.0)
    pool.handle(SparkSaw(known | {ExecutorId("2")}, cordoned=full, idle=full), 6.0)
    assert not pool.state.held[AllocationId("0")].is_outgoing, "it leaves"


def test_shuffle_files_that_cannot_be_handed_over_outlive_the_lack_of_space(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(departures, "LACKING_SECONDS", 5.0)
    pool = held_pool(decommissions=False)
    lacks_space(pool, "0", now=2.0)
    with_replacement(pool, now=3.0)
    saw(pool, "0", "1", "2", now=4.0)
    lacks_space(pool, now=20.0)
    assert pool.state.held[AllocationId("0")].is_outgoing, "it leaves once nobody needs what it keeps"


def test_the_end_of_a_block_does_not_end_the_lack_of_space() -> None:
    pool = held_pool(decommissions=True)
    pool.handle(blocked("tm0"), 1.0)
    lacks_space(pool, "0", now=2.0)
    pool.handle(PlacesBlocked(Places()), 3.0)
    assert (pool.state.to_cordon(), pool.state.staying) == (frozenset({ExecutorId("0")}), 1)


def test_a_new_executor_in_the_slot_of_a_cordoned_one_is_not_cordoned() -> None:
    pool = held_pool(decommissions=True)
    pool.handle(SparkSaw(frozenset({ExecutorId("0"), ExecutorId("1")}), cordoned=frozenset({ExecutorId("0")})), 2.0)
    pool.handle(SlotsOffered(task_manager("tm0#2"), (slot_named("0"),)), 3.0)
    assert pool.state.held[AllocationId("0")].executor == HeldExecutor(ExecutorId("2"), unseen_since=3.0)
