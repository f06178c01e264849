"""What a job keeps while it restarts, for how long, and against whom."""

from __future__ import annotations

from typing import Any

import pytest

from emberkeep.base.ids import JobId
from emberkeep.slots.custom.amounts import amounts
from emberkeep.slots.ledger import DriverNeed, DriverUse, Gives, HeldReport
from emberkeep.slots.model import Allocation, Reclaim, ResourceProfile, SlotRequirement, TaskManagerInfo
from emberkeep.slots.namespace_quotas import NamespaceLimits
from tests.unit.slots.closed.test_blocked import Places
from tests.unit.slots.test_slot_manager import PENDING, RUNTIME, SMALL, Rig, info, per_job

pytestmark = pytest.mark.req("RES-3")

PATIENCE = 60.0  # the default
BEGAN, ENDED = 100.0, 1000.0


class Restart:
    """A job whose second attempt runs on ``tm-1`` since BEGAN, with a driver and ``count`` slots."""

    def __init__(self, count: int = 2, quotas: NamespaceLimits | None = None, **job: Any) -> None:
        self.rig = Rig(quotas)
        self.node: TaskManagerInfo = self.rig.add("tm-1", slots=2, driver_places=1)
        self.job = self.rig.job(**job)
        self.rig.slots.jobs.begin_attempt(self.job, 2, BEGAN)
        self.require(self.job, 2, count)
        self.held = [allotted.allocation for allotted in self.rig.match(BEGAN)]
        self.report(BEGAN, *self.held, live=True)

    def require(self, job_id: JobId, attempt: int, count: int) -> None:
        wanted = (SlotRequirement(count=count, profile=SMALL, runtime=RUNTIME),)
        self.rig.slots.jobs.require(job_id, attempt, "jm:1", wanted, {})

    def report(self, now: float, *allocations: Allocation, live: bool) -> None:
        drivers = (DriverUse(self.job, 2, 1000, live=live),)
        self.rig.report(self.node, *allocations, drivers=drivers, now=now)

    def ends(self, now: float = ENDED, *, returns: bool = True) -> None:
        """Its driver ends; its task manager frees the slots once the attempt is known to be over."""
        self.report(now, *self.held, live=False)
        self.rig.slots.jobs.end_attempt(self.job, 2, now, returns=returns)
        self.report(now, live=False)

    def comes_back(self, now: float, count: int = 2) -> list[JobId]:
        """The next attempt starts and asks for slots; returns who gets slots, in order."""
        self.rig.slots.jobs.request_place(self.job, DriverNeed(1000, ""), 3, now)
        assert list(self.rig.places(now)) == [self.job]
        self.rig.slots.jobs.begin_attempt(self.job, 3, now)
        self.require(self.job, 3, count)
        return [allotted.allocation.job_id for allotted in self.rig.match(now)]


def test_a_job_that_waits_gets_neither_the_place_nor_the_slots() -> None:
    world = Restart()
    driver, slots = world.rig.job(attempt=0), world.rig.job(2, priority=7)
    world.rig.ask(driver, 1000, ENDED)
    world.ends()
    assert not world.rig.places(ENDED + 30)
    assert not world.rig.match(ENDED + 30)
    missing = world.rig.slots.missing
    assert missing(driver).endswith("the only driver place is taken; 1 driver place is kept for jobs that restart")
    assert "all 2 slots are taken; 2 slots are kept for jobs that restart" in missing(slots)
    assert world.comes_back(ENDED + 30) == [world.job, world.job]


def test_nothing_is_given_away_before_it_is_known_whether_the_job_restarts() -> None:
    world = Restart()
    waiting = world.rig.job(attempt=0)
    world.rig.ask(waiting, 1000, ENDED)
    world.report(ENDED, *world.held, live=False)
    assert not world.rig.places(ENDED)
    world.rig.slots.jobs.end_attempt(world.job, 2, ENDED, returns=False)
    assert world.rig.places(ENDED) == {waiting: "tm-1"}


