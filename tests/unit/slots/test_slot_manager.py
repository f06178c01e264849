"""Who gets which slot and which driver place, and what is said when there is none."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest

from emberkeep.base.errors import Conflict
from emberkeep.base.ids import AllocationId, InstanceId, JobId, TaskManagerId
from emberkeep.slots.custom.amounts import amounts
from emberkeep.slots.ledger import DriverNeed, DriverUse, HeldReport
from emberkeep.slots.model import Allocation, ResourceProfile, RuntimeVersions, SlotRequirement, TaskManagerInfo
from emberkeep.slots.namespace_quotas import NamespaceLimits
from emberkeep.slots.registered_task_managers import SilenceLimits
from emberkeep.slots.resource_driver import TaskManagerSpec
from emberkeep.slots.restrictions import AVOIDED_FOR
from emberkeep.slots.slot_manager import Allotted, SlotManager

RUNTIME = RuntimeVersions(python="3.11", spark="4.3.0")
SMALL = ResourceProfile(cores=1, memory_mb=1024)
LARGE = ResourceProfile(cores=4, memory_mb=8192)
LOST_AFTER, ORPHAN, PENDING, PATIENCE = 10.0, 60.0, 20.0, 30.0


def info(name: str, **changes: Any) -> TaskManagerInfo:
    values: dict[str, Any] = {
        "id": TaskManagerId(name),
        "instance": InstanceId(f"{name}/1"),
        "address": f"{name}:1",
        "host": name,
        "node_id": name,
        "pid": 1,
        "slots": 4,
        "driver_places": 2,
        "total": ResourceProfile(cores=4, memory_mb=8192),
        "runtime": RUNTIME,
        "java_major": 17,
        "started_ms": 1,
    }
    return TaskManagerInfo(**{**values, **changes})


class Rig:
    """A slot manager, its ids and the sequences of its task managers."""

    def __init__(self, quotas: NamespaceLimits | None = None, **more: Any) -> None:
        self.slots = SlotManager(
            SilenceLimits(lost_after=LOST_AFTER, orphan_timeout=ORPHAN),
            pending_timeout=PENDING,
            patience=PATIENCE,
            quotas=quotas,
            **more,
        )
        self.ids = (AllocationId(f"{number:032x}") for number in itertools.count())
        self.sequences: Counter[str] = Counter()
        self.jobs = 0

    def add(self, name: str, **changes: Any) -> TaskManagerInfo:
        registered = info(name, **changes)
        self.sequences[name] += 1
        self.slots.task_managers.register(registered, HeldReport(self.sequences[name]), 0.0)
        return registered

    def report(
        self,
        registered: TaskManagerInfo,
        *allocations: Allocation,
        drivers: tuple[DriverUse, ...] = (),
        now: float = 0,
        **standbys: Any,
    ) -> None:
        self.sequences[registered.id] += 1
        report = HeldReport(self.sequences[registered.id], allocations, drivers, **standbys)
        assert self.slots.task_managers.take_report(registered.id, registered.instance, report, now)

    def job(
        self,
        count: int = 0,
        profile: ResourceProfile = SMALL,
        runtime: RuntimeVersions = RUNTIME,
        *,
        namespace: str = "",
        attempt: int = 1,
        priority: int = 0,
        gang: bool = False,
    ) -> JobId:
        self.jobs += 1
        job_id = JobId(f"{self.jobs:032x}")
        self.slots.jobs.add(job_id, self.jobs, attempt, namespace, priority, gang=gang)
        if count:
            self.want(job_id, count, profile, runtime)
        return job_id

    def want(
        self, job_id: JobId, count: int, profile: ResourceProfile = SMALL, runtime: RuntimeVersions = RUNTIME
    ) -> None:
        wanted = (SlotRequirement(count=count, profile=profile, runtime=runtime),)
        self.slots.jobs.require(job_id, 1, "jm:1", wanted, {})

    def state(self, name: str, **sizes: int) -> None:
        """Local state of the first job."""
        self.slots.task_managers.take_local_state(TaskManagerId(name), {JobId(f"{1:032x}"): sizes["size"]})

    def match(self, now: float = 0.0) -> list[Allotted]:
        found = list(self.slots.match(now, lambda: next(self.ids)).slots)
        self.slots.check_invariants()
        return found

    def places(self, now: float = 0.0) -> dict[JobId, str]:
        granted = self.slots.match(now, lambda: next(self.ids)).places
        self.slots.check_invariants()
        return {place.job_id: place.info.id for place in granted}

    def ask(self, job_id: JobId, memory_mb: int, now: float = 0.0, python: str = "") -> None:
        self.slots.jobs.request_place(job_id, DriverNeed(memory_mb, python), 2, now)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def per_job(found: list[Allotted]) -> Counter[JobId]:
    return Counter(allotted.allocation.job_id for allotted in found)


class TestFairness:
    def test_each_job_gets_a_first_slot_before_any_gets_another(self, rig: Rig) -> None:
        rig.add("tm-1")
        jobs = [rig.job(4) for _ in range(4)]
        found = rig.match()
        assert [allotted.allocation.job_id for allotted in found] == jobs

    def test_the_job_with_the_fewest_comes_next_ties_to_the_earlier(self, rig: Rig) -> None:
        rig.add("tm-1")
        first = rig.job(10)
        assert per_job(rig.match()) == {first: 4}
        rig.add("tm-2")
        second, third = rig.job(10), rig.job(10)
        assert [a.allocation.job_id for a in rig.match()] == [second, third, second, third]

    def test_what_one_cannot_use_goes_to_the_next(self, rig: Rig) -> None:
        rig.add("tm-1", total=ResourceProfile(cores=2, memory_mb=4096))
        rig.job(1, LARGE)
        small = rig.job(2)
        assert per_job(rig.match()) == {small: 2}

    def test_a_job_s_slots_spread_and_prefer_the_freest(self, rig: Rig) -> None:
        rig.add("tm-1", slots=1)
        rig.add("tm-2", slots=4)
        rig.add("tm-3", slots=3)
        rig.job(5)
        assert [allotted.info.id for allotted in rig.match()] == ["tm-2", "tm-3", "tm-1", "tm-2", "tm-3"]

    def test_a_slot_that_a_job_has_lost_is_replaced_on_another_task_manager_though_that_has_less_room(
        self, rig: Rig
    ) -> None:
        members = {name: rig.add(name, slots=slots) for name, slots in (("a", 4), ("b", 3), ("c", 2))}
        rig.job(1)
        placed = []
        for _ in range(5):
            (found,) = rig.match()
            placed.append(found.info.id)
            rig.report(members[found.info.id], found.allocation)
            rig.report(members[found.info.id])  # its executor has ended at once
        assert placed == ["a", "b", "c", "a", "b"]

    def test_that_a_job_has_lost_a_slot_somewhere_matters_to_that_job_and_attempt_alone(self, rig: Rig) -> None:
        first, _ = rig.add("a", slots=4), rig.add("b", slots=2)
        job_id = rig.job(1)
        (found,) = rig.match()
        rig.report(first, found.allocation)
        rig.report(first)
        rig.job(1)
        assert [allotted.info.id for allotted in rig.match()] == ["b", "a"]
        rig.slots.jobs.begin_attempt(job_id, 2, 0.0)
        rig.slots.jobs.require(job_id, 2, "jm:1", (SlotRequirement(count=1, profile=SMALL, runtime=RUNTIME),), {})
        assert [allotted.info.id for allotted in rig.match()] == ["a"]

    def test_slots_spread_also_onto_task_managers_where_the_job_has_lost_some(self, rig: Rig) -> None:
        first, second = rig.add("a", slots=4), rig.add("b", slots=3)
        rig.job(2)
        on_first, on_second = rig.match()
        rig.report(second, on_second.allocation)
        rig.report(first, on_first.allocation)
        rig.report(first)
        assert [allotted.info.id for allotted in rig.match()] == ["a"]

    def test_several_sizes_of_one_job(self, rig: Rig) -> None:
        rig.add("tm-1", total=ResourceProfile(cores=8, memory_mb=16_384))
        job_id = rig.job()
        wanted = tuple(SlotRequirement(count=2, profile=profile, runtime=RUNTIME) for profile in (SMALL, LARGE))
        rig.slots.jobs.require(job_id, 1, "jm:1", wanted, {})
        assert Counter(allotted.allocation.profile for allotted in rig.match()) == {SMALL: 2, LARGE: 1}
        assert rig.slots.missing(job_id).startswith("1 of 2 slots (4 cores and 8192 MiB each) is missing")


class TestAccounts:
    def test_a_decided_slot_is_taken_until_it_lapses(self, rig: Rig) -> None:
        rig.add("tm-1", slots=1)
        first, second = rig.job(1), rig.job(1)
        assert per_job(rig.match()) == {first: 1}
        rig.slots.task_managers.take_heartbeat(TaskManagerId("tm-1"), InstanceId("tm-1/1"), 1, PENDING - 1)
        rig.slots.expire(PENDING - 1)
        assert not rig.match()
        rig.slots.task_managers.take_heartbeat(TaskManagerId("tm-1"), InstanceId("tm-1/1"), 1, PENDING)
        rig.slots.jobs.close_requirements(first, 1, 0.0)
        rig.slots.expire(PENDING)
        assert per_job(rig.match()) == {second: 1}

    def test_a_reported_slot_is_held_until_it_is_reported_no_more(self, rig: Rig) -> None:
        registered = rig.add("tm-1", slots=1)
        job_id = rig.job(1)
        slot = rig.match()[0].allocation
        rig.report(registered, slot)
        rig.slots.expire(PENDING / 4)
        assert rig.slots.missing(job_id) == ""
        rig.report(registered)
        assert per_job(rig.match()) == {job_id: 1}

    def test_late_reports_change_nothing(self, rig: Rig) -> None:
        registered = rig.add("tm-1", slots=1)
        rig.job(1)
        slot = rig.match()[0].allocation
        rig.report(registered, slot)
        assert rig.slots.task_managers.take_report(registered.id, registered.instance, HeldReport(1), 0.0)
        assert not rig.match()

    def test_a_task_manager_that_refused_is_avoided_for_a_moment(self, rig: Rig) -> None:
        rig.add("tm-1", slots=2)
        rig.job(1)
        slot = rig.match()[0].allocation
        rig.slots.take_refusal(slot.id, 1.0)
        assert not rig.match(1.0)
        rig.slots.expire(1.0 + AVOIDED_FOR)
        assert len(rig.match(1.0 + AVOIDED_FOR)) == 1

    def test_the_end_of_an_attempt_frees_what_was_decided_for_it(self, rig: Rig) -> None:
        rig.add("tm-1", slots=1)
        first = rig.job(1)
        slot = rig.match()[0].allocation
        second = rig.job(1)
        rig.slots.jobs.end_attempt(first, 1, 0.0)
        assert not rig.slots.is_pending(slot.id)
        assert per_job(rig.match()) == {second: 1}
        rig.want(first, 1)
        assert rig.slots.missing(first) == "", "an attempt that is over wants nothing"

    def test_slots_of_an_older_attempt_occupy_but_do_not_count(self, rig: Rig) -> None:
        registered = rig.add("tm-1", slots=2)
        job_id = rig.job(1)
        rig.report(registered, rig.match()[0].allocation)
        rig.slots.jobs.begin_attempt(job_id, 2, 0.0)
        assert rig.slots.jobs.is_void(job_id, 1)
        wanted = (SlotRequirement(count=2, profile=SMALL, runtime=RUNTIME),)
        rig.slots.jobs.require(job_id, 2, "jm:2", wanted, {})
        assert per_job(rig.match()) == {job_id: 1}
        assert "all 2 slots are taken" in rig.slots.missing(job_id)

    def test_requirements_that_were_closed_stay_closed(self, rig: Rig) -> None:
        rig.add("tm-1")
        job_id = rig.job(1)
        rig.slots.jobs.close_requirements(job_id, 1, 0.0)
        rig.want(job_id, 2)
        assert not rig.match()

    def test_a_silent_task_manager_takes_along_what_it_has_not_reported(self, rig: Rig) -> None:
        registered = rig.add("tm-1")
        job_id = rig.job(2)
        rig.match()
        lapsed = rig.slots.expire(LOST_AFTER)
        assert lapsed.lost == ((registered, ()),)
        assert rig.slots.missing(job_id) == "", "a round is due that may give it others"
        assert not rig.match()
        missing = "2 of 2 slots (1 core and 1024 MiB each) are missing: no task manager is registered"
        assert rig.slots.missing(job_id) == missing
        assert not rig.slots.task_managers.take_heartbeat(registered.id, registered.instance, 1, LOST_AFTER)

    def test_a_new_life_replaces_the_old_one(self, rig: Rig) -> None:
        old = rig.add("tm-1")
        job_id = rig.job(1)
        rig.match()
        new = info("tm-1", instance=InstanceId("tm-1/2"), predecessor=old.instance, started_ms=-5)
        assert rig.slots.task_managers.register(new, HeldReport(1), 0.0) == (old, (job_id,))
        with pytest.raises(Conflict, match="has been restarted"):
            rig.slots.task_managers.take_heartbeat(old.id, old.instance, 9, 0.0)
        with pytest.raises(Conflict, match="its previous instance"):
            rig.slots.task_managers.register(old, HeldReport(9), 0.0)

    def test_a_new_life_replaces_one_that_never_learned_that_it_has_registered(self, rig: Rig) -> None:
        old = rig.add("tm-1")
        first, second, third = (InstanceId(f"tm-1/{number}") for number in (2, 3, 4))
        unheard = info("tm-1", instance=second, predecessor=old.instance, unconfirmed=(first,))
        rig.slots.task_managers.register(unheard, HeldReport(1), 0.0)
        new = info("tm-1", instance=third, predecessor=old.instance, unconfirmed=(first, second))
        assert rig.slots.task_managers.register(new, HeldReport(1), 0.0) == (unheard, ())
        for over in (first, second):
            with pytest.raises(Conflict, match="its previous instance"):
                rig.slots.task_managers.register(info("tm-1", instance=over), HeldReport(9), 0.0)

    @pytest.mark.req("SAFE-16")
    @pytest.mark.parametrize("host", ["tm-1", "elsewhere"])
    @pytest.mark.parametrize("predecessor", [None, "tm-1/0"])
    @pytest.mark.parametrize("started_ms", [0, 2])
    @pytest.mark.parametrize("busy", [False, True])
    def test_a_second_one_without_proof_that_the_first_has_ended_is_refused_while_that_is_heard(
        self, rig: Rig, host: str, predecessor: str | None, started_ms: int, busy: bool
    ) -> None:
        first = rig.add("tm-1", pid=11)
        if busy:
            rig.job(1)
            rig.report(first, *(allotted.allocation for allotted in rig.match()))
        life = None if predecessor is None else InstanceId(predecessor)
        second = info("tm-1", instance=InstanceId("tm-1/2"), pid=22, host=host, predecessor=life, started_ms=started_ms)
        for now in (0.0, LOST_AFTER / 2):
            with pytest.raises(Conflict, match=rf"pid 11 on tm-1 .* pid 22 on {host} .* cannot register with it"):
                rig.slots.task_managers.register(second, HeldReport(1), now)
        assert rig.slots.task_managers.take_heartbeat(first.id, first.instance, 9, LOST_AFTER / 2)
        rig.slots.expire(LOST_AFTER)
        with pytest.raises(Conflict):
            rig.slots.task_managers.register(second, HeldReport(1), LOST_AFTER)
        rig.slots.expire(2 * LOST_AFTER)
        rig.slots.task_managers.register(second, HeldReport(1), 2 * LOST_AFTER)
        rig.slots.check_invariants()
        with pytest.raises(Conflict):
            rig.slots.task_managers.take_heartbeat(first.id, first.instance, 10, 2 * LOST_AFTER)


@pytest.mark.req("LOC-5")
@pytest.mark.req("LOC-6")
class TestTaskManagersThatAreAway:
    def away(self, rig: Rig, count: int = 2, **changes: Any) -> tuple[TaskManagerInfo, JobId, tuple[Allocation, ...]]:
        """A task manager that was silent for too long, with slots that one job holds."""
        registered = rig.add("tm-1", **changes)
        job_id = rig.job(count)
        allocations = tuple(allotted.allocation for allotted in rig.match())
        rig.report(registered, *allocations)
        lapsed = rig.slots.expire(LOST_AFTER)
        assert (lapsed.lost, lapsed.away) == ((), (registered,))
        rig.slots.check_invariants()
        return registered, job_id, allocations

    def test_what_jobs_hold_there_stays_theirs_and_nothing_more_is_given(self, rig: Rig) -> None:
        registered, job_id, _ = self.away(rig)
        assert rig.slots.missing(job_id) == ""
        other = rig.job(1)
        assert not rig.match(LOST_AFTER)
        assert rig.slots.missing(other).endswith("no task manager is registered except 1 that is away")
        rig.ask(other, 512)
        assert rig.places() == {}
        assert rig.slots.task_managers.take_heartbeat(registered.id, registered.instance, 2, LOST_AFTER + 1)
        assert [allotted.allocation.job_id for allotted in rig.match(LOST_AFTER + 1)] == [other]

    def test_it_is_lost_after_the_orphan_timeout(self, rig: Rig) -> None:
        registered, job_id, _ = self.away(rig)
        assert rig.slots.expire(ORPHAN - 1).lost == ()
        assert rig.slots.expire(ORPHAN).lost == ((registered, (job_id,)),)
        rig.match()
        assert rig.slots.missing(job_id).endswith("no task manager is registered")

    def test_a_slot_that_its_job_master_has_given_up_is_replaced_elsewhere(self, rig: Rig) -> None:
        registered, job_id, (kept, lost) = self.away(rig)
        rig.add("tm-2")
        wanted = (SlotRequirement(count=2, profile=SMALL, runtime=RUNTIME),)
        rig.slots.jobs.require(job_id, 1, "jm:1", wanted, {kept.id: registered.id})
        assert [allotted.info.id for allotted in rig.match()] == ["tm-2"]
        # Back again, it still reports the slot, until its JobMaster has refused it.
        new = info("tm-1", instance=InstanceId("tm-1/2"), predecessor=registered.instance, host="elsewhere")
        assert rig.slots.task_managers.register(new, HeldReport(1, (kept, lost)), 20.0) == (registered, ())
        rig.slots.check_invariants()

    def test_it_is_lost_when_nobody_holds_anything_there_any_more(self, rig: Rig) -> None:
        registered, job_id, _ = self.away(rig)
        wanted = (SlotRequirement(count=2, profile=SMALL, runtime=RUNTIME),)
        rig.slots.jobs.require(job_id, 1, "jm:1", wanted, {})
        assert rig.slots.expire(LOST_AFTER + 1).lost == ((registered, (job_id,)),)

    def test_a_driver_alone_keeps_it(self, rig: Rig) -> None:
        registered, job_id = rig.add("tm-1"), rig.job()
        rig.report(registered, drivers=(DriverUse(job_id, 1, 1024, live=True),))
        assert rig.slots.expire(LOST_AFTER).away == (registered,)
        assert rig.slots.expire(ORPHAN).lost == ((registered, ()),)

    def test_its_next_life_keeps_what_it_reports(self, rig: Rig) -> None:
        registered, _, (first, second) = self.away(rig)
        new = info("tm-1", instance=InstanceId("tm-1/2"), predecessor=registered.instance, started_ms=-5)
        assert rig.slots.task_managers.register(new, HeldReport(1, (first,)), 20.0) == (registered, ())
        (again,) = rig.match(20.0)
        assert again.info == new
        assert again.allocation.id not in (first.id, second.id)

    def test_a_next_life_that_took_nothing_over_has_lost_everything(self, rig: Rig) -> None:
        registered, job_id, _ = self.away(rig)
        new = info("tm-1", instance=InstanceId("tm-1/2"), started_ms=2)
        assert rig.slots.task_managers.register(new, HeldReport(1), 20.0) == (registered, (job_id,))

    def test_its_id_may_be_taken_on_another_host(self, rig: Rig) -> None:
        registered, job_id, _ = self.away(rig)
        new = info("tm-1", instance=InstanceId("tm-1/2"), host="elsewhere", node_id="elsewhere")
        assert rig.slots.task_managers.register(new, HeldReport(1), 20.0) == (registered, (job_id,))
        rig.slots.check_invariants()

    def test_slots_on_task_managers_that_a_new_leader_has_not_met_are_not_replaced(self, rig: Rig) -> None:
        rig.add("tm-2")
        job_id = rig.job()
        wanted = (SlotRequirement(count=2, profile=SMALL, runtime=RUNTIME),)
        held = {AllocationId("a"): TaskManagerId("tm-1"), AllocationId("b"): TaskManagerId("tm-1")}
        rig.slots.jobs.require(job_id, 1, "jm:1", wanted, held)
        assert not rig.match()
        rig.slots.jobs.require(job_id, 1, "jm:1", wanted, {})
        assert len(rig.match()) == 2


@pytest.mark.req("LOC-11")
class TestLocality:
    def test_slots_go_where_the_state_lies_by_shares(self, rig: Rig) -> None:
        for name, size in (("tm-1", 100), ("tm-2", 90), ("tm-3", 0), ("tm-4", 0)):
            rig.add(name)
            rig.state(name, size=size)
        rig.job(4)
        assert [allotted.info.id for allotted in rig.match()] == ["tm-1", "tm-2", "tm-1", "tm-2"]

    def test_what_does_not_fit_there_is_spread(self, rig: Rig) -> None:
        rig.add("tm-1", slots=1)
        rig.state("tm-1", size=100)
        rig.add("tm-2")
        rig.add("tm-3")
        rig.job(3)
        assert [allotted.info.id for allotted in rig.match()] == ["tm-1", "tm-2", "tm-3"]

    def test_it_gives_no_job_an_advantage_over_another(self, rig: Rig) -> None:
        rig.add("tm-1", slots=2)
        rig.state("tm-1", size=100)
        first, second = rig.job(2), rig.job(2)
        assert [allotted.allocation.job_id for allotted in rig.match()] == [first, second]

    def test_a_driver_goes_to_its_former_task_manager_if_state_is_left_there(self, rig: Rig) -> None:
        former = rig.add("tm-1")
        rig.state("tm-1", size=10)
        rig.add("tm-2")
        rig.state("tm-2", size=1000)
        rig.add("tm-3", total=ResourceProfile(cores=4, memory_mb=16384))
        job_id, other = rig.job(), rig.job()
        rig.report(former, drivers=(DriverUse(job_id, 1, 1024, live=False),))
        rig.ask(job_id, 1024)
        rig.ask(other, 1024)
        assert rig.places() == {job_id: "tm-1", other: "tm-3"}
        rig.slots.jobs.withdraw_place(job_id)
        rig.state("tm-1", size=0)
        rig.ask(job_id, 1024)
        assert rig.places() == {job_id: "tm-2"}, "else to the one with the most state"

    @pytest.mark.parametrize(
        ("former", "memory_mb", "python"),
        [({"driver_places": 0}, 1024, ""), ({}, 9000, ""), ({}, 1024, "3.12")],
    )
    def test_no_driver_goes_to_state_where_it_does_not_fit(
        self, rig: Rig, former: dict[str, Any], memory_mb: int, python: str
    ) -> None:
        rig.add("tm-1", **former)
        rig.state("tm-1", size=10)
        rig.add(
            "tm-2",
            total=ResourceProfile(cores=4, memory_mb=16384),
            runtime=RuntimeVersions(python="3.12", spark="4.3.0"),
        )
        job_id = rig.job()
        rig.ask(job_id, memory_mb, python=python)
        assert rig.places() == {job_id: "tm-2"}


class TestDriverPlaces:
    def test_they_go_in_the_order_of_submission_to_the_freest(self, rig: Rig) -> None:
        rig.add("tm-1", total=ResourceProfile(cores=4, memory_mb=4096))
        rig.add("tm-2", total=ResourceProfile(cores=4, memory_mb=5000))
        first, second, third = (rig.job() for _ in range(3))
        for job_id in (third, second, first):
            rig.ask(job_id, 1024)
        assert rig.places() == {first: "tm-2", second: "tm-1", third: "tm-2"}

    def test_a_reservation_ends_when_the_driver_shows_up(self, rig: Rig) -> None:
        registered = rig.add("tm-1", driver_places=1)
        job_id, other = rig.job(), rig.job()
        rig.ask(job_id, 1024)
        assert rig.places() == {job_id: "tm-1"}
        rig.ask(other, 1024)
        assert rig.places() == {}
        rig.report(registered, drivers=(DriverUse(job_id, 2, 1024, live=True),))
        assert rig.places() == {}
        rig.report(registered, drivers=(DriverUse(job_id, 2, 1024, live=False),))
        assert rig.places() == {other: "tm-1"}

    def test_a_withdrawn_place_is_free_again(self, rig: Rig) -> None:
        rig.add("tm-1", driver_places=1)
        first, second = rig.job(), rig.job()
        rig.ask(first, 1024)
        rig.places()
        rig.ask(second, 1024)
        rig.slots.jobs.withdraw_place(first)
        assert rig.places() == {second: "tm-1"}

    def test_a_large_driver_holds_up_no_small_one_at_first_and_does_not_starve(self, rig: Rig) -> None:
        registered = rig.add("tm-1", driver_places=4)
        runs = tuple(DriverUse(rig.job(), 1, 3000, live=True) for _ in range(2))
        rig.report(registered, drivers=runs)
        large, small, later = rig.job(), rig.job(), rig.job(1)
        rig.ask(large, 6000)
        rig.ask(small, 1000)
        assert rig.places() == {small: "tm-1"}
        rig.slots.task_managers.take_heartbeat(registered.id, registered.instance, 2, PATIENCE)
        rig.slots.expire(PATIENCE)
        assert rig.places(PATIENCE) == {}
        rig.ask(later, 500, PATIENCE)
        assert rig.places(PATIENCE) == {}, "what becomes free is kept for the large one"
        rig.report(registered, drivers=(DriverUse(small, 2, 1000, live=True),), now=PATIENCE)
        for driver in runs:
            rig.slots.jobs.end_attempt(driver.job_id, 1, PATIENCE)
        assert rig.places(PATIENCE) == {large: "tm-1", later: "tm-1"}

    def test_a_claim_counts_in_the_round_that_makes_it(self, rig: Rig) -> None:
        registered = rig.add("tm-1", driver_places=4)
        rig.report(registered, drivers=(DriverUse(rig.job(), 1, 3000, live=True),))
        large, later = rig.job(), rig.job()
        rig.ask(large, 6000)
        rig.slots.task_managers.take_heartbeat(registered.id, registered.instance, 1, PATIENCE)
        rig.slots.expire(PATIENCE)
        rig.ask(later, 500, PATIENCE)
        assert rig.places(PATIENCE) == {}

    def test_only_task_managers_with_the_job_s_python_count(self, rig: Rig) -> None:
        rig.add("tm-1")
        job_id = rig.job()
        rig.ask(job_id, 1024, python="3.12")
        assert rig.places() == {}
        assert rig.slots.missing(job_id) == "no place for the driver (1024 MiB): no task manager has Python 3.12"


class TestWords:
    @pytest.mark.parametrize(
        ("changes", "profile", "runtime", "reason"),
        [
            ({"slots": 0}, SMALL, RUNTIME, "no task manager has any slots"),
            ({}, SMALL, RuntimeVersions(python="3.12", spark="4.3.0"), "no task manager has Python 3.12"),
            (
                {},
                SMALL,
                RuntimeVersions(python="3.11", spark="4.4.0"),
                "no task manager with Python 3.11 has Spark 4.4.0",
            ),
            (
                {},
                ResourceProfile(cores=9, memory_mb=1),
                RUNTIME,
                "no task manager is large enough: the largest has 4 cores and 8192 MiB",
            ),
            ({"slots": 1}, SMALL, RUNTIME, "the only slot is taken"),
            ({"slots": 2}, SMALL, RUNTIME, "all 2 slots are taken"),
            (
                {"slots": 3, "total": ResourceProfile(cores=2, memory_mb=4096)},
                SMALL,
                RUNTIME,
                "1 of 3 slots are free, but no task manager has 1 core and 1024 MiB free",
            ),
        ],
    )
    def test_why_slots_are_missing(
        self, rig: Rig, changes: dict[str, Any], profile: ResourceProfile, runtime: RuntimeVersions, reason: str
    ) -> None:
        rig.add("tm-1", **changes)
        job_id = rig.job(8, profile, runtime)
        rig.match()
        assert rig.slots.missing(job_id).endswith(f"missing: {reason}")

    @pytest.mark.parametrize(
        ("need", "executor", "words"),
        [
            (DriverNeed(9000, ""), None, "large enough for the driver"),
            (DriverNeed(512, "3.12"), None, "no task manager has Python 3.12 (registered: Python 3.11)"),
            (DriverNeed(512, ""), ResourceProfile(cores=5, memory_mb=1), "large enough for an executor"),
            (DriverNeed(5000, ""), ResourceProfile(cores=1, memory_mb=5000), "together need 10000 MiB"),
            (DriverNeed(4000, "3.11"), ResourceProfile(cores=1, memory_mb=4000), ""),
        ],
    )
    def test_what_could_never_run(
        self, rig: Rig, need: DriverNeed, executor: ResourceProfile | None, words: str
    ) -> None:
        assert rig.slots.obstacle(need, executor) == "", "nobody is there yet: it may come"
        rig.add("tm-1")
        obstacle = rig.slots.obstacle(need, executor)
        assert (words in obstacle) if words else obstacle == ""

    @pytest.mark.req("RES-1")
    def test_what_can_be_started_on_demand_counts(self, rig: Rig) -> None:
        def capacity(**custom: int) -> TaskManagerSpec:
            total = ResourceProfile(cores=4, memory_mb=8192, custom=amounts(custom))
            return TaskManagerSpec(slots=4, driver_places=4, total=total, runtime=RUNTIME)

        executor = ResourceProfile(cores=1, memory_mb=1024, custom=amounts({"gpu": 1}))
        need = DriverNeed(512, "")
        assert "offers 1 gpu" in rig.slots.obstacle(need, executor, [capacity()])
        assert rig.slots.obstacle(need, executor, [capacity(gpu=1)]) == ""
        rig.add("tm-1")
        assert "offers 1 gpu" in rig.slots.obstacle(need, executor)
        assert rig.slots.obstacle(need, executor, [capacity(gpu=1)]) == ""
        # The driver and its executor need not share one task manager if several can be started.
        both = DriverNeed(512, "", custom=amounts({"gpu": 1}))
        assert rig.slots.obstacle(both, executor, [capacity(gpu=1)] * 2) == ""
        assert "together need 2 gpu" in rig.slots.obstacle(both, executor, [capacity(gpu=1)])


class TestClaims:
    """A task manager that is kept for a driver which has waited for long."""

    def claim(self, rig: Rig, memory_mb: int) -> tuple[TaskManagerInfo, JobId, JobId]:
        """One that has its only driver place and one slot of it taken, claimed by a driver that needs so much."""
        registered = rig.add("tm-1", driver_places=1)
        running, waiting = rig.job(), rig.job()
        rig.report(registered, drivers=(DriverUse(running, 1, 512, True),))
        rig.ask(waiting, memory_mb)
        rig.slots.task_managers.take_heartbeat(registered.id, registered.instance, 0, PATIENCE)
        rig.slots.expire(PATIENCE)
        assert rig.places(PATIENCE) == {}
        return registered, running, waiting

    def test_slots_may_use_what_the_driver_does_not_need(self, rig: Rig) -> None:
        _, running, _ = self.claim(rig, 512)
        rig.want(running, 2)
        assert per_job(rig.match(PATIENCE)) == {running: 2}

    def test_slots_may_use_the_memory_that_becomes_free_with_the_place(self, rig: Rig) -> None:
        _, running, _ = self.claim(rig, 512)
        rig.want(running, 1, profile=ResourceProfile(cores=1, memory_mb=8192 - 512))
        assert per_job(rig.match(PATIENCE)) == {running: 1}

    def test_it_ends_with_the_request(self, rig: Rig) -> None:
        _, running, waiting = self.claim(rig, 8192)
        rig.slots.jobs.withdraw_place(waiting)
        rig.want(running, 2)
        assert per_job(rig.match(PATIENCE)) == {running: 2}

    def test_it_ends_so_that_what_the_driver_waits_for_can_end(self, rig: Rig) -> None:
        registered, running, _ = self.claim(rig, 8192)
        rig.want(running, 2)
        assert rig.match(PATIENCE) == []
        rig.slots.task_managers.take_heartbeat(registered.id, registered.instance, 0, 2 * PATIENCE)
        rig.slots.expire(2 * PATIENCE)
        assert per_job(rig.match(2 * PATIENCE)) == {running: 2}
