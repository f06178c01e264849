"""A JobMaster's slots under any order of offers, executor ends, losses, application changes and time."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from emberkeep.base.ids import AllocationId, ExecutorId, InstanceId, JobId, TaskManagerId
from emberkeep.slots.model import (
    Allocation,
    Reclaim,
    ResourceProfile,
    RuntimeVersions,
    SlotRequirement,
    TaskManagerInfo,
)
from emberkeep.slots.pool.events import (
    AcceptOffer,
    ApplicationStarted,
    ApplicationStopped,
    ApplicationStopping,
    BeatAnswered,
    CeilingSet,
    ExecutorExited,
    ExecutorRuns,
    ExecutorsDemanded,
    FailAttempt,
    FoundExecutor,
    PlacesBlocked,
    PoolEffect,
    PoolEvent,
    ReleaseDone,
    ReleaseSlotAt,
    RemoveExecutor,
    SlotGone,
    SlotsOffered,
    SparkSaw,
    StartExecutorIn,
    TaskManagerLost,
    Tick,
)
from emberkeep.slots.pool.held_slot import ExecutorState, HeldSlot
from emberkeep.slots.pool.limits import PoolLimits
from emberkeep.slots.pool.machine import SlotPool
from emberkeep.slots.pool.state import PoolState
from tests.campaign import examples

LIMITS = PoolLimits(
    max_failures=4,
    failure_window=100.0,
    backoff_initial=0.5,
    backoff_max=1.5,
    request_timeout=50.0,
    silence_timeout=10.0,
    start_timeout=30.0,
    orphan_timeout=40.0,
    evacuation_timeout=25.0,
    reclaim_timeout=25.0,
)
RUNTIME = RuntimeVersions(python="3.11", spark="4.3.0")
SMALL = ResourceProfile(cores=1, memory_mb=500)
LARGE = ResourceProfile(cores=2, memory_mb=900)
INSTANCES = st.sampled_from(["tm0#1", "tm0#2", "tm1#1", "tm2#1"])


def task_manager(instance: str) -> TaskManagerInfo:
    return TaskManagerInfo(
        id=TaskManagerId(instance.partition("#")[0]),
        instance=InstanceId(instance),
        address=f"{instance.partition('#')[0]}:1",
        host="127.0.0.1",
        node_id="node",
        pid=1,
        slots=4,
        driver_places=1,
        total=ResourceProfile(cores=8, memory_mb=8000),
        runtime=RUNTIME,
        java_major=17,
        started_ms=0,
    )


class Places(NamedTuple):
    """The task managers that are blocked, and of these the evacuated ones."""

    blocked: frozenset[str] = frozenset()
    evacuated: frozenset[str] = frozenset()

    def is_blocked(self, task_manager: TaskManagerId, node_id: str) -> bool:
        return task_manager in self.blocked

    def is_evacuated(self, task_manager: TaskManagerId, node_id: str) -> bool:
        return task_manager in self.evacuated

    def vacant(self, present: Iterable[tuple[TaskManagerId, str]]) -> tuple[str, ...]:
        return ()


class PoolMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.pool = SlotPool(LIMITS)
        self.now = 0.0
        self.executors: set[ExecutorId] = set()  # ever started
        self.left: set[AllocationId] = set()  # were held once
        self.numbers = 0
        self.failed = 0

    def give(self, event: PoolEvent) -> list[PoolEffect]:
        before = copy.deepcopy(self.pool.state.held)
        effects = self.pool.handle(event, self.now)
        started = [effect.allocation_id for effect in effects if isinstance(effect, StartExecutorIn)]
        assert len(started) == len(set(started))
        for allocation_id, slot in self.pool.state.held.items():
            old = before.get(allocation_id)
            anew = old is None or old.executor.id != slot.executor.id
            if anew:
                assert allocation_id in started, "one start for each executor that a slot is to have"
                assert slot.executor.id not in self.executors, "executor ids are never used again"
                self.executors.add(slot.executor.id)
            elif allocation_id in started and old is not None:
                assert not old.executor.is_known_to_run, "one start for each executor that a slot is to have"
                assert old.task_manager.instance != slot.task_manager.instance, "each instance is asked once"
        assert not self.left & self.pool.state.held.keys(), "what was given up is never held again"
        self.left |= before.keys() - self.pool.state.held.keys()
        self.failed += sum(isinstance(effect, FailAttempt) for effect in effects)
        assert self.failed <= 1, "an attempt fails once"
        self.check_ends(before, effects)
        return effects

    def check_ends(self, before: dict[AllocationId, HeldSlot], effects: list[PoolEffect]) -> None:
        """Each slot that is held no more was given back, or Spark was told that its executor is lost."""
        released = {effect.allocation_id for effect in effects if isinstance(effect, ReleaseSlotAt)}
        removed = {effect.executor_id for effect in effects if isinstance(effect, RemoveExecutor)}
        for allocation_id, slot in before.items():
            if allocation_id not in self.pool.state.held:
                assert allocation_id in released or slot.executor.id in removed
            elif self.pool.state.held[allocation_id].executor.id != slot.executor.id:
                assert slot.executor.id in removed, "Spark is told of an executor that has another one in its slot"
        assert released <= before.keys(), "only what was held is given back"

    # --- rules -------------------------------------------------------------------------------------------------------

    @precondition(
        lambda self: self.pool.state.requirement is None or self.pool.state.failed or len(self.pool.state.held) >= 3
    )
    @rule(
        count=st.sampled_from([4, 3, 1, 0]),
        profile=st.sampled_from([SMALL, LARGE]),
        decommissions=st.booleans(),
        idle_timeout=st.sampled_from([None, 5.0]),
    )
    def application_starts(
        self, count: int, profile: ResourceProfile, decommissions: bool, idle_timeout: float | None
    ) -> None:
        requirement = SlotRequirement(count=count, profile=profile, runtime=RUNTIME)
        self.give(ApplicationStarted(requirement, decommissions, idle_timeout))

    @rule(count=st.integers(0, 4), data=st.data())
    def spark_demands(self, count: int, data: st.DataObject) -> None:
        """Dynamic allocation wants another number, and removes executors that it knows."""
        before = copy.deepcopy(self.pool.state)
        known = sorted(slot.executor.id for slot in before.held.values() if slot.executor.is_registered)
        ended = data.draw(st.lists(st.sampled_from(known), unique=True)) if known else []
        split = data.draw(st.integers(0, len(ended)))
        killed, decommissioned = frozenset(ended[:split]), frozenset(ended[split:])
        effects = self.give(ExecutorsDemanded(count, decommissioned, killed))
        after = self.pool.state
        follows = before.is_elastic and not (before.failed or before.stopping)
        if not follows:
            assert after.requirement == before.requirement, "a fixed number stays"
            return
        assert after.requirement is not None
        assert after.requirement.count == count
        held = {slot.executor.id for slot in after.held.values()}
        assert not held & killed, "what Spark has killed is given back"
        lost = [effect for effect in effects if isinstance(effect, RemoveExecutor) and not effect.orderly]
        assert all(
            slot.is_leaving for slot in before.held.values() if slot.executor.id in {e.executor_id for e in lost}
        )
        assert list(after.replacements.failures) == list(before.replacements.failures), "no removal is a failure"
        assert not any(
            slot.stays and slot.executor.id in decommissioned - _cordoned(after) for slot in after.held.values()
        )

    @rule(ceiling=st.sampled_from([None, None, 0, 1, 2, 3]))
    def ceiling_is_set(self, ceiling: int | None) -> None:
        """Others are entitled to what the attempt holds beyond the ceiling, or are no longer."""
        before = copy.deepcopy(self.pool.state)
        effects = self.give(CeilingSet(None if ceiling is None else Reclaim(ceiling=ceiling, reason="others wait")))
        after = self.pool.state
        assert not any(isinstance(effect, RemoveExecutor) and not effect.orderly for effect in effects), "no loss"
        assert list(after.replacements.failures) == list(before.replacements.failures), "and no failure"
        for key, slot in before.held.items():
            assert key in after.held or not slot.executor.is_registered, "registered executors hand over first"
        if after.ceiling is not None and after.requirement is not None and not after.stopping:
            assert after.staying <= after.ceiling
            assert after.staying >= min(before.staying, after.ceiling), "nothing leaves that may stay"
        elif before.ceiling is None and after.ceiling is None:
            assert after.held == before.held

    @rule(blocked=st.frozensets(st.sampled_from(["tm0", "tm1", "tm2"]), max_size=2), evacuates=st.booleans())
    def places_are_blocked(self, blocked: frozenset[str], evacuates: bool) -> None:
        before, target = copy.deepcopy(self.pool.state.held), self.pool.state.target
        requires_none = self.pool.state.requirement is not None and self.pool.state.requirement.count == 0
        self.give(PlacesBlocked(Places(blocked, blocked if evacuates else frozenset())))
        assert requires_none or self.pool.state.target == target, (
            "what leaves a blocked place is no failure: it is wanted again at once"
        )
        for slot in self.pool.state.held.values():
            if slot.task_manager.id in blocked and evacuates:
                assert slot.is_leaving, "what is held on an evacuated task manager leaves"
        for allocation_id, slot in before.items():
            if slot.task_manager.id not in blocked:
                kept = allocation_id in self.pool.state.held
                assert kept or not slot.stays, "only slots on blocked task managers are given back, or replaced ones"
            elif slot.executor.state is ExecutorState.RUNNING and not evacuates:
                assert allocation_id in self.pool.state.held, "a running executor stays where tasks are not evacuated"

    @invariant()
    def nothing_is_free_on_a_blocked_task_manager(self) -> None:
        for slot in self.pool.state.held.values():
            where = (slot.task_manager.id, slot.task_manager.node_id)
            assert slot.is_leaving or not self.pool.state.places.blocked.is_evacuated(*where)
            if self.pool.state.places.blocked.is_blocked(*where):
                assert slot.executor.state is ExecutorState.RUNNING or slot.executor.is_registered

    @precondition(lambda self: len(self.pool.state.releasing) > 1)
    @rule()
    def application_begins_to_stop(self) -> None:
        held = set(self.pool.state.held)
        self.give(ApplicationStopping())
        assert set(self.pool.state.held) == held, "they end with it"
        assert self.pool.state.target == 0

    @precondition(lambda self: self.pool.state.releasing)  # not too often, so that lives of applications grow long
    @rule()
    def application_stops(self) -> None:
        held = set(self.pool.state.held)
        effects = self.give(ApplicationStopped())
        assert not self.pool.state.held
        assert not self.pool.state.declared()
        assert {effect.allocation_id for effect in effects if isinstance(effect, ReleaseSlotAt)} == held

    @rule(
        instance=INSTANCES,
        count=st.integers(1, 4),
        again=st.integers(0, 6),
        profile=st.sampled_from([SMALL, LARGE]),
    )
    def offer(self, instance: str, count: int, again: int, profile: ResourceProfile) -> None:
        """New slots, and with them some that were offered before, to this or that life of a task manager."""
        numbers = [self.numbers + number for number in range(count)]
        self.numbers += count
        self.offer_slots(instance, [*numbers, *range(max(0, self.numbers - again), self.numbers)], profile)

    def offer_slots(
        self, instance: str, numbers: list[int], profile: ResourceProfile, executors: tuple[FoundExecutor, ...] = ()
    ) -> None:
        slots = tuple(
            Allocation(
                id=AllocationId(f"al{number}"),
                slot_index=number,
                job_id=JobId("j"),
                attempt=1,
                profile=profile,
                job_master="jm:1",
            )
            for number in dict.fromkeys(numbers)
        )
        late = self.pool.state.lives.is_over(InstanceId(instance), self.now)
        effects = self.give(SlotsOffered(task_manager(instance), slots, executors))
        answers = [effect for effect in effects if isinstance(effect, AcceptOffer)]
        assert len(answers) == (0 if late else 1)
        for answer in answers:
            assert set(answer.allocations) <= self.pool.state.held.keys(), "what is accepted is held"
            assert not set(answer.later) & self.pool.state.held.keys(), "what is wanted later is not held now"
            requirement = self.pool.state.requirement
            stops = self.pool.state.stopping or requirement is None
            missing = requirement is not None and self.pool.state.staying < self.pool.state.wanted
            assert stops or missing or not answer.later, "a job that has all its slots wants more later"

    @precondition(lambda self: self.pool.state.requirement is not None)
    @rule(instance=INSTANCES)
    def offer_what_is_wanted(self, instance: str) -> None:
        assert self.pool.state.requirement is not None
        self.numbers += 4
        self.offer_slots(instance, list(range(self.numbers - 4, self.numbers)), self.pool.state.requirement.profile)

    @precondition(lambda self: self.pool.state.held)
    @rule(data=st.data(), state=st.sampled_from([None, *ExecutorState]), absent=st.booleans(), right=st.booleans())
    def offered_by_another_life(
        self, data: st.DataObject, state: ExecutorState | None, absent: bool, right: bool
    ) -> None:
        """A task manager that was started again offers what it has recovered."""
        allocation_id = data.draw(st.sampled_from(list(self.pool.state.held)))
        slot = copy.deepcopy(self.pool.state.held[allocation_id])
        instance = data.draw(st.sampled_from([f"{slot.task_manager.id}#{life}" for life in (1, 2, 3)]))
        executor_id = slot.executor.id if right else ExecutorId("other")
        found = () if absent else (FoundExecutor(allocation_id, executor_id, state, 77, None, "gone"),)
        late = self.pool.state.lives.is_over(InstanceId(instance), self.now)
        surplus = self.pool.state.staying > self.pool.state.wanted
        self.offer_slots(instance, [int(allocation_id[2:])], slot.allocation.profile, found)
        now = self.pool.state.held.get(allocation_id)
        if late or instance == slot.task_manager.instance:
            assert now == slot, "a late or repeated offer changes nothing"
        elif not absent and state is not None and not right:
            assert now is None, "a slot with a stranger in it is given back"
        elif (not slot.stays or self.pool.state.stopping) and (absent or state is None):
            assert now is None, "a slot that leaves, or whose application stops, gets no other executor"
        elif surplus and now is None:
            assert absent or state is None or not slot.executor.is_registered, "only what works is kept in any case"
        else:
            assert now is not None
            assert now.task_manager.instance == instance
            kept = not slot.executor.is_known_to_run if absent else state is not None
            assert (now.executor.id == slot.executor.id) == kept, "one that lives, or may still be started, is kept"

    @precondition(lambda self: self.pool.state.held)
    @rule(data=st.data(), exit_code=st.sampled_from([0, 1, -9, None]))
    def executor_ends(self, data: st.DataObject, exit_code: int | None) -> None:
        allocation_id = data.draw(st.sampled_from(list(self.pool.state.held)))
        slot = self.pool.state.held[allocation_id]
        self.give(ExecutorExited(allocation_id, slot.executor.id, exit_code, "the end"))
        self.give(ExecutorExited(allocation_id, slot.executor.id, exit_code, "told again"))
        later = copy.deepcopy(self.pool)
        later.handle(Tick(), self.now + LIMITS.backoff_max)
        if later.state.requirement is not None and not later.state.failed and not later.state.stopping:
            assert later.state.target == later.state.wanted, "after the longest pause everything is wanted again"

    @precondition(lambda self: self.pool.state.held)
    @rule(data=st.data(), known=st.booleans())
    def executor_runs(self, data: st.DataObject, known: bool) -> None:
        allocation_id = data.draw(st.sampled_from(list(self.pool.state.held)))
        slot = self.pool.state.held[allocation_id]
        self.give(ExecutorRuns(allocation_id, slot.executor.id if known else ExecutorId("other"), 5))

    @precondition(lambda self: self.pool.state.held)
    @rule(data=st.data())
    def slot_gone(self, data: st.DataObject) -> None:
        allocation_id = data.draw(st.sampled_from(list(self.pool.state.held)))
        self.give(SlotGone(allocation_id, self.pool.state.held[allocation_id].executor.id, "absent"))

    @rule(instance=INSTANCES, keeps=st.integers(0, 3))
    def beat_answered(self, instance: str, keeps: int) -> None:
        info = task_manager(instance)
        asked = tuple(key for key, slot in self.pool.state.held.items() if slot.task_manager.id == info.id)
        late = self.pool.state.lives.is_over(info.instance, self.now)
        self.give(BeatAnswered(info.id, info.instance, asked, asked[:keeps]))
        left = [key for key in asked if key in self.pool.state.held]
        assert len(left) == (len(asked) if late else min(keeps, len(asked))), "any life speaks for the whole"

    @rule(instance=INSTANCES)
    def task_manager_lost(self, instance: str) -> None:
        self.give(TaskManagerLost(InstanceId(instance), "lost"))
        assert not self.pool.state.on_task_manager(InstanceId(instance))

    @rule(data=st.data())
    def spark_saw(self, data: st.DataObject) -> None:
        executors = sorted(slot.executor.id for slot in self.pool.state.held.values())
        seen = data.draw(st.lists(st.sampled_from(executors), unique=True)) if executors else []
        silent = set(data.draw(st.lists(st.sampled_from(seen), unique=True))) if seen else set()
        takers = data.draw(st.lists(st.sampled_from(seen), unique=True)) if seen else []
        cordoned = self.pool.state.to_cordon() & frozenset(seen)
        idle = frozenset(data.draw(st.lists(st.sampled_from(sorted(cordoned)), unique=True))) if cordoned else cordoned
        full = frozenset(data.draw(st.lists(st.sampled_from(seen), unique=True, max_size=1))) if seen else frozenset()
        before = copy.deepcopy(self.pool.state.held)
        self.give(SparkSaw(frozenset(seen), frozenset(silent), frozenset(takers), cordoned, idle, full))
        for slot in self.pool.state.held.values():
            assert slot.executor.id not in full or not slot.stays, "an executor whose disk is full is replaced"
        for key, slot in before.items():
            view = self.pool.state.lives.views.get(slot.task_manager.instance)
            orphaned = view is None or self.now - view.heard_at > LIMITS.orphan_timeout
            if slot.executor.id in seen and slot.executor.id not in silent | idle and not orphaned:
                assert key in self.pool.state.held, "an executor that Spark hears is kept for the orphan timeout (P2)"

    @precondition(lambda self: self.pool.state.releasing)
    @rule(data=st.data())
    def release_done(self, data: st.DataObject) -> None:
        self.give(ReleaseDone(data.draw(st.sampled_from(list(self.pool.state.releasing)))))

    @rule(seconds=st.sampled_from([0.3, 2.0, 7.0, 20.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.give(Tick())
        for slot in self.pool.state.held.values():
            silence = self.pool.state.lives.silence(slot.task_manager.instance, self.now)
            assert silence <= (LIMITS.orphan_timeout if slot.executor.is_alive else LIMITS.silence_timeout)

    # --- what must never happen --------------------------------------------------------------------------------------

    @invariant()
    def holds_its_invariants(self) -> None:
        self.pool.check_invariants()

    @invariant()
    def wants_no_more_than_is_required(self) -> None:
        state = self.pool.state
        assert state.is_elastic or state.staying <= state.wanted
        declared = sum(requirement.count for requirement in state.declared())
        assert declared <= max(state.wanted, state.staying) + sum(slot.is_dismissed for slot in state.held.values())

    @invariant()
    def nothing_unregistered_stays_that_is_not_wanted(self) -> None:
        state = self.pool.state
        since, limit = state.surplus_since, state.idle_timeout
        if since is not None and limit is not None and self.now - since >= limit and not state.stopping:
            surplus = [slot for slot in state.held.values() if slot.stays and not slot.executor.is_registered]
            assert not surplus or state.staying <= state.wanted

    @invariant()
    def only_who_is_replaced_takes_no_new_task(self) -> None:
        """As many executors work as are wanted, or as there are."""
        cordoned = self.pool.state.to_cordon()
        slots = {slot.executor.id: slot for slot in self.pool.state.held.values()}
        full = {key for key, slot in slots.items() if slot.executor.lacks_space}
        assert all(
            slots[key].is_outgoing and (key in full or self.pool.state.places.is_closed(slots[key].task_manager))
            for key in cordoned
        )
        working = sum(slot.executor.is_alive and key not in cordoned for key, slot in slots.items())
        if cordoned - full and self.pool.state.requirement is not None:
            assert working >= self.pool.state.wanted
        assert working or not cordoned

    @invariant()
    def nothing_leaves_for_ever(self) -> None:
        for slot in self.pool.state.held.values():
            if slot.is_leaving:
                assert self.now - slot.leaving_since < LIMITS.evacuation_timeout + 20.0, "the longest step of time"

    @invariant()
    def says_what_it_waits_for(self) -> None:
        if (
            self.pool.state.requirement is not None
            and self.pool.state.target < self.pool.state.requirement.count
            and not self.pool.state.failed
            and not self.pool.state.stopping
        ):
            assert self.pool.state.waiting(self.now)

    def teardown(self) -> None:
        """In the end all goes back."""
        self.give(ApplicationStopped())
        for allocation_id in list(self.pool.state.releasing):
            self.give(ReleaseDone(allocation_id))
        assert not self.pool.state.held
        assert not self.pool.state.lives.views


def _cordoned(pool: PoolState) -> frozenset[ExecutorId]:
    return frozenset(slot.executor.id for slot in pool.held.values() if slot.executor.cordoned)


TestSlotPool = PoolMachine.TestCase
TestSlotPool.settings = settings(max_examples=examples(38), stateful_step_count=60, deadline=None)