def test_slots_that_are_freed_with_the_driver_are_not_given_away_before_it_is_known() -> None:
    world = Restart()
    waiting = world.rig.job(2)
    world.report(ENDED, live=False)  # its executors have ended with it
    assert not world.rig.match(ENDED)
    world.rig.slots.jobs.end_attempt(world.job, 2, ENDED, returns=True)
    assert not world.rig.match(ENDED)
    assert world.comes_back(ENDED + 30) == [world.job, world.job]
    world.rig.slots.jobs.remove(world.job)
    world.report(ENDED + 31, live=False)
    assert per_job(world.rig.match(ENDED + 31)) == {waiting: 2}


def test_slots_that_are_freed_with_the_driver_of_a_job_that_is_over_are_given_away() -> None:
    world = Restart()
    waiting = world.rig.job(2)
    world.report(ENDED, live=False)
    world.rig.slots.jobs.end_attempt(world.job, 2, ENDED, returns=False)
    assert per_job(world.rig.match(ENDED)) == {waiting: 2}


def test_slots_that_the_ended_attempt_has_just_got_are_kept_as_well() -> None:
    world = Restart()
    world.report(ENDED, live=True)  # its executors end before their driver
    assert per_job(world.rig.match(ENDED)) == {world.job: 2}
    waiting = world.rig.job(2)
    world.rig.slots.jobs.end_attempt(world.job, 2, ENDED, returns=True)
    world.report(ENDED, live=False)
    assert not world.rig.match(ENDED)
    assert "2 slots are kept for jobs that restart" in world.rig.slots.missing(waiting)
    assert world.comes_back(ENDED + 30) == [world.job, world.job]


def test_a_job_whose_driver_lives_after_all_gets_its_slots() -> None:
    world = Restart()
    world.report(ENDED, live=False)
    assert not world.rig.match(ENDED)
    world.require(world.job, 2, 2)
    assert per_job(world.rig.match(ENDED)) == {world.job: 2}


def test_a_job_that_does_not_restart_keeps_nothing() -> None:
    world = Restart()
    waiting = world.rig.job(2)
    world.ends(returns=False)
    assert per_job(world.rig.match(ENDED)) == {waiting: 2}
    assert world.rig.slots.supply().standing[0].slots == 2


def test_a_job_that_is_cancelled_in_the_pause_keeps_nothing() -> None:
    world = Restart()
    driver, slots = world.rig.job(attempt=0), world.rig.job(2)
    world.rig.ask(driver, 1000, ENDED)
    world.ends()
    world.rig.slots.jobs.withdraw_place(world.job)
    assert per_job(world.rig.match(ENDED)) == {slots: 2}
    assert not world.rig.slots.jobs.by_id[world.job].kept
    assert not world.rig.places(ENDED)


@pytest.mark.parametrize(("lasted", "kept_for"), [(900.0, PATIENCE), (20.0, 20.0)])
def test_it_is_kept_for_as_long_as_the_attempt_has_lasted_and_for_the_patience_at_most(
    lasted: float, kept_for: float
) -> None:
    world = Restart()
    ended = BEGAN + lasted
    driver, slots = world.rig.job(attempt=0), world.rig.job(2)
    world.rig.ask(driver, 1000, ended)
    world.ends(ended)
    world.rig.slots.task_managers.take_heartbeat(world.node.id, world.node.instance, 0, ended + kept_for)
    world.rig.slots.expire(ended + kept_for - 0.5)
    assert not world.rig.places(ended + kept_for - 0.5)
    world.rig.slots.expire(ended + kept_for)
    matches = world.rig.slots.match(ended + kept_for, lambda: next(world.rig.ids))
    assert [granted.job_id for granted in matches.places] == [driver]
    assert [allotted.allocation.job_id for allotted in matches.slots] == [slots, slots]


