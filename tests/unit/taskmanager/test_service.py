"""A TaskManagerService over fake processes, in virtual time: JobManager and JobMaster are scripted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import msgspec
import pytest

from emberkeep.base.config import Configuration
from emberkeep.base.errors import Absent, Conflict, Fatal, InvalidInput, RetryLater, UnknownOutcome
from emberkeep.base.ids import AllocationId, ExecutorId, InstanceId, JobId, TaskManagerId
from emberkeep.base.options import DRIVER_START_TIMEOUT, HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT, SLOT_TIMEOUT
from emberkeep.jobs.model import AttemptOutcome, EntryPoint, EntryPointKind, FailureKind, JobGraph, JobResources
from emberkeep.protocol.messages import (
    Ack,
    AllocateSlot,
    AttemptKey,
    DriverReport,
    ExecutorChanged,
    JobMasterBeat,
    Message,
    OfferSlots,
    OfferSlotsReply,
    ProcessState,
    RegisterTaskManager,
    ReleaseSlot,
    SlotsReply,
    StartDriver,
    StartExecutor,
    StopDriver,
    TaskManagerHeartbeat,
    TaskManagerHeartbeatReply,
    TaskManagerRegistered,
    TaskManagerReport,
)
from emberkeep.slots.model import Allocation, ResourceProfile, RuntimeVersions, TaskManagerInfo
from emberkeep.taskmanager.ports import DriverKey, ExecutorKey, NodeUsage
from emberkeep.taskmanager.service import TaskManagerService
from emberkeep.testing.agent_store import MemoryAgentStore
from emberkeep.testing.fake_launcher import FakeLauncher
from emberkeep.testing.memory_rpc import MemoryNetwork
from emberkeep.testing.scripted_service import ScriptedService
from emberkeep.testing.virtual_loop import VirtualClock, VirtualLoop, seeded_system

JOB = JobId("0" * 31 + "1")
SLOT = AllocationId("a1")
PROFILE = ResourceProfile(cores=1, memory_mb=500)
JOB_MANAGER, TASK_MANAGER, JOB_MASTER = "jm:1", "tm:1", "driver:1"
INTERVAL, TIMEOUT, SLOT_WAIT, START_WAIT = 2.0, 10.0, 5.0, 20.0
INFO = TaskManagerInfo(
    id=TaskManagerId("tm-1"),
    instance=InstanceId("life-1"),
    address=TASK_MANAGER,
    host="127.0.0.1",
    node_id="node",
    pid=1,
    slots=2,
    driver_places=1,
    total=ResourceProfile(cores=2, memory_mb=2000),
    runtime=RuntimeVersions(python="3.11", spark="4.3.0"),
    java_major=17,
    started_ms=0,
)


def take_all(request: Message) -> Message:
    assert isinstance(request, OfferSlots)
    return OfferSlotsReply(accepted=tuple(slot.id for slot in request.slots))


class Listener:
    """Remembers what it is told of allocations."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, bool | None]] = []

    def allocation_recovered(self, allocation: Allocation) -> None:
        self.told.append(("recovered", allocation.id, None))

    def allocation_begun(self, allocation: Allocation) -> None:
        self.told.append(("begun", allocation.id, None))

    def allocation_freed(self, allocation: Allocation, attempt_over: bool) -> None:
        self.told.append(("freed", allocation.id, attempt_over))

    def job_forgotten(self, job_id: JobId) -> None:
        self.told.append(("forgotten", job_id, None))


