"""A JobMaster's slots under any order of offers, executor ends, losses, application changes and time."""

from __future__ import annotations

import copy

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from emberkeep.base.ids import AllocationId, ExecutorId, InstanceId, JobId, TaskManagerId
from emberkeep.slots.model import Allocation, ResourceProfile, RuntimeVersions, SlotRequirement, TaskManagerInfo
from emberkeep.slots.pool_events import (
    AcceptOffer,
    ApplicationStarted,
    ApplicationStopped,
    BeatAnswered,
    ExecutorExited,
    ExecutorRuns,
    FailAttempt,
    HeldSlot,
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
from emberkeep.slots.slot_pool import PoolLimits, SlotPool

LIMITS = PoolLimits(
    max_failures=4,
    failure_window=100.0,
    backoff_initial=0.5,
    backoff_max=1.5,
    request_timeout=50.0,
    silence_timeout=10.0,
    start_timeout=30.0,
)
RUNTIME = RuntimeVersions(python="3.11", spark="4.3.0")
SMALL = ResourceProfile(cores=1, memory_mb=500)
LARGE = ResourceProfile(cores=2, memory_mb=900)
ALLOCATIONS = st.integers(0, 9)
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


class PoolMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.pool = SlotPool(LIMITS)
        self.now = 0.0
        self.executors: set[ExecutorId] = set()  # ever started
        self.failed = 0

    def give(self, event: PoolEvent) -> list[PoolEffect]:
        before = dict(self.pool.held)
        effects = self.pool.handle(event, self.now)
        started = [effect.allocation_id for effect in effects if isinstance(effect, StartExecutorIn)]
        assert set(started) == self.pool.held.keys() - before.keys(), "one start for each slot that was accepted"
        for allocation_id in started:
            executor_id = self.pool.held[allocation_id].executor_id
            assert executor_id not in self.executors, "executor ids are never used again"
            self.executors.add(executor_id)
        self.failed += sum(isinstance(effect, FailAttempt) for effect in effects)
        assert self.failed <= 1, "an attempt fails once"
        self.check_ends(before, effects)
        return effects

    def check_ends(self, before: dict[AllocationId, HeldSlot], effects: list[PoolEffect]) -> None:
        """Each slot that is held no more was given back, or Spark was told that its executor is lost."""
        released = {effect.allocation_id for effect in effects if isinstance(effect, ReleaseSlotAt)}
        removed = {effect.executor_id for effect in effects if isinstance(effect, RemoveExecutor)}
        for allocation_id, slot in before.items():
            if allocation_id not in self.pool.held:
                assert allocation_id in released or slot.executor_id in removed
        assert released <= before.keys(), "only what was held is given back"

    # --- rules -------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.pool.requirement is None or self.pool.failed or len(self.pool.held) >= 3)
    @rule(count=st.sampled_from([4, 3, 1, 0]), profile=st.sampled_from([SMALL, LARGE]))
    def application_starts(self, count: int, profile: ResourceProfile) -> None:
        self.give(ApplicationStarted(SlotRequirement(count=count, profile=profile, runtime=RUNTIME)))

    @precondition(lambda self: self.pool.releasing)  # not too often, so that lives of applications grow long
    @rule()
    def application_stops(self) -> None:
        held = set(self.pool.held)
        effects = self.give(ApplicationStopped())
        assert not self.pool.held
        assert not self.pool.declared()
        assert {effect.allocation_id for effect in effects if isinstance(effect, ReleaseSlotAt)} == held

    @rule(
        instance=INSTANCES,
        numbers=st.lists(ALLOCATIONS, min_size=1, max_size=4),
        profile=st.sampled_from([SMALL, LARGE]),
    )
    def offer(self, instance: str, numbers: list[int], profile: ResourceProfile) -> None:
        self.offer_slots(instance, numbers, profile)

    def offer_slots(self, instance: str, numbers: list[int], profile: ResourceProfile) -> None:
        slots = tuple(
            Allocation(
                id=AllocationId(f"al{number}"),
                slot_index=number,
                job_id=JobId("j"),
                attempt=1,
                profile=profile,
                job_master="jm:1",
            )
            for number in numbers
        )
        effects = self.give(SlotsOffered(task_manager(instance), slots))
        answers = [effect for effect in effects if isinstance(effect, AcceptOffer)]
        assert len(answers) == 1
        assert set(answers[0].allocations) <= self.pool.held.keys(), "what is accepted is held"

    @precondition(lambda self: self.pool.requirement is not None)
    @rule(instance=INSTANCES)
    def offer_what_is_wanted(self, instance: str) -> None:
        assert self.pool.requirement is not None
        self.offer_slots(instance, list(range(4)), self.pool.requirement.profile)

    @precondition(lambda self: self.pool.held)
    @rule(data=st.data(), exit_code=st.sampled_from([0, 1, -9, None]))
    def executor_ends(self, data: st.DataObject, exit_code: int | None) -> None:
        allocation_id = data.draw(st.sampled_from(list(self.pool.held)))
        slot = self.pool.held[allocation_id]
        self.give(ExecutorExited(allocation_id, slot.executor_id, exit_code, "the end"))
        self.give(ExecutorExited(allocation_id, slot.executor_id, exit_code, "told again"))
        later = copy.deepcopy(self.pool)
        later.handle(Tick(), self.now + LIMITS.backoff_max)
        if later.requirement is not None and not later.failed:
            assert later.target == later.requirement.count, "after the longest pause everything is wanted again"

    @precondition(lambda self: self.pool.held)
    @rule(data=st.data(), known=st.booleans())
    def executor_runs(self, data: st.DataObject, known: bool) -> None:
        allocation_id = data.draw(st.sampled_from(list(self.pool.held)))
        slot = self.pool.held[allocation_id]
        self.give(ExecutorRuns(allocation_id, slot.executor_id if known else ExecutorId("other"), 5))

    @precondition(lambda self: self.pool.held)
    @rule(data=st.data())
    def slot_gone(self, data: st.DataObject) -> None:
        allocation_id = data.draw(st.sampled_from(list(self.pool.held)))
        self.give(SlotGone(allocation_id, self.pool.held[allocation_id].executor_id, "absent"))

    @rule(instance=INSTANCES, keeps=st.integers(0, 3))
    def beat_answered(self, instance: str, keeps: int) -> None:
        asked = self.pool.on_task_manager(InstanceId(instance))
        info = task_manager(instance)
        self.give(BeatAnswered(info.id, info.instance, asked, asked[:keeps]))
        assert len(self.pool.on_task_manager(info.instance)) == min(keeps, len(asked))

    @rule(instance=INSTANCES)
    def task_manager_lost(self, instance: str) -> None:
        self.give(TaskManagerLost(InstanceId(instance), "lost"))
        assert not self.pool.on_task_manager(InstanceId(instance))

    @rule(data=st.data())
    def spark_saw(self, data: st.DataObject) -> None:
        executors = sorted(slot.executor_id for slot in self.pool.held.values())
        seen = data.draw(st.lists(st.sampled_from(executors), unique=True)) if executors else []
        self.give(SparkSaw(frozenset(seen)))

    @precondition(lambda self: self.pool.releasing)
    @rule(data=st.data())
    def release_done(self, data: st.DataObject) -> None:
        self.give(ReleaseDone(data.draw(st.sampled_from(list(self.pool.releasing)))))

    @rule(seconds=st.sampled_from([0.3, 2.0, 7.0, 20.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.give(Tick())

    # --- what must never happen --------------------------------------------------------------------------------------

    @invariant()
    def holds_its_invariants(self) -> None:
        self.pool.check_invariants()

    @invariant()
    def wants_no_more_than_is_required(self) -> None:
        wanted = 0 if self.pool.requirement is None else self.pool.requirement.count
        assert len(self.pool.held) <= wanted
        assert sum(requirement.count for requirement in self.pool.declared()) <= wanted

    @invariant()
    def says_what_it_waits_for(self) -> None:
        if (
            self.pool.requirement is not None
            and self.pool.target < self.pool.requirement.count
            and not self.pool.failed
        ):
            assert self.pool.waiting(self.now)

    def teardown(self) -> None:
        """In the end all goes back."""
        self.give(ApplicationStopped())
        for allocation_id in list(self.pool.releasing):
            self.give(ReleaseDone(allocation_id))
        assert not self.pool.held
        assert not self.pool.task_managers


TestSlotPool = PoolMachine.TestCase
TestSlotPool.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