def test_attempts_that_end_before_they_have_slots_do_not_keep_them_for_longer() -> None:
    world = Restart()
    slots = world.rig.job(2)
    world.ends()
    for number in range(3, 8):
        now = ENDED + 10.0 * (number - 2)
        world.rig.slots.jobs.begin_attempt(world.job, number, now)
        world.rig.slots.jobs.end_attempt(world.job, number, now + 5.0, returns=True)
        assert not world.rig.match(now)
    world.rig.slots.task_managers.take_heartbeat(world.node.id, world.node.instance, 0, ENDED + PATIENCE)
    world.rig.slots.expire(ENDED + PATIENCE)
    assert per_job(world.rig.match(ENDED + PATIENCE)) == {slots: 2}


def test_among_equals_a_driver_that_has_run_comes_first_after_its_place_was_given_away() -> None:
    rig = Rig()
    waiting, restarting, urgent = rig.job(attempt=0), rig.job(attempt=1), rig.job(attempt=0, priority=1)
    for job_id in (waiting, restarting, urgent):
        rig.ask(job_id, 1000)
    rig.add("tm-1", driver_places=2)
    assert list(rig.places()) == [urgent, restarting]


def test_slots_that_are_freed_before_the_end_of_the_attempt_is_known_are_kept() -> None:
    """A driver that leaves its node, or whose script failed, returns its slots before it ends."""
    world = Restart()
    world.rig.job(2)
    world.rig.slots.jobs.close_requirements(world.job, 2, ENDED, returns=True)
    world.report(ENDED, world.held[0], live=True)
    assert not world.rig.match(ENDED)
    world.held = world.held[:1]
    world.ends()
    assert not world.rig.match(ENDED)
    assert world.comes_back(ENDED + 1) == [world.job, world.job]


def test_what_is_kept_counts_as_used_by_the_namespace() -> None:
    world = Restart(quotas=NamespaceLimits(slots=2, drivers=1), namespace="a")
    world.rig.add("tm-2", slots=2, driver_places=1)
    driver, slots = world.rig.job(namespace="a", attempt=0), world.rig.job(2, namespace="a")
    world.rig.ask(driver, 1000, ENDED)
    world.ends()
    assert not world.rig.places(ENDED)
    assert not world.rig.match(ENDED)
    assert "namespace 'a' uses all 2 slots of its quota" in world.rig.slots.missing(slots)
    assert "namespace 'a' runs the only driver of its quota" in world.rig.slots.missing(driver)


def test_a_gang_gets_all_that_was_kept() -> None:
    world = Restart(gang=True)
    world.rig.job(1, priority=1)
    world.ends()
    assert not world.rig.match(ENDED)
    assert world.comes_back(ENDED + 1) == [world.job, world.job]


@pytest.mark.parametrize(
    ("reclaim", "kept"), [(Reclaim(ceiling=1, reason=""), 1), (Reclaim(ceiling=0, reason="", whole=True), 0)]
)
def test_what_the_job_was_giving_back_to_others_is_not_kept(reclaim: Reclaim, kept: int) -> None:
    world = Restart()
    slots = world.rig.job(2)
    world.rig.slots.jobs.by_id[world.job].reclaim = reclaim
    world.ends()
    assert per_job(world.rig.match(ENDED))[slots] == 2 - kept


def test_what_the_job_no_longer_wants_is_not_kept() -> None:
    world = Restart()
    slots = world.rig.job(2)
    leaving = frozenset({world.held[0].id})
    world.rig.slots.reclaimer.take(world.job, 2, Gives(least=1, elastic=True, leaving=leaving), None, ENDED)
    world.ends()
    assert per_job(world.rig.match(ENDED)) == {slots: 1}


def test_more_than_was_kept_is_shared_as_usual() -> None:
    world = Restart()
    world.rig.add("tm-2", slots=2)
    other = world.rig.job(2)
    world.rig.match(BEGAN)
    world.rig.slots.jobs.remove(other)
    other = world.rig.job(3)
    world.ends()
    assert per_job(world.rig.match(ENDED)) == {other: 2}
    world.rig.add("tm-3", slots=1)
    assert per_job(world.rig.match(ENDED)) == {other: 1}
    assert world.comes_back(ENDED + 1, count=3) == [world.job, world.job]