class Bench:
    """A task manager between a scripted JobManager and a scripted JobMaster."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.network = MemoryNetwork()
        self.launcher = FakeLauncher()
        self.job_manager = ScriptedService(
            {
                RegisterTaskManager: TaskManagerRegistered(epoch=1, heartbeat_interval=INTERVAL),
                TaskManagerHeartbeat: TaskManagerHeartbeatReply(epoch=1, known=True),
            }
        )
        self.job_master = ScriptedService({OfferSlots: take_all, ExecutorChanged: Ack()})
        self.network.attach(JOB_MANAGER, self.job_manager)
        self.network.attach(JOB_MASTER, self.job_master)
        texts = {HEARTBEAT_INTERVAL: INTERVAL, HEARTBEAT_TIMEOUT: TIMEOUT, SLOT_TIMEOUT: SLOT_WAIT}
        texts[DRIVER_START_TIMEOUT] = START_WAIT
        self.configuration = Configuration().with_texts({key.key: str(text) for key, text in texts.items()}, "test")
        self.store = MemoryAgentStore()
        self.listener = Listener()
        self.lives = 1
        self.service = self._life(INFO)
        self.running: asyncio.Task[None] | None = None

    def _life(self, info: TaskManagerInfo) -> TaskManagerService:
        service = TaskManagerService(
            seeded_system(VirtualClock(self.loop), 1, "tm"),
            self.configuration,
            info,
            self.network,
            self.launcher,
            self.store,
            JOB_MANAGER,
            lambda: NodeUsage(disk_free_mb=77),
            listeners=(self.listener,),
        )
        self.network.attach(TASK_MANAGER, service)
        return service

    async def start(self) -> None:
        self.running = asyncio.create_task(self.service.run())
        await self.until(lambda: self.service.registered)

    async def crash(self) -> None:
        """The agent's process is gone at once; its drivers and executors go on."""
        assert self.running is not None
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)
        self.launcher.on_exit(lambda _: None)

    async def restart(self, **changes: object) -> None:
        """The next life over the same record and the same processes."""
        self.lives += 1
        instance = InstanceId(f"life-{self.lives}")
        self.service = self._life(msgspec.structs.replace(INFO, instance=instance, **changes))
        await self.start()

    async def until(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        """Virtual seconds; the condition is looked at often, so that instants can be told apart."""
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(0.01)

    async def send(self, request: Message) -> Ack:
        return await self.network.call(TASK_MANAGER, request, Ack, timeout=5.0)

    async def beat(self, *allocations: AllocationId, attempt: int = 1) -> SlotsReply:
        request = JobMasterBeat(job_id=JOB, attempt=attempt, allocations=allocations)
        return await self.network.call(TASK_MANAGER, request, SlotsReply, timeout=5.0)

    async def keep_beating(self, seconds: float, *allocations: AllocationId) -> None:
        for _ in range(int(seconds / INTERVAL)):
            await asyncio.sleep(INTERVAL)
            await self.beat(*allocations)

    async def running_executor(self, allocation_id: AllocationId = SLOT, executor_id: str = "0") -> ExecutorKey:
        await self.send(allocate(allocation_id))
        await self.until(lambda: len(self.job_master.asked(OfferSlots)) > 0)
        await self.send(start_executor(allocation_id, executor_id))
        await self.until(lambda: any(key.executor_id == executor_id for key in self.launcher.executors()))
        return next(key for key in self.launcher.executors() if key.executor_id == executor_id)

    def report(self) -> TaskManagerReport:
        """The newest that the JobManager got."""
        newest = self.job_manager.requests[-1]
        assert isinstance(newest, RegisterTaskManager | TaskManagerHeartbeat)
        return newest.report

    def driver_report(self) -> DriverReport:
        (driver,) = self.report().drivers
        return driver

    async def reported_outcome(self, seconds: float = 60.0) -> AttemptOutcome:
        """Of the only driver, once the JobManager has been told."""
        await self.until(lambda: any(driver.outcome for driver in self.report().drivers), seconds)
        outcome = self.driver_report().outcome
        assert outcome is not None
        return outcome


@pytest.fixture
def run() -> Iterator[Callable[[Callable[[Bench], Coroutine[Any, Any, None]]], None]]:
    """Plays a story on a bench whose task manager has registered, and checks that it was alive to the end."""
    loop = VirtualLoop()

    def play(story: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            bench = Bench(loop)
            await bench.start()
            await story(bench)
            bench.service.executor.table.check_invariants()
            assert bench.running is not None
            assert not bench.running.done(), "the task manager has died"

        loop.run_until_complete(main())

    yield play
    assert loop.end_all() == []
    loop.close()


Run = Callable[[Callable[[Bench], Coroutine[Any, Any, None]]], None]


def allocate(allocation_id: AllocationId = SLOT, *, attempt: int = 1, epoch: int = 1) -> AllocateSlot:
    return AllocateSlot(
        epoch=epoch,
        allocation_id=allocation_id,
        job_id=JOB,
        attempt=attempt,
        profile=PROFILE,
        job_master=JOB_MASTER,
    )


def start_executor(allocation_id: AllocationId = SLOT, executor_id: str = "0", *, attempt: int = 1) -> StartExecutor:
    return StartExecutor(
        job_id=JOB,
        attempt=attempt,
        allocation_id=allocation_id,
        executor_id=ExecutorId(executor_id),
        driver_url="spark://driver",
        app_id="app",
        cores=1,
        heap_mb=400,
        java_options=(),
        extra_class_path="",
        environ={},
        auth_secret="",
        python_path=(),
    )


def start_driver(*, attempt: int = 1, epoch: int = 1, memory_mb: int = 1000) -> StartDriver:
    graph = JobGraph(
        job_id=JOB,
        name="job",
        entry_point=EntryPoint(kind=EntryPointKind.SCRIPT, name="app.py"),
        arguments=(),
        artefacts=(),
        spark_conf={},
        options={},
        working_directory="/",
        resources=JobResources(
            driver_memory_mb=600,
            driver_overhead_mb=400,
            executors=1,
            executor_cores=1,
            executor_memory_mb=400,
            executor_overhead_mb=100,
        ),
        python="3.11",
        submitted_ms=0,
        idempotency_key="k",
    )
    return StartDriver(
        epoch=epoch,
        graph=graph,
        attempt=attempt,
        memory_mb=memory_mb,
        job_manager=JOB_MANAGER,
        checkpoint_root="/checkpoints",
    )


def stop_driver(*, attempt: int = 1, epoch: int = 1, grace: float = 0.0) -> StopDriver:
    return StopDriver(epoch=epoch, job_id=JOB, attempt=attempt, grace=grace)


DRIVER = DriverKey(job_id=JOB, attempt=1)


# --- slots ------------------------------------------------------------------------------------------------------------


def test_a_reserved_slot_is_offered_at_once_and_reported(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.send(allocate())
        await bench.until(lambda: bool(bench.job_master.asked(OfferSlots)), 0.5)
        offer = bench.job_master.asked(OfferSlots)[0]
        assert offer.task_manager == INFO
        assert [slot.id for slot in offer.slots] == [SLOT]
        await bench.until(lambda: [slot.id for slot in bench.report().allocations] == [SLOT], 0.5)
        assert bench.report().disk_free_mb == 77

    run(story)


def test_a_slot_that_nobody_answers_for_is_offered_again_and_freed_in_the_end(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.job_master.answers[OfferSlots] = UnknownOutcome("the answer was lost")
        await bench.send(allocate())
        await bench.until(lambda: len(bench.job_master.asked(OfferSlots)) > 3, SLOT_WAIT)
        assert bench.service.executor.table.slots
        await bench.until(lambda: not bench.service.executor.table.slots, SLOT_WAIT + INTERVAL)
        await bench.until(lambda: bench.report().allocations == (), INTERVAL)

    run(story)


@pytest.mark.parametrize("answer", [OfferSlotsReply(accepted=()), Conflict("another attempt"), Absent("no such job")])
def test_a_slot_that_is_not_accepted_is_freed_at_once(run: Run, answer: Message | Conflict | Absent) -> None:
    async def story(bench: Bench) -> None:
        bench.job_master.answers[OfferSlots] = answer
        await bench.send(allocate())
        await bench.until(lambda: not bench.service.executor.table.slots, 0.5)

    run(story)


def test_an_executor_runs_in_an_accepted_slot_and_its_life_is_told(run: Run) -> None:
    async def story(bench: Bench) -> None:
        key = await bench.running_executor()
        await bench.until(lambda: len(bench.job_master.asked(ExecutorChanged)) == 1)
        assert bench.job_master.asked(ExecutorChanged)[0].executor.state is ProcessState.RUNNING
        bench.launcher.end(key, 52, detail="java.lang.OutOfMemoryError")
        await bench.until(lambda: len(bench.job_master.asked(ExecutorChanged)) == 2)
        ended = bench.job_master.asked(ExecutorChanged)[1].executor
        assert (ended.state, ended.exit_code) == (ProcessState.EXITED, 52)
        assert "OutOfMemoryError" in ended.detail
        reply = await bench.beat(SLOT)
        assert reply.instance == INFO.instance
        assert reply.executors == (ended,), "what the change told once, each beat tells again"

    run(story)


def test_starting_the_same_executor_again_starts_nothing(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.running_executor()
        await bench.send(start_executor())
        with pytest.raises(Conflict, match="already holds executor 0"):
            await bench.send(start_executor(executor_id="1"))
        assert len(bench.launcher.started) == 1

    run(story)


def test_a_start_is_as_good_as_an_acceptance_that_was_lost(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.job_master.answers[OfferSlots] = UnknownOutcome("the answer was lost")
        await bench.send(allocate())
        await bench.send(start_executor())
        await bench.until(lambda: len(bench.launcher.executors()) == 1)
        await bench.keep_beating(SLOT_WAIT * 2, SLOT)
        assert len(bench.launcher.executors()) == 1

    run(story)


def test_an_executor_that_cannot_be_started_is_reported_as_ended(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.launcher.problems.append(Fatal("no space left in /work"))
        await bench.send(allocate())
        await bench.send(start_executor())
        await bench.until(lambda: bool(bench.job_master.asked(ExecutorChanged)))
        ended = bench.job_master.asked(ExecutorChanged)[0].executor
        assert (ended.state, ended.exit_code) == (ProcessState.EXITED, None)
        assert "no space left" in ended.detail

    run(story)


def test_an_executor_start_that_may_be_tried_again_is(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.launcher.problems += [RetryLater("artefacts are not there yet")] * 3
        await bench.send(allocate())
        await bench.send(start_executor())
        await bench.until(lambda: len(bench.launcher.executors()) == 1, 10.0)
        assert [change.executor.state for change in bench.job_master.asked(ExecutorChanged)] == [ProcessState.RUNNING]

    run(story)


def test_an_executor_start_that_never_succeeds_is_given_up_with_the_reason(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.launcher.problems += [RetryLater("artefacts are not there yet")] * 1000
        await bench.send(allocate())
        await bench.send(start_executor())
        await bench.keep_beating(START_WAIT + 2 * INTERVAL, SLOT)
        ended = bench.job_master.asked(ExecutorChanged)[0].executor
        assert (ended.state, ended.exit_code) == (ProcessState.EXITED, None)
        assert ended.detail == "the executor could not be started within 20 s: artefacts are not there yet"

    run(story)


def test_an_executor_that_cannot_be_started_yet_is_not_tried_for_a_slot_that_was_given_back(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.launcher.problems += [RetryLater("artefacts are not there yet")] * 1000
        await bench.send(allocate())
        await bench.send(start_executor())
        await bench.send(ReleaseSlot(job_id=JOB, attempt=1, allocation_id=SLOT))
        await bench.until(lambda: not bench.service.executor.table.slots, 4.0)

    run(story)


def test_a_released_slot_is_taken_until_its_executor_has_ended(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.launcher.start_seconds = 3.0
        await bench.send(allocate())
        await bench.send(start_executor())
        await bench.send(ReleaseSlot(job_id=JOB, attempt=1, allocation_id=SLOT))
        assert SLOT in bench.service.executor.table.slots, "a process may still come to be in it"
        assert (await bench.beat()).allocations == (), "its JobMaster has given it up"
        await bench.until(lambda: not bench.service.executor.table.slots, 4.0)
        assert bench.launcher.executors() == []
        await bench.send(ReleaseSlot(job_id=JOB, attempt=1, allocation_id=SLOT))

    run(story)


def test_starting_an_executor_in_a_slot_that_is_not_held_is_refused(run: Run) -> None:
    async def story(bench: Bench) -> None:
        with pytest.raises(Absent, match="not held here"):
            await bench.send(start_executor())

    run(story)


def test_slots_of_a_silent_job_master_are_freed(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.running_executor()
        await bench.keep_beating(3 * TIMEOUT, SLOT)
        assert bench.launcher.executors()
        await bench.until(lambda: not bench.service.executor.table.slots, TIMEOUT + INTERVAL)
        assert bench.launcher.executors() == []

    run(story)


def test_slots_of_a_silent_job_master_stay_while_its_driver_lives_here(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.send(start_driver())
        await bench.running_executor()
        await asyncio.sleep(4 * TIMEOUT)
        assert bench.launcher.executors()

    run(story)


def test_a_slot_that_beats_do_not_name_is_freed_after_the_second_one(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.running_executor()
        await bench.beat()
        assert bench.launcher.executors(), "this beat may have been under way when the slot was accepted"
        await bench.beat()
        await bench.until(lambda: not bench.service.executor.table.slots, 0.5)

    run(story)


def test_resources_are_not_given_twice(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.send(allocate(AllocationId("a1")))
        await bench.send(allocate(AllocationId("a2")))
        with pytest.raises(Conflict, match="all 2 slots are taken"):
            await bench.send(allocate(AllocationId("a3")))
        with pytest.raises(Conflict, match="does not fit in what is free"):
            await bench.send(start_driver(memory_mb=1001))
        await bench.send(start_driver(memory_mb=1000))

    run(story)


# --- drivers ----------------------------------------------------------------------------------------------------------


def test_a_driver_is_started_once_and_its_end_reported_until_acknowledged(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.send(start_driver())
        await bench.send(start_driver())
        await bench.until(lambda: bool(bench.launcher.drivers()) and bool(bench.report().drivers), 0.5)
        await bench.until(lambda: bench.driver_report().state is ProcessState.RUNNING, 0.5)
        assert len(bench.launcher.started) == 1
        assert bench.driver_report().memory_mb == 1000
        outcome = AttemptOutcome(exit_code=3, kind=FailureKind.SCRIPT, message="exit code 3")
        bench.launcher.end(DRIVER, 3, outcome)
        await bench.until(lambda: bench.driver_report().state is ProcessState.EXITED, 0.5)
        assert bench.driver_report().outcome == outcome
        await asyncio.sleep(3 * INTERVAL)
        assert bench.driver_report().outcome == outcome
        bench.job_manager.answers[TaskManagerHeartbeat] = TaskManagerHeartbeatReply(
            epoch=1, known=True, acknowledged=(AttemptKey(job_id=JOB, attempt=1),)
        )
        await bench.until(lambda: bench.report().drivers == (), 2 * INTERVAL)
        with pytest.raises(Conflict, match="is over"):
            await bench.send(start_driver())

    run(story)


def test_a_driver_that_left_no_outcome_counts_as_lost(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.send(start_driver())
        await bench.until(lambda: bool(bench.launcher.drivers()))
        bench.launcher.end(DRIVER, -9, detail="Killed")
        outcome = await bench.reported_outcome(0.5)
        assert (outcome.exit_code, outcome.kind) == (-9, FailureKind.LOST)

    run(story)


@pytest.mark.parametrize("problem", [Fatal("app.py is damaged"), InvalidInput("app.py is damaged")])
def test_a_driver_that_cannot_be_started_has_failed_in_setup(run: Run, problem: Fatal | InvalidInput) -> None:
    async def story(bench: Bench) -> None:
        bench.launcher.problems.append(problem)
        await bench.send(start_driver())
        outcome = await bench.reported_outcome(0.5)
        assert outcome.kind is FailureKind.SETUP
        assert "app.py is damaged" in outcome.message
        assert bench.service.executor.table.free == INFO.total

    run(story)


def test_a_driver_start_that_may_be_tried_again_is(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.launcher.problems += [RetryLater("artefacts are not there yet")] * 3
        await bench.send(start_driver())
        await bench.until(lambda: bool(bench.launcher.drivers()), START_WAIT)

    run(story)


def test_a_driver_start_that_never_succeeds_is_given_up(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.launcher.problems += [RetryLater("artefacts are not there yet")] * 1000
        await bench.send(start_driver())
        outcome = await bench.reported_outcome()
        assert outcome.kind is FailureKind.SETUP
        assert "artefacts are not there yet" in outcome.message

    run(story)


def test_a_driver_is_given_its_grace(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.launcher.obeys = False
        await bench.send(start_driver())
        await bench.until(lambda: bool(bench.launcher.drivers()))
        await bench.send(stop_driver(grace=8.0))
        await bench.send(stop_driver(grace=8.0))
        await asyncio.sleep(7.9)
        assert bench.launcher.drivers()
        await bench.until(lambda: bench.driver_report().state is ProcessState.EXITED, 0.5)
        assert bench.launcher.stops == [(DRIVER, 8.0)]

    run(story)


def test_a_shorter_grace_overrules_a_longer_one(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.launcher.obeys = False
        await bench.send(start_driver())
        await bench.until(lambda: bool(bench.launcher.drivers()))
        await bench.send(stop_driver(grace=30.0))
        await bench.send(stop_driver(grace=0.0))
        await bench.until(lambda: not bench.launcher.drivers(), 0.5)

    run(story)


def test_a_driver_asked_to_end_while_it_is_being_started_ends_then(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.launcher.start_seconds = 5.0
        await bench.send(start_driver())
        await bench.send(stop_driver(grace=1.0))
        await bench.until(lambda: bench.driver_report().state is ProcessState.EXITED, 6.0)
        assert bench.launcher.drivers() == []

    run(story)


def test_executors_beside_their_driver_end_with_it(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.send(start_driver())
        await bench.running_executor()
        bench.launcher.end(DRIVER, 0, AttemptOutcome(exit_code=0))
        await bench.until(lambda: not bench.launcher.executors(), 0.5)
        await bench.until(lambda: bench.report().allocations == (), 0.5)

    run(story)


# --- fencing ----------------------------------------------------------------------------------------------------------


@pytest.mark.req("HA-7")
def test_a_job_manager_that_was_deposed_is_refused(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.send(allocate(epoch=5))
        late: list[Message] = [allocate(AllocationId("a2"), epoch=4), start_driver(epoch=4), stop_driver(epoch=4)]
        for request in late:
            with pytest.raises(Conflict, match="epoch 4 is over"):
                await bench.send(request)

    run(story)


@pytest.mark.req("HA-7")
def test_an_older_attempt_is_refused_everywhere(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.send(allocate(attempt=2))
        late: list[Message] = [allocate(AllocationId("a2")), start_driver(), start_executor()]
        for request in late:
            with pytest.raises(Conflict, match="superseded by attempt 2"):
                await bench.send(request)
        with pytest.raises(Conflict, match="superseded by attempt 2"):
            await bench.beat(SLOT)

    run(story)


@pytest.mark.req("HA-7")
def test_a_newer_attempt_ends_what_older_ones_hold(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.send(start_driver())
        await bench.running_executor()
        await bench.send(allocate(AllocationId("a2"), attempt=2))
        await bench.until(lambda: not bench.launcher.alive, 0.5)
        await bench.until(lambda: [slot.id for slot in bench.report().allocations] == ["a2"], 0.5)

    run(story)


@pytest.mark.req("HA-7")
def test_a_start_that_comes_after_its_stop_starts_nothing(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.send(stop_driver())
        with pytest.raises(Conflict, match="is over"):
            await bench.send(start_driver())
        await bench.send(start_driver(attempt=2))

    run(story)


def test_stale_attempts_are_cleaned_up_and_their_files_deleted_later(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.send(start_driver())
        await bench.running_executor()
        bench.job_manager.answers[TaskManagerHeartbeat] = TaskManagerHeartbeatReply(
            epoch=1, known=True, stale=(AttemptKey(job_id=JOB, attempt=1),)
        )
        await bench.until(lambda: not bench.launcher.alive and not bench.report().allocations, 2 * INTERVAL)
        await bench.until(lambda: bench.report().drivers == (), 2 * INTERVAL)
        assert bench.launcher.forgotten == []
        await bench.until(lambda: bench.launcher.forgotten == [JOB], 120.0)

    run(story)


# --- the JobManager's absence and refusal -----------------------------------------------------------------------------


@pytest.mark.req("HA-5")
def test_without_a_job_manager_everything_goes_on_and_it_is_told_later(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.send(start_driver())
        await bench.running_executor()
        bench.network.detach(JOB_MANAGER)
        await bench.keep_beating(20 * TIMEOUT, SLOT)
        assert len(bench.launcher.alive) == 2
        bench.network.attach(JOB_MANAGER, bench.job_manager)
        bench.job_manager.answers[TaskManagerHeartbeat] = TaskManagerHeartbeatReply(epoch=2, known=False)
        bench.job_manager.answers[RegisterTaskManager] = TaskManagerRegistered(epoch=2, heartbeat_interval=INTERVAL)
        registrations = len(bench.job_manager.asked(RegisterTaskManager))
        await bench.until(lambda: len(bench.job_manager.asked(RegisterTaskManager)) > registrations, 2 * INTERVAL)
        again = bench.job_manager.asked(RegisterTaskManager)[-1].report
        assert len(again.drivers) == len(again.allocations) == 1

    run(story)


def test_answers_of_an_older_job_manager_change_nothing(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.send(start_driver(epoch=5))
        await bench.until(lambda: bool(bench.launcher.drivers()))
        bench.job_manager.answers[TaskManagerHeartbeat] = TaskManagerHeartbeatReply(
            epoch=4, known=True, stale=(AttemptKey(job_id=JOB, attempt=1),)
        )
        await asyncio.sleep(5 * TIMEOUT)
        assert bench.launcher.drivers()

    run(story)


def test_reports_are_numbered_and_come_at_each_interval(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await asyncio.sleep(10 * INTERVAL)
        sequences = [request.report.sequence for request in bench.job_manager.asked(TaskManagerHeartbeat)]
        assert sequences == sorted(set(sequences))
        assert 8 <= len(sequences) <= 11

    run(story)


def test_a_lasting_refusal_ends_the_process_with_advice() -> None:
    loop = VirtualLoop()

    async def main() -> None:
        bench = Bench(loop)
        bench.job_manager.answers[RegisterTaskManager] = Conflict("tm-1 is registered from another host")
        async with asyncio.timeout(10 * TIMEOUT):
            with pytest.raises(Fatal, match=r"refuses task manager tm-1.*resource-id"):
                await bench.service.run()
        assert loop.time() > 2 * TIMEOUT, "the other one may just be about to be found lost"

    loop.run_until_complete(main())
    assert loop.end_all() == []
    loop.close()


def test_what_a_task_manager_does_not_serve_is_refused(run: Run) -> None:
    async def story(bench: Bench) -> None:
        with pytest.raises(InvalidInput, match="does not serve"):
            await bench.service.serve(TaskManagerHeartbeatReply(epoch=1, known=True))

    run(story)


# --- shutdown ---------------------------------------------------------------------------------------------------------


def test_an_orderly_shutdown_ends_everything_and_says_so(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.launcher.obeys = False
        await bench.send(start_driver())
        await bench.running_executor()
        closing = asyncio.create_task(bench.service.shutdown(6.0))
        await bench.until(lambda: bench.report().leaving, 0.5)
        with pytest.raises(Conflict, match="shutting down"):
            await bench.send(allocate(AllocationId("a2")))
        await asyncio.sleep(5.0)
        assert len(bench.launcher.alive) == 2, "a driver needs its executors until it has ended"
        await closing
        assert not bench.launcher.alive
        assert bench.report().allocations == ()
        assert bench.driver_report().state is ProcessState.EXITED

    run(story)


def test_a_shutdown_without_a_job_manager_is_bounded(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.network.detach(JOB_MANAGER)
        await bench.running_executor()
        began = bench.loop.time()
        await bench.service.shutdown(5.0)
        assert not bench.launcher.alive
        assert bench.loop.time() - began < 5.0

    run(story)
