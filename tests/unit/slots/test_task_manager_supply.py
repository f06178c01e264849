"""When task managers are started and ended: single decisions, then long histories with a driver that fails."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from emberkeep.base.ids import JobId, TaskManagerId
from emberkeep.slots.blocked import NothingBlocked
from emberkeep.slots.custom.amounts import amounts
from emberkeep.slots.ledger import DriverNeed, DriverUse
from emberkeep.slots.model import ResourceProfile, RuntimeVersions, SlotRequirement
from emberkeep.slots.namespace_quotas import NamespaceLimits
from emberkeep.slots.resource_driver import StartedTaskManager, TaskManagerSpec
from emberkeep.slots.supply import Demand, RegisteredSupply, Room, Supply, missing_task_managers
from emberkeep.slots.task_manager_supply import STARTS_AT_ONCE, SupplyLimits, SupplyPlan, TaskManagerSupply
from tests.unit.slots.test_slot_manager import Rig

RUNTIME = RuntimeVersions(python="3.11", spark="4.3.0")
SPEC = TaskManagerSpec(slots=2, driver_places=1, total=ResourceProfile(cores=2, memory_mb=4000), runtime=RUNTIME)
LIMITS = SupplyLimits(
    min_slots=0,
    max_slots=100,
    idle_timeout=30.0,
    registration_timeout=60.0,
    stop_timeout=20.0,
    retry_interval=3.0,
    max_failures=5,
)
SMALL = ResourceProfile(cores=1, memory_mb=1000)


def key(number: int) -> TaskManagerId:
    return TaskManagerId(f"tm-{number}")


def alive(*numbers: int) -> list[StartedTaskManager]:
    return [StartedTaskManager(key(number), f"node-{number}") for number in numbers]


def standing(number: int, *, idle: bool = False, away: bool = False, blocked: bool = False) -> RegisteredSupply:
    return RegisteredSupply(id=key(number), slots=2, idle=idle, away=away, blocked=blocked)


def slots(missing: int, profile: ResourceProfile = SMALL, runtime: RuntimeVersions = RUNTIME) -> Demand:
    return Demand(slots=((SlotRequirement(count=missing, profile=profile, runtime=runtime), missing),))


def supply(*there: RegisteredSupply, demand: Demand | None = None) -> Supply:
    return Supply(standing=there, demand=demand or Demand(), blocked=NothingBlocked())


def made(**limits: float) -> TaskManagerSupply:
    return TaskManagerSupply(replace(LIMITS, **limits), SPEC)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("demand", "wanted"),
    [
        (Demand(), 0),
        (slots(1), 1),
        (slots(2), 1),
        (slots(5), 3),
        (slots(2, ResourceProfile(cores=1, memory_mb=2500)), 2),  # one fits into the memory of each
        (slots(1, ResourceProfile(cores=3, memory_mb=1)), 0),  # fits nowhere: none would help
        (slots(1, runtime=RuntimeVersions(python="3.12", spark="4.3.0")), 0),
        (Demand(drivers=(DriverNeed(1000, "3.11"), DriverNeed(1000, ""))), 2),  # one place each
        (Demand(drivers=(DriverNeed(1000, "3.12"),)), 0),
        (Demand(drivers=(DriverNeed(9000, ""),)), 0),
        (Demand(slots=slots(2).slots, drivers=(DriverNeed(1000, ""),)), 1),  # the driver and both beside each other
        (Demand(slots=slots(2).slots, drivers=(DriverNeed(3500, ""),)), 2),
    ],
)
def test_as_many_are_missing_as_the_demand_fills(demand: Demand, wanted: int) -> None:
    assert missing_task_managers(demand, [], SPEC, 100).count == wanted


GPUS = replace(SPEC, total=ResourceProfile(cores=2, memory_mb=4000, custom=amounts({"gpu": 2})))


def with_gpus(count: int) -> ResourceProfile:
    return ResourceProfile(cores=1, memory_mb=1000, custom=amounts({"gpu": count}))


@pytest.mark.req("RES-1")
@pytest.mark.parametrize(
    ("demand", "wanted"),
    [
        (slots(2, with_gpus(1)), 1),
        (slots(2, with_gpus(2)), 2),
        (slots(1, with_gpus(3)), 0),
        (slots(1, ResourceProfile(cores=1, memory_mb=1000, custom=amounts({"fpga": 1}))), 0),
        (Demand(drivers=(DriverNeed(1000, "", custom=amounts({"gpu": 1})),)), 1),
        (Demand(drivers=(DriverNeed(1000, "", custom=amounts({"gpu": 3})),)), 0),
        (Demand(slots=slots(2, with_gpus(1)).slots, drivers=(DriverNeed(1000, "", custom=amounts({"gpu": 1})),)), 2),
    ],
)
def test_gpus_are_given_once_like_memory(demand: Demand, wanted: int) -> None:
    assert missing_task_managers(demand, [], GPUS, 100).count == wanted
    assert missing_task_managers(demand, [], SPEC, 100).count == 0


def test_gpus_that_are_coming_count() -> None:
    spare = Room(slots=2, places=0, cores=2, memory_mb=4000, runtime=RUNTIME, custom=amounts({"gpu": 1}))
    assert missing_task_managers(slots(1, with_gpus(1)), [spare], GPUS, 100).count == 0
    assert missing_task_managers(slots(2, with_gpus(1)), [spare], GPUS, 100).count == 1


def test_a_task_manager_takes_as_many_drivers_as_it_has_places() -> None:
    drivers = Demand(drivers=(DriverNeed(1000, ""),) * 3)
    assert missing_task_managers(drivers, [], replace(SPEC, driver_places=3), 100).count == 1
    assert missing_task_managers(drivers, [], replace(SPEC, driver_places=2), 100).count == 2


def test_what_is_coming_counts_and_is_left_as_it_was() -> None:
    spare = Room(slots=1, places=0, cores=2, memory_mb=4000, runtime=RUNTIME)
    for _ in range(2):
        assert missing_task_managers(slots(3), [spare], SPEC, 100).count == 1
    assert missing_task_managers(slots(100), [], SPEC, 3).count == 3


@pytest.mark.req("BLK-9")
def test_one_is_started_when_slots_are_missing_and_counts_from_then_on() -> None:
    planner = made()
    assert planner.decide([], supply(), 0.0) == SupplyPlan()
    assert planner.decide([], supply(demand=slots(2)), 1.0) == SupplyPlan(starts=1)
    assert planner.decide(alive(1), supply(demand=slots(2)), 2.0) == SupplyPlan()
    assert planner.decide(alive(1), supply(demand=slots(4)), 3.0) == SupplyPlan(starts=1)
    assert planner.decide(alive(1, 2), supply(standing(1), standing(2), demand=slots(1)), 4.0) == SupplyPlan(starts=1)


def test_a_new_leader_counts_what_the_last_one_has_started() -> None:
    assert made().decide(alive(1, 2), supply(demand=slots(4)), 0.0) == SupplyPlan()


def test_those_that_others_have_started_are_counted_and_left_alone() -> None:
    planner = made(max_slots=5)
    there = supply(standing(7, idle=True), standing(8), demand=slots(1))
    assert planner.decide([], there, 0.0) == SupplyPlan(), "one more would be above the maximum"
    assert planner.decide([], there, 1000.0) == SupplyPlan()


def test_one_that_refused_just_now_is_waited_for() -> None:
    spare = Room(slots=2, places=1, cores=2, memory_mb=4000, runtime=RUNTIME)
    refusing = replace(standing(1), spare=spare)
    assert made().decide(alive(1), supply(refusing, demand=slots(2)), 0.0) == SupplyPlan()
    assert made().decide(alive(1), supply(refusing, demand=slots(3)), 0.0) == SupplyPlan(starts=1)


def test_starts_are_bounded() -> None:
    assert made().decide([], supply(demand=slots(99)), 0.0) == SupplyPlan(starts=STARTS_AT_ONCE)
    assert made(max_slots=7).decide(alive(1), supply(demand=slots(99)), 0.0) == SupplyPlan(starts=2)


def test_the_minimum_is_kept_and_blocked_ones_do_not_count_for_it() -> None:
    planner = made(min_slots=4, idle_timeout=10.0)
    assert planner.decide([], supply(), 0.0) == SupplyPlan(starts=2)
    two = supply(standing(1, idle=True), standing(2, idle=True))
    assert planner.decide(alive(1, 2), two, 1.0) == SupplyPlan()
    assert planner.decide(alive(1, 2), two, 100.0) == SupplyPlan()
    blocked = supply(standing(1, idle=True, blocked=True), standing(2, idle=True))
    assert planner.decide(alive(1, 2), blocked, 101.0) == SupplyPlan(starts=1, stops=(key(1),))


def test_those_that_are_being_started_count_for_the_minimum() -> None:
    assert made(min_slots=4).decide(alive(1), supply(), 0.0) == SupplyPlan(starts=1)
    assert made(min_slots=4).decide(alive(1, 2), supply(), 0.0) == SupplyPlan()


def test_a_task_manager_has_spare_room_only_while_it_is_avoided_after_a_refusal() -> None:
    rig = Rig()
    registered = rig.add("tm-1")
    rig.want(rig.job(), 1)
    (allotted,) = rig.match()
    (known,) = rig.slots.supply().standing
    assert (known.id, known.slots, known.idle, known.away, known.blocked) == ("tm-1", 4, False, False, False)
    assert known.spare is None
    rig.slots.take_refusal(allotted.allocation.id, 0.0)
    (known,) = rig.slots.supply().standing
    assert known.idle
    assert known.spare == Room(slots=4, places=2, cores=4, memory_mb=8192, runtime=registered.runtime)
    overfull = tuple(DriverUse(JobId(str(number)), 1, 5000, live=True) for number in range(3))
    rig.report(registered, drivers=overfull)  # they were there before it was started with less
    (known,) = rig.slots.supply().standing
    assert known.spare == Room(slots=4, places=0, cores=4, memory_mb=0, runtime=registered.runtime)


def test_while_a_job_has_not_ended_somebody_is_there() -> None:
    planner = made()
    assert planner.decide([], replace(supply(), jobs=True), 0.0) == SupplyPlan(starts=1)
    idle = replace(supply(standing(1, idle=True)), jobs=True)
    assert planner.decide(alive(1), idle, 1.0) == SupplyPlan()
    assert planner.decide(alive(1), idle, 100.0) == SupplyPlan()
    assert planner.decide(alive(1), replace(idle, jobs=False), 101.0) == SupplyPlan(stops=(key(1),))


@pytest.mark.req("BLK-9")
def test_the_last_one_stays_while_a_job_waits_for_the_end_of_a_block_and_another_is_still_started() -> None:
    planner = made(max_slots=2)
    blocked = standing(1, idle=True, blocked=True)
    alone = replace(supply(blocked), jobs=True)
    assert planner.decide(alive(1), alone, 0.0) == SupplyPlan(starts=1)
    assert planner.decide(alive(1), alone, 100.0) == SupplyPlan(starts=1), "there is no free node"
    two = replace(supply(blocked, standing(2, idle=True, blocked=True)), jobs=True)
    assert planner.decide(alive(1, 2), two, 101.0).stops == (key(1),)
    planner.stop_failed(key(1))
    assert planner.decide(alive(1, 3), alone, 102.0) == SupplyPlan(), "the other one is not there yet"
    both = replace(supply(blocked, standing(3)), jobs=True)
    assert planner.decide(alive(1, 3), both, 103.0) == SupplyPlan(stops=(key(1),))
    assert made().decide(alive(1), supply(blocked), 0.0) == SupplyPlan()


def test_an_idle_one_is_told_to_end_once() -> None:
    planner = made()
    idle, busy = supply(standing(1, idle=True)), supply(standing(1))
    assert planner.decide(alive(1), idle, 0.0) == SupplyPlan()
    assert planner.decide(alive(1), busy, 29.0) == SupplyPlan()
    assert planner.decide(alive(1), idle, 30.0) == SupplyPlan(), "it had something to do meanwhile"
    assert planner.decide(alive(1), idle, 59.0) == SupplyPlan()
    assert planner.decide(alive(1), idle, 60.0) == SupplyPlan(stops=(key(1),))
    assert planner.decide(alive(1), idle, 61.0) == SupplyPlan()
    planner.stop_failed(key(1))
    assert planner.decide(alive(1), idle, 62.0) == SupplyPlan(stops=(key(1),))
    assert planner.decide(alive(1), supply(demand=slots(1)), 63.0) == SupplyPlan(starts=1), "it comes no more"
    gone = [StartedTaskManager(key(1), "node-1", alive=False)]
    assert planner.decide(gone, supply(), 64.0) == SupplyPlan(ends=(key(1),))


def test_one_that_does_not_end_in_time_is_killed() -> None:
    planner = made()
    idle = supply(standing(1, idle=True))
    assert planner.decide(alive(1), idle, 0.0) == SupplyPlan()
    assert planner.decide(alive(1), idle, 30.0) == SupplyPlan(stops=(key(1),))
    assert planner.decide(alive(1), supply(), 49.0) == SupplyPlan()
    assert planner.decide(alive(1), supply(), 50.0) == SupplyPlan(ends=(key(1),))


def test_one_that_does_not_register_is_killed_and_the_next_one_waits_for_a_pause() -> None:
    planner = made()
    wanted = supply(demand=slots(1))
    assert planner.decide(alive(1), wanted, 0.0) == SupplyPlan()
    assert planner.decide(alive(1), wanted, 60.0) == SupplyPlan(ends=(key(1),))
    assert planner.decide([], wanted, 62.9) == SupplyPlan()
    assert planner.decide([], wanted, 63.0) == SupplyPlan(starts=1)


def test_starts_that_come_to_nothing_have_a_limit_per_minute() -> None:
    planner, starts = made(), 0
    dead: list[StartedTaskManager] = []
    for tenth in range(600):
        now = tenth / 10
        plan = planner.decide(dead, supply(demand=slots(1)), now)
        dead = []
        if plan.starts:
            starts += 1
            planner.decide(alive(1), supply(demand=slots(1)), now)
            dead = [StartedTaskManager(key(1), "node-1", alive=False)]
    assert starts == LIMITS.max_failures


def test_one_that_died_is_started_again_where_jobs_hold_something() -> None:
    dead = [StartedTaskManager(key(1), "node-1", alive=False)]
    assert made().decide(dead, supply(standing(1, away=True)), 0.0) == SupplyPlan(revives=(key(1),))
    assert made().decide(dead, supply(standing(1, idle=True)), 0.0) == SupplyPlan(ends=(key(1),))
    assert made().decide(dead, supply(), 0.0) == SupplyPlan(ends=(key(1),))


@pytest.mark.req("BLK-9")
def test_a_new_leader_starts_those_again_that_died_with_the_one_before_it() -> None:
    """Nobody has told it yet what jobs hold there; their processes may have outlived the task manager."""
    planner = made(max_slots=6)
    dead = [StartedTaskManager(key(number), f"node-{number}", alive=False) for number in (1, 2)]
    with_jobs = replace(supply(demand=slots(5)), jobs=True)
    assert planner.decide(dead, with_jobs, 0.0) == SupplyPlan(starts=1, revives=(key(1), key(2)))
    assert planner.decide(alive(1, 2, 3), with_jobs, 1.0) == SupplyPlan()
    assert planner.decide([*dead[:1], *alive(2, 3)], with_jobs, 2.0).ends == (key(1),), "it ended before it registered"


@pytest.mark.req("BLK-9")
def test_a_plan_of_a_new_leader_that_was_interrupted_is_made_again() -> None:
    planner = made()
    dead = [StartedTaskManager(key(number), f"node-{number}", alive=False) for number in (1, 2)]
    with_jobs = replace(supply(), jobs=True)
    planner.decide(dead, with_jobs, 0.0)
    planner.interrupted()
    assert planner.decide([*alive(1), *dead[1:]], with_jobs, 1.0) == SupplyPlan(revives=(key(2),))
    planner.decide(alive(1, 2), with_jobs, 2.0)
    planner.interrupted()
    assert planner.decide([*alive(1), *dead[1:]], with_jobs, 3.0).ends == (key(2),), "its first plan was carried out"


@pytest.mark.req("BLK-9")
def test_what_was_told_to_the_one_before_it_does_not_end_the_next_one() -> None:
    planner = made()
    idle = supply(standing(1, idle=True))
    assert planner.decide(alive(1), idle, 0.0) == SupplyPlan()
    assert planner.decide(alive(1), idle, 30.0) == SupplyPlan(stops=(key(1),))
    dead = [StartedTaskManager(key(1), "node-1", alive=False)]
    assert planner.decide(dead, supply(demand=slots(1)), 31.0) == SupplyPlan(starts=1, ends=(key(1),))
    planner.ended(key(1))
    assert planner.decide(alive(1), supply(demand=slots(1)), 32.0) == SupplyPlan(), "it is on its way"
    assert planner.decide(alive(1), supply(standing(1)), 1000.0) == SupplyPlan()


@pytest.mark.req("BLK-9")
def test_one_that_works_again_after_it_was_told_to_end_is_not_killed() -> None:
    planner = made()
    idle, busy = supply(standing(1, idle=True)), supply(standing(1))
    assert planner.decide(alive(1), idle, 0.0) == SupplyPlan()
    assert planner.decide(alive(1), idle, 30.0) == SupplyPlan(stops=(key(1),))
    assert planner.decide(alive(1), busy, 31.0) == SupplyPlan(), "its next process has the same id, and takes slots"
    assert planner.decide(alive(1), busy, 100.0) == SupplyPlan()


@pytest.mark.req("BLK-9")
def test_one_that_may_not_have_been_told_to_end_is_told_again_even_if_it_would_be_needed_now() -> None:
    planner = made()
    idle = supply(standing(1, idle=True))
    assert planner.decide(alive(1), idle, 0.0) == SupplyPlan()
    assert planner.decide(alive(1), idle, 30.0) == SupplyPlan(stops=(key(1),))
    planner.stop_unanswered(key(1))
    waiting = replace(idle, jobs=True)
    assert planner.decide(alive(1), waiting, 31.0).stops == (key(1),)
    assert planner.decide(alive(1), waiting, 32.0).stops == ()
    planner.stop_unanswered(key(1))
    assert planner.decide(alive(1), waiting, 50.0).ends == (key(1),), "it has not answered for too long"


@pytest.mark.req("BLK-9")
def test_one_that_did_not_register_and_cannot_be_ended_is_one_failed_start_and_not_one_per_decision() -> None:
    planner = made()
    assert planner.decide(alive(1), supply(), 0.0) == SupplyPlan()
    for seconds in range(60, 70):
        assert planner.decide(alive(1), supply(), float(seconds)).ends == (key(1),)
        planner.end_failed(key(1))
    assert planner.decide(alive(1), supply(demand=slots(2)), 70.0) == SupplyPlan(starts=1, ends=(key(1),))


@pytest.mark.req("BLK-9")
def test_the_slots_of_a_registered_one_that_cannot_be_ended_count_once() -> None:
    planner = made(max_slots=4)
    idle = supply(standing(1, idle=True))
    assert planner.decide(alive(1), idle, 0.0) == SupplyPlan()
    assert planner.decide(alive(1), idle, 30.0) == SupplyPlan(stops=(key(1),))
    assert planner.decide(alive(1), idle, 50.0) == SupplyPlan(ends=(key(1),))
    planner.end_failed(key(1))
    assert planner.decide(alive(1), replace(idle, demand=slots(2)), 51.0) == SupplyPlan(starts=1, ends=(key(1),))


def queued(*numbers: int) -> list[StartedTaskManager]:
    return [StartedTaskManager(key(number), "", queued=True) for number in numbers]


@pytest.mark.req("BLK-9")
def test_one_that_waits_for_the_platform_counts_as_coming_and_may_wait_for_hours() -> None:
    planner = made()
    for now in (0.0, 3600.0, 7200.0):
        assert planner.decide(queued(1), supply(demand=slots(2)), now) == SupplyPlan()
    assert planner.decide(alive(1), supply(demand=slots(2)), 7201.0) == SupplyPlan()
    assert planner.decide(alive(1), supply(demand=slots(2)), 7259.0) == SupplyPlan(), "it runs for less than a minute"
    assert planner.decide(alive(1), supply(demand=slots(2)), 7260.0).ends == (key(1),)


@pytest.mark.req("BLK-9")
def test_those_that_wait_and_are_no_longer_needed_are_withdrawn_the_newest_first() -> None:
    planner = made()
    assert planner.decide(queued(1, 2, 3), supply(demand=slots(6)), 0.0) == SupplyPlan()
    assert planner.decide(queued(1, 2, 3), supply(demand=slots(2)), 10.0) == SupplyPlan()
    assert planner.decide(queued(1, 2, 3), supply(demand=slots(4)), 30.0) == SupplyPlan(), "the second is needed again"
    assert planner.decide(queued(1, 2, 3), supply(demand=slots(2)), 39.0) == SupplyPlan()
    assert planner.decide(queued(1, 2, 3), supply(demand=slots(2)), 40.0) == SupplyPlan(ends=(key(3),))
    planner.ended(key(3))
    assert planner.decide(queued(1, 2), supply(), 69.0) == SupplyPlan(ends=(key(2),))
    waiting = replace(supply(), jobs=True)
    assert planner.decide(queued(1), waiting, 500.0) == SupplyPlan(), "one stays while a job has not ended"


@pytest.mark.req("BLK-21")
def test_one_that_was_started_for_a_driver_that_has_to_move_is_not_ended_before_it_has_moved() -> None:
    planner = made()
    there = supply(standing(1), standing(2, idle=True))
    for now in (0.0, 30.0, 60.0):
        assert planner.decide(alive(1, 2), replace(there, moving=True), now) == SupplyPlan()
    assert planner.decide(alive(1, 2), there, 61.0) == SupplyPlan(stops=(key(2),))


def gang(missing: int, profile: ResourceProfile = SMALL) -> Demand:
    return Demand(gangs=(((SlotRequirement(count=missing, profile=profile, runtime=RUNTIME), missing),),))


def with_room(number: int, count: int = 2) -> RegisteredSupply:
    room = Room(slots=count, places=1, cores=count, memory_mb=4000, runtime=RUNTIME)
    return replace(standing(number, idle=count == 2), free=room)


@pytest.mark.req("RES-4")
def test_a_gang_finds_room_on_registered_ones_beside_those_that_are_coming() -> None:
    planner = made()
    assert planner.decide([], supply(demand=gang(6)), 0.0) == SupplyPlan(starts=3)
    assert planner.decide(alive(1, 2, 3), supply(demand=gang(6)), 1.0) == SupplyPlan()
    assert planner.decide(alive(1, 2, 3), supply(with_room(1), demand=gang(6)), 2.0) == SupplyPlan()
    assert planner.decide(alive(1, 2, 3), supply(with_room(1), with_room(2), demand=gang(6)), 3.0) == SupplyPlan()
    there = supply(with_room(1, 1), with_room(2, 0), demand=gang(6))
    assert planner.decide(alive(1, 2), there, 4.0) == SupplyPlan(starts=3)


@pytest.mark.req("RES-4")
def test_two_gangs_do_not_count_on_the_same_room() -> None:
    two = Demand(gangs=gang(3).gangs * 2)
    assert made().decide(alive(1), supply(with_room(1), demand=two), 0.0) == SupplyPlan(starts=2)


@pytest.mark.req("RES-4")
def test_one_that_a_gang_will_use_waits_for_the_others_and_is_not_ended_meanwhile() -> None:
    planner = made()
    for now in (0.0, 31.0, 3600.0):
        waits = supply(with_room(1), demand=gang(3))
        assert planner.decide([*alive(1), *queued(3)], waits, now) == SupplyPlan()
    assert planner.decide(alive(1), supply(with_room(1)), 3601.0) == SupplyPlan(stops=(key(1),))


@pytest.mark.req("RES-4")
def test_nothing_is_started_for_a_gang_that_can_never_have_all_its_slots() -> None:
    planner = made(max_slots=6)
    assert planner.decide([], supply(demand=gang(7)), 0.0) == SupplyPlan()
    assert planner.decide([], supply(demand=gang(6)), 0.0) == SupplyPlan(starts=3)
    assert planner.decide([], supply(demand=gang(1, ResourceProfile(cores=3, memory_mb=1))), 0.0) == SupplyPlan()
    assert planner.decide(alive(1), supply(with_room(1), demand=gang(7)), 1.0) == SupplyPlan()
    assert planner.decide(alive(1), supply(with_room(1), demand=gang(7)), 31.0) == SupplyPlan(stops=(key(1),))


@pytest.mark.req("RES-4")
@pytest.mark.parametrize("sizes", [[7] * 12, range(7, 19)], ids=["alike", "unlike"])
def test_many_gangs_that_can_never_have_all_their_slots_do_not_hold_back_another_one(sizes: Iterable[int]) -> None:
    gangs = tuple(each for size in sizes for each in gang(size).gangs)
    planner = made(max_slots=6)
    assert planner.decide([], supply(demand=Demand(gangs=(*gangs, *gang(2).gangs))), 0.0) == SupplyPlan(starts=1)


@pytest.mark.req("RES-4")
def test_a_large_gang_is_given_its_task_managers_in_several_decisions() -> None:
    assert made().decide([], supply(demand=gang(40)), 0.0) == SupplyPlan(starts=STARTS_AT_ONCE)
    first = alive(*range(STARTS_AT_ONCE))
    assert made().decide(first, supply(demand=gang(40)), 0.0) == SupplyPlan(starts=STARTS_AT_ONCE)
    assert made().decide(queued(*range(20)), supply(demand=gang(40)), 0.0) == SupplyPlan()


@pytest.mark.req("RES-4")
def test_a_gang_that_its_namespaces_quota_holds_back_needs_no_task_manager() -> None:
    rig = Rig(NamespaceLimits(slots=3))
    rig.add("tm-1")
    rig.job(4, namespace="a", gang=True)
    rig.match()
    found = rig.slots.supply()
    assert found.demand == Demand()
    assert found.standing[0].free is None


@pytest.mark.req("RES-4")
def test_while_a_gang_waits_the_room_of_open_task_managers_is_known() -> None:
    rig = Rig()
    registered = rig.add("tm-1")
    rig.job(5, gang=True)
    rig.match()
    found = rig.slots.supply()
    assert not found.demand.slots
    assert [missing for wants in found.demand.gangs for _, missing in wants] == [5]
    assert found.standing[0].free == Room(4, 2, 4, 8192, registered.runtime)


# --- histories --------------------------------------------------------------------------------------------------------


@dataclass
class World:
    """Nodes with at most one process each; starts fail, processes die, leaders are replaced, jobs come and go."""

    rng: random.Random
    limits: SupplyLimits
    nodes: int = 6
    now: float = 0.0
    wanted: int = 0  # slots, of all jobs
    up: dict[TaskManagerId, float] = field(default_factory=dict)  # alive; registers at this time
    used: dict[TaskManagerId, int] = field(default_factory=dict)
    listed: set[TaskManagerId] = field(default_factory=set)  # in the driver's records
    leaving: set[TaskManagerId] = field(default_factory=set)

    def registered(self) -> list[TaskManagerId]:
        return [each for each, at in self.up.items() if at <= self.now and each not in self.leaving]

    def serve(self) -> int:
        """Give slots; returns how many are missing."""
        self.used = dict.fromkeys(self.registered(), 0)
        left = self.wanted
        for each in self.used:
            self.used[each] = min(2, left)
            left -= self.used[each]
        return left

    def picture(self) -> tuple[Sequence[StartedTaskManager], Supply]:
        missing = self.serve()
        there = [
            RegisteredSupply(id=each, slots=2, idle=not used, away=False, blocked=False)
            for each, used in self.used.items()
        ]
        started = [StartedTaskManager(each, each, alive=each in self.up) for each in sorted(self.listed)]
        return started, supply(*there, demand=slots(missing) if missing else None)

    def carry_out(self, plan: SupplyPlan, planner: TaskManagerSupply) -> None:
        for each in plan.ends:
            assert not self.used.get(each), "only what is of no use is ended"
            planner.ended(each)
            self.listed.discard(each)
            self.up.pop(each, None)
            self.leaving.discard(each)
        for each in (*plan.revives, *self._free(plan.starts)):
            self.listed.add(each)
            if self.rng.random() < 0.8:
                self.up[each] = self.now + self.rng.uniform(1.0, 10.0) if self.rng.random() < 0.9 else 1e9
        for each in plan.stops:
            if self.rng.random() < 0.2:
                planner.stop_failed(each)
            elif each in self.up:
                assert not self.used.get(each), "only what has nothing to do is told to end"
                self.leaving.add(each)
                if self.rng.random() < 0.9:
                    del self.up[each]

    def _free(self, count: int) -> list[TaskManagerId]:
        free = [key(number) for number in range(self.nodes) if key(number) not in self.listed]
        return free[:count]


@pytest.mark.req("BLK-9")
def test_over_long_histories_demand_is_met_and_nothing_idle_stays() -> None:
    for seed in range(60):
        rng = random.Random(seed)
        world = World(rng, LIMITS)
        planner = made()
        for step in range(600):
            world.now += 1.0
            if step < 400:
                if rng.random() < 0.02:
                    world.wanted = rng.randint(0, 10)
                if rng.random() < 0.02 and world.up:
                    del world.up[rng.choice(sorted(world.up))]
                if rng.random() < 0.02:
                    planner = made()  # another leader
            elif step == 400:
                world.wanted = rng.choice((0, 5))
            started, there = world.picture()
            world.carry_out(planner.decide(started, there, world.now), planner)
            assert len(world.up) <= world.nodes
            if step == 599:
                assert world.serve() == 0, f"seed {seed}: demand is met"
                needed = -(-world.wanted // 2)
                assert len(world.up) == needed, f"seed {seed}: {len(world.up)} run, {needed} are needed"