def test_a_place_that_was_kept_for_long_enough_is_not_kept_again() -> None:
    """A task manager lists a driver that has ended until the next attempt is recorded."""
    world = Restart()
    world.ends()
    late = ENDED + PATIENCE
    world.report(late - 1, live=False)
    world.rig.slots.expire(late)
    world.report(late, live=False)
    driver = world.rig.job(attempt=0)
    world.rig.ask(driver, 1000, late)
    assert world.rig.places(late) == {driver: "tm-1"}


@pytest.mark.parametrize("quotas", [None, NamespaceLimits(drivers=2)])
def test_of_jobs_that_restart_together_none_takes_the_place_that_is_kept_for_another(
    quotas: NamespaceLimits | None,
) -> None:
    rig, gpu = Rig(quotas), amounts({"gpu": 1})
    small = rig.add("tm-1", driver_places=1)
    large = rig.add("tm-2", driver_places=1, total=ResourceProfile(cores=4, memory_mb=16_384, custom=gpu))
    first, second = rig.job(namespace="a"), rig.job(namespace="a")
    homes = {first: small, second: large}
    for job_id, home in homes.items():
        rig.slots.jobs.begin_attempt(job_id, 2, BEGAN)
        rig.report(home, drivers=(DriverUse(job_id, 2, 1000, live=True),), now=BEGAN)
    for job_id, home in homes.items():
        rig.report(home, drivers=(DriverUse(job_id, 2, 1000, live=False),), now=ENDED)
        rig.slots.jobs.end_attempt(job_id, 2, ENDED, returns=True)
    rig.slots.jobs.request_place(first, DriverNeed(1000, ""), 3, ENDED)
    rig.slots.jobs.request_place(second, DriverNeed(1000, "", custom=gpu), 3, ENDED)
    assert rig.places(ENDED) == {first: "tm-1", second: "tm-2"}


class Moved:
    """A job whose driver was on a node that takes nothing new now; three of its slots are kept on ``tm-2``."""

    def __init__(self, *, freed: bool = True, **job: Any) -> None:
        self.world = Restart(count=0, **job)
        self.rig, self.job = self.world.rig, self.world.job
        self.rig.slots.restrictions.block(Places("tm-1"))
        self.node = self.rig.add("tm-2", slots=3, total=ResourceProfile(cores=4, memory_mb=3 * 1024))
        self.world.require(self.job, 2, 3)
        self.held = [allotted.allocation for allotted in self.rig.match(BEGAN)]
        self.rig.report(self.node, *self.held, now=BEGAN)
        self.world.ends()
        if freed:
            self.rig.report(self.node, now=ENDED)
        self.other = self.rig.job(3)

    def asks(self, memory_mb: int) -> dict[JobId, str]:
        self.rig.slots.jobs.request_place(self.job, DriverNeed(memory_mb, ""), 3, ENDED)
        return self.rig.places(ENDED)


def test_a_driver_that_leaves_a_draining_node_still_fits_where_its_freed_slots_are_kept() -> None:
    world = Restart(count=0)
    rig, job = world.rig, world.job
    rig.slots.restrictions.take_leaving(world.node.id, drains=True)
    node = rig.add("tm-2", slots=3, total=ResourceProfile(cores=4, memory_mb=3 * 1024))
    world.require(job, 2, 3)
    held = [allotted.allocation for allotted in rig.match(BEGAN)]
    rig.report(node, *held, now=BEGAN)
    assert rig.slots.restrictions.movable() == {job}
    rig.slots.jobs.close_requirements(job, 2, ENDED, returns=True)
    rig.report(node, now=ENDED)
    assert rig.slots.restrictions.movable() == {job}
    assert rig.slots.restrictions.moving() == ()


@pytest.mark.parametrize(("memory_mb", "left"), [(1000, 2), (2000, 1), (3000, 0)])
def test_slots_that_are_kept_do_not_take_the_memory_of_their_own_driver(memory_mb: int, left: int) -> None:
    moved = Moved()
    assert moved.asks(memory_mb) == {moved.job: "tm-2"}
    assert len(moved.rig.slots.jobs.by_id[moved.job].kept) == left
    assert not moved.rig.slots.jobs.by_id[moved.other].held


def test_slots_that_are_freed_later_do_not_take_the_memory_of_their_own_driver() -> None:
    moved = Moved(freed=False)
    assert not moved.asks(1000)
    moved.rig.report(moved.node, *moved.held[:2], now=ENDED)
    assert not moved.rig.places(ENDED)
    moved.rig.report(moved.node, now=ENDED)
    assert moved.rig.places(ENDED) == {moved.job: "tm-2"}
    assert len(moved.rig.slots.jobs.by_id[moved.job].kept) == 2


def test_slots_that_are_kept_do_not_take_the_custom_resources_of_their_own_driver() -> None:
    gpu = amounts({"gpu": 1})
    world = Restart(count=0)
    rig, job = world.rig, world.job
    rig.slots.restrictions.block(Places("tm-1"))
    node = rig.add("tm-2", total=ResourceProfile(cores=4, memory_mb=8192, custom=gpu))
    profile = ResourceProfile(cores=1, memory_mb=1024, custom=gpu)
    wanted = tuple(SlotRequirement(count=1, profile=each, runtime=RUNTIME) for each in (SMALL, profile))
    rig.slots.jobs.require(job, 2, "jm:1", wanted, {})
    rig.report(node, *[allotted.allocation for allotted in rig.match(BEGAN)], now=BEGAN)
    world.ends()
    rig.report(node, now=ENDED)
    assert len(rig.slots.jobs.by_id[job].kept) == 2
    rig.slots.jobs.request_place(job, DriverNeed(1000, "", custom=gpu), 3, ENDED)
    assert rig.places(ENDED) == {job: "tm-2"}
    assert len(rig.slots.jobs.by_id[job].kept) == 1


def test_slots_stay_kept_while_their_driver_waits_for_its_namespace() -> None:
    moved = Moved(quotas=NamespaceLimits(drivers=1), namespace="a")
    moved.rig.add("tm-3", slots=0)
    moved.rig.ask(moved.rig.job(namespace="a", attempt=0), 1000, ENDED)
    assert moved.rig.places(ENDED)
    assert not moved.asks(1000)
    assert len(moved.rig.slots.jobs.by_id[moved.job].kept) == 3


def test_slots_stay_kept_if_their_driver_would_not_fit_in_their_place_either() -> None:
    moved = Moved()
    assert not moved.asks(4000)
    assert len(moved.rig.slots.jobs.by_id[moved.job].kept) == 3
    assert not moved.rig.match(ENDED)


def test_the_requirements_of_a_job_that_has_ended_are_closed_for_good() -> None:
    world = Restart()
    other = world.rig.job(2)
    world.rig.slots.jobs.close_requirements(world.job, 2, ENDED, returns=True)
    world.report(ENDED, live=True)
    assert not world.rig.match(ENDED)
    world.rig.slots.jobs.close_requirements(world.job, 2, ENDED, returns=False)
    assert per_job(world.rig.match(ENDED)) == {other: 2}


@pytest.mark.parametrize("blocked", ["tm-1", "tm-1!"])
def test_nothing_is_kept_on_a_task_manager_that_takes_nothing_new(blocked: str) -> None:
    world = Restart()
    world.ends()
    world.rig.slots.restrictions.block(Places(blocked))
    account = world.rig.slots.jobs.by_id[world.job]
    assert not account.kept
    assert account.reserved_on is None
    world.rig.match(ENDED)


def test_nothing_is_kept_on_a_task_manager_that_falls_silent() -> None:
    world = Restart()
    world.ends()
    world.rig.slots.expire(ENDED + 11.0)
    account = world.rig.slots.jobs.by_id[world.job]
    assert not account.kept
    assert account.reserved_on is None


@pytest.mark.parametrize("end", ["blocked", "leaves", "silent", "lost"])
def test_what_is_no_longer_kept_there_is_room_in_the_namespace_at_once(end: str) -> None:
    world = Restart(quotas=NamespaceLimits(slots=2, drivers=2), namespace="a")
    rig, first = world.rig, world.node
    second = rig.add("tm-2", slots=2, driver_places=1)
    driver, slots = rig.job(namespace="a", attempt=0), rig.job(2, namespace="a")
    rig.ask(driver, 1000, ENDED)
    world.ends()
    assert not rig.match(ENDED)
    now = ENDED + (11.0 if end == "silent" else 0.0)
    rig.slots.task_managers.take_heartbeat(second.id, second.instance, 0, now)
    if end == "blocked":
        rig.slots.restrictions.block(Places("tm-1"))
    elif end == "leaves":
        rig.slots.restrictions.take_leaving(first.id, drains=False)
    elif end == "lost":
        rig.slots.task_managers.remove(first.id)
    else:
        rig.slots.expire(now)
    matches = rig.slots.match(now, lambda: next(rig.ids))
    assert [(granted.job_id, granted.info.id) for granted in matches.places] == [(driver, "tm-2")]
    assert [allotted.allocation.job_id for allotted in matches.slots] == [slots, slots]


@pytest.mark.parametrize("refused", [False, True])
def test_a_slot_that_its_task_manager_has_not_taken_is_not_kept(refused: bool) -> None:
    world = Restart(quotas=NamespaceLimits(slots=2), namespace="a")
    rig = world.rig
    second = rig.add("tm-2", slots=1)
    world.report(ENDED, world.held[0], live=True)
    (pending,) = rig.match(ENDED)
    other = rig.job(1, namespace="a")
    rig.slots.jobs.close_requirements(world.job, 2, ENDED, returns=True)
    assert not rig.match(ENDED)
    late = ENDED + PENDING
    for each in (world.node, second):
        rig.slots.task_managers.take_heartbeat(each.id, each.instance, 0, late)
    if refused:
        rig.slots.take_refusal(pending.allocation.id, late)
    else:
        rig.slots.expire(late)
    assert list(rig.slots.jobs.by_id[world.job].kept) == [world.held[0].id]
    assert per_job(rig.match(late)) == {other: 1}


def test_a_slot_that_is_reported_again_is_not_counted_twice() -> None:
    world = Restart()
    world.ends()
    world.report(ENDED, *world.held, live=False)
    assert not world.rig.match(ENDED)
    world.report(ENDED, live=False)
    assert world.comes_back(ENDED + 1) == [world.job, world.job]


def test_the_job_gets_its_slots_although_the_task_manager_frees_them_late() -> None:
    world = Restart()
    other = world.rig.job(2)
    world.report(ENDED, *world.held, live=False)
    world.rig.slots.jobs.end_attempt(world.job, 2, ENDED, returns=True)
    assert world.comes_back(ENDED + 1) == []
    world.report(ENDED + 2, live=False)
    assert per_job(world.rig.match(ENDED + 2)) == {world.job: 2}
    assert per_job(world.rig.match(ENDED + 2))[other] == 0


@pytest.mark.parametrize("returns", [True, False])
def test_the_next_leader_learns_from_the_ended_driver_which_place_is_kept(returns: bool) -> None:
    rig = Rig()
    job, waiting = rig.job(attempt=2), rig.job(attempt=0)
    ended = DriverUse(job, 2, 1000, live=False)
    rig.slots.task_managers.register(info("tm-1", slots=2, driver_places=1), HeldReport(1, (), (ended,)), ENDED)
    rig.ask(waiting, 1000, ENDED)

    assert not rig.places(ENDED)
    rig.slots.jobs.end_attempt(job, 2, ENDED, returns=returns)
    assert rig.places(ENDED) == ({} if returns else {waiting: "tm-1"})
    if returns:
        rig.slots.jobs.request_place(job, DriverNeed(1000, ""), 3, ENDED + 10)
        assert rig.places(ENDED + 10) == {job: "tm-1"}
