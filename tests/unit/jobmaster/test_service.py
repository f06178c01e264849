"""A JobMasterService beside a fake Spark, in virtual time: JobManager and task managers are scripted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from emberkeep.base.configuration.options.job_managers import HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT
from emberkeep.base.configuration.options.jobs import (
    EXECUTOR_BACKOFF_INITIAL,
    EXECUTOR_BACKOFF_MAX,
    EXECUTOR_FAILURES,
    EXECUTOR_START_TIMEOUT,
)
from emberkeep.base.configuration.options.slots import SLOT_REQUEST_TIMEOUT
from emberkeep.base.configuration.values import Configuration, Option
from emberkeep.base.errors import Absent, Conflict, Fatal, InvalidInput, RetryLater, Unavailable
from emberkeep.base.ids import AllocationId, ExecutorId, InstanceId, JobId, TaskManagerId
from emberkeep.blocklist.model import BlockAction, BlockedTaskManager, Blocklist
from emberkeep.jobmaster.identity import Identity
from emberkeep.jobmaster.ports import Application, FirstTimes
from emberkeep.jobmaster.progress_keeper import COURSE_PAUSE, PAUSE
from emberkeep.jobmaster.service import JobMasterService
from emberkeep.jobs.model import AttemptOutcome, FailureKind
from emberkeep.jobs.progress.course import Course
from emberkeep.jobs.progress.flows import FlowProgress
from emberkeep.jobs.progress.history import QueryHistory, Selection
from emberkeep.jobs.progress.kept_progress import NOTHING_KEPT, KeptProgress
from emberkeep.jobs.progress.trend import TrendUnit
from emberkeep.jobs.progress.work import AttemptWork, StageProgress
from emberkeep.jobs.traces.recovery_trace import TraceReport
from emberkeep.local_state.model import Holding
from emberkeep.protocol.messages.executors import (
    ExecutorChanged,
    JobMasterBeat,
    ListLocalState,
    LocalStateListed,
    OfferSlots,
    OfferSlotsReply,
    ReleaseSlot,
    SlotsReply,
    StartExecutor,
)
from emberkeep.protocol.messages.job_master_reports import JobMasterStatus
from emberkeep.protocol.messages.job_masters import (
    JobMasterHeartbeat,
    JobMasterReply,
    ProgressRead,
    ReadProgress,
    RegisterJobMaster,
    ReportNow,
    ReportOutcome,
)
from emberkeep.protocol.messages.root import Ack, Message
from emberkeep.protocol.messages.task_manager_reports import ExecutorReport, ProcessState
from emberkeep.slots.model import Allocation, ResourceProfile, RuntimeVersions, SlotRequirement, TaskManagerInfo
from tests.support.fake_spark import FakeSpark
from tests.support.memory_rpc import MemoryNetwork
from tests.support.progress.records import record
from tests.support.scripted_service import ScriptedService
from tests.support.simulator.virtual_loop import VirtualClock, VirtualLoop, seeded_system

JOB = JobId("0" * 31 + "1")
JOB_MANAGER, JOB_MASTER, LINEAGE = "jm:1", "driver:1", "store-1"
INTERVAL, TIMEOUT = 2.0, 10.0
PROFILE = ResourceProfile(cores=1, memory_mb=500)
RUNTIME = RuntimeVersions(python="3.11", spark="4.3.0")
SETTINGS: dict[Option[Any], float] = {
    HEARTBEAT_INTERVAL: INTERVAL,
    HEARTBEAT_TIMEOUT: TIMEOUT,
    EXECUTOR_FAILURES: 2,
    EXECUTOR_BACKOFF_INITIAL: 1.0,
    EXECUTOR_BACKOFF_MAX: 3.0,
    EXECUTOR_START_TIMEOUT: 30.0,
    SLOT_REQUEST_TIMEOUT: 60.0,
}


class FakeTaskManager(ScriptedService):
    """Holds the slots that the test puts there, as a real one would."""

    def __init__(self, number: int, network: MemoryNetwork) -> None:
        super().__init__(
            {StartExecutor: Ack(), ReleaseSlot: self._release, JobMasterBeat: self._beat},
        )
        self.info = task_manager_info(number)
        self.slots: list[AllocationId] = []
        self.executors: dict[AllocationId, ExecutorReport] = {}
        network.attach(self.info.address, self)

    def _release(self, request: Message) -> Message:
        assert isinstance(request, ReleaseSlot)
        self.slots.remove(request.allocation_id)
        return Ack()

    def _beat(self, _: Message) -> Message:
        return SlotsReply(
            instance=self.info.instance,
            allocations=tuple(self.slots),
            executors=tuple(self.executors.values()),
        )


class Bench:
    """A JobMaster whose JobManager answers, and two task managers."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.network = MemoryNetwork()
        self.spark = FakeSpark()
        self.job_manager = ScriptedService(
            {RegisterJobMaster: reply(), JobMasterHeartbeat: reply(), ReportOutcome: Ack()}
        )
        self.network.attach(JOB_MANAGER, self.job_manager)
        self.task_managers = [FakeTaskManager(0, self.network), FakeTaskManager(1, self.network)]
        identity = Identity(
            job_id=JOB,
            attempt=1,
            address=JOB_MASTER,
            task_manager=TaskManagerId("tm-0"),
            pid=42,
            lineage=LINEAGE,
            epoch=1,
        )
        self.service = JobMasterService(
            seeded_system(VirtualClock(loop), 1, "driver"),
            Configuration().with_texts({option.key: f"{value:g}" for option, value in SETTINGS.items()}, "test"),
            self.network,
            self.spark,
            identity,
            JOB_MANAGER,
        )
        self.network.attach(JOB_MASTER, self.service)
        self.running = asyncio.create_task(self.service.run())

    async def until(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(0.01)

    async def offer(self, *slots: str, number: int = 0, profile: ResourceProfile = PROFILE) -> tuple[AllocationId, ...]:
        """Offer slots of one task manager; returns those accepted."""
        task_manager = self.task_managers[number]
        request = OfferSlots(
            job_id=JOB,
            attempt=1,
            task_manager=task_manager.info,
            slots=tuple(allocation(slot, profile) for slot in slots),
        )
        answer = await self.network.call(JOB_MASTER, request, OfferSlotsReply, timeout=5.0)
        task_manager.slots += [slot for slot in answer.accepted if slot not in task_manager.slots]
        return answer.accepted

    async def offer_again(
        self, slot: str, *executors: ExecutorReport, life: str = "life-0b"
    ) -> tuple[AllocationId, ...]:
        """The first task manager was started again, at another address, and has recovered this slot."""
        old = self.task_managers[0]
        self.network.detach(old.info.address)
        old.info = msgspec.structs.replace(
            old.info, instance=InstanceId(life), predecessor=old.info.instance, address=f"{life}:1"
        )
        self.network.attach(old.info.address, old)
        old.executors = {report.allocation_id: report for report in executors}
        request = OfferSlots(
            job_id=JOB, attempt=1, task_manager=old.info, slots=(allocation(slot, PROFILE),), executors=executors
        )
        return (await self.network.call(JOB_MASTER, request, OfferSlotsReply, timeout=5.0)).accepted

    async def executor_ends(self, slot: str, executor_id: str, exit_code: int | None = 1, number: int = 0) -> None:
        report = ExecutorReport(
            allocation_id=AllocationId(slot),
            executor_id=ExecutorId(executor_id),
            state=ProcessState.EXITED,
            exit_code=exit_code,
            detail="java.lang.OutOfMemoryError\n\tat Main.main",
        )
        change = ExecutorChanged(
            job_id=JOB, attempt=1, task_manager=self.task_managers[number].info.id, executor=report
        )
        await self.network.call(JOB_MASTER, change, Ack, timeout=5.0)

    def status(self) -> JobMasterStatus:
        """The newest that the JobManager got."""
        told = [
            request
            for request in self.job_manager.requests
            if isinstance(request, RegisterJobMaster | JobMasterHeartbeat)
        ]
        return told[-1].status

    def wanted(self) -> int:
        return sum(requirement.count for requirement in self.status().requirements)

    def held(self) -> list[str]:
        return list(self.service.master.pool.state.held)


@pytest.fixture
def run() -> Iterator[Callable[[Callable[[Bench], Coroutine[Any, Any, None]]], None]]:
    """Plays a story on a bench, and checks that the JobMaster was alive to the end."""
    loop = VirtualLoop()

    def play(story: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            bench = Bench(loop)
            await story(bench)
            bench.service.master.pool.check_invariants()
            assert not bench.running.done(), "the JobMaster has died"

        loop.run_until_complete(main())

    yield play
    assert loop.end_all() == []
    loop.close()


Run = Callable[[Callable[[Bench], Coroutine[Any, Any, None]]], None]


def reply(
    *, epoch: int = 1, known: bool = True, lost: tuple[InstanceId, ...] = (), missing: str = ""
) -> JobMasterReply:
    return JobMasterReply(epoch=epoch, known=known, heartbeat_interval=INTERVAL, lost=lost, missing=missing)


def allocation(slot: str, profile: ResourceProfile = PROFILE) -> Allocation:
    return Allocation(
        id=AllocationId(slot), slot_index=0, job_id=JOB, attempt=1, profile=profile, job_master=JOB_MASTER
    )


def task_manager_info(number: int) -> TaskManagerInfo:
    return TaskManagerInfo(
        id=TaskManagerId(f"tm-{number}"),
        instance=InstanceId(f"life-{number}"),
        address=f"tm{number}:1",
        host=f"127.0.0.{number + 2}",
        node_id=f"node-{number}",
        pid=1,
        slots=4,
        driver_places=1,
        total=ResourceProfile(cores=4, memory_mb=4000),
        runtime=RUNTIME,
        java_major=17,
        started_ms=0,
    )


def application(count: int = 2, app_id: str = "app-1") -> Application:
    return Application(
        app_id=app_id,
        driver_url="spark://driver",
        requirement=SlotRequirement(count=count, profile=PROFILE, runtime=RUNTIME),
        heap_mb=400,
        java_options=("-Dx=y",),
        extra_class_path="/jars/a.jar",
        environ={"A": "b"},
        auth_secret="secret",
        python_path=("/lib",),
    )


# --- slots and executors ----------------------------------------------------------------------------------------------


def test_it_registers_as_a_follower_of_the_job_store_whose_leader_ordered_its_start(run: Run) -> None:
    """So a leader over an emptied job store does not answer that the job has ended."""

    async def story(bench: Bench) -> None:
        await bench.service.master.registered.wait()
        (registration,) = bench.job_manager.asked(RegisterJobMaster)
        assert (registration.lineage, registration.known_epoch) == (LINEAGE, 1)

    run(story)


def test_it_registers_before_there_is_an_application_and_then_says_what_it_needs(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.service.master.registered.wait()
        (registration,) = bench.job_manager.asked(RegisterJobMaster)
        assert (registration.address, registration.pid, registration.status.requirements) == (JOB_MASTER, 42, ())
        bench.service.master.application_started(application())
        await bench.until(lambda: bench.wanted() == 2, 0.5)
        assert bench.status().app_id == "app-1"

    run(story)


def test_each_accepted_slot_gets_one_executor_of_the_application(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.service.master.application_started(application(count=2))
        assert await bench.offer("a", "b", "c") == ("a", "b"), "no more than is wanted"
        await bench.until(lambda: len(bench.task_managers[0].asked(StartExecutor)) == 2)
        first, second = bench.task_managers[0].asked(StartExecutor)
        assert (first.executor_id, second.executor_id) == ("0", "1")
        assert (first.app_id, first.heap_mb, first.cores, first.java_options) == ("app-1", 400, 1, ("-Dx=y",))
        assert await bench.offer("a") == ("a",), "the first answer may have been lost"
        await asyncio.sleep(3 * INTERVAL)
        assert len(bench.task_managers[0].asked(StartExecutor)) == 2
        assert [view.executor_id for view in bench.status().executors] == ["0", "1"]

    run(story)


def test_slots_of_another_size_or_without_an_application_are_declined(run: Run) -> None:
    async def story(bench: Bench) -> None:
        assert await bench.offer("a") == ()
        bench.service.master.application_started(application())
        assert await bench.offer("a", profile=ResourceProfile(cores=2, memory_mb=500)) == ()
        bench.service.master.application_stopped()
        assert await bench.offer("a") == ()

    run(story)


def test_it_reports_at_once_when_the_job_manager_asks_for_it(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.service.master.registered.wait()
        reports = bench.status().sequence
        await bench.network.call(JOB_MASTER, ReportNow(job_id=JOB, attempt=1), Ack, timeout=5.0)
        await bench.until(lambda: bench.status().sequence > reports, INTERVAL / 10)
        with pytest.raises(Conflict, match="is not led by"):
            await bench.network.call(JOB_MASTER, ReportNow(job_id=JOB, attempt=2), Ack, timeout=5.0)

    run(story)


@pytest.mark.parametrize(("job_id", "attempt"), [(JobId("f" * 32), 1), (JOB, 2)])
def test_offers_to_another_attempt_are_refused(run: Run, job_id: JobId, attempt: int) -> None:
    async def story(bench: Bench) -> None:
        request = OfferSlots(job_id=job_id, attempt=attempt, task_manager=task_manager_info(0), slots=())
        with pytest.raises(Conflict, match="is not led by"):
            await bench.network.call(JOB_MASTER, request, OfferSlotsReply, timeout=5.0)

    run(story)


def test_a_start_is_repeated_until_the_task_manager_answers(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.task_managers[0].answers[StartExecutor] = RetryLater("not now")
        bench.service.master.application_started(application(count=1))
        await bench.offer("a")
        await bench.until(lambda: len(bench.task_managers[0].asked(StartExecutor)) > 3)
        bench.task_managers[0].answers[StartExecutor] = Ack()
        count = len(bench.task_managers[0].asked(StartExecutor))
        await asyncio.sleep(TIMEOUT)
        assert len(bench.task_managers[0].asked(StartExecutor)) == count + 1

    run(story)


def test_a_slot_that_the_task_manager_has_freed_is_wanted_again_at_once(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.task_managers[0].answers[StartExecutor] = Absent("not held here")
        bench.service.master.application_started(application(count=1))
        await bench.offer("a")
        await bench.until(lambda: not bench.held(), 0.5)
        assert bench.wanted() == 1
        assert bench.task_managers[0].asked(ReleaseSlot) == []

    run(story)


def test_an_ended_executor_gives_its_slot_back_and_is_replaced_at_once_the_first_time(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.service.master.application_started(application(count=1))
        for number, pause in enumerate((0.0, 1.0)):
            slot = f"slot-{number}"
            assert await bench.offer(slot) == (slot,)
            await bench.executor_ends(slot, str(number))
            if pause == 0.0:
                continue  # the first one is replaced at once
            assert await bench.offer("early") == (), "the pause holds back offers under way, too"
            await bench.until(lambda: bench.wanted() == 0, 0.5)
            assert "will be replaced" in bench.status().waiting
            began = bench.loop.time()
            await bench.until(lambda: bench.wanted() == 1)
            assert pause - 0.5 <= bench.loop.time() - began <= pause + 0.5
        assert [request.allocation_id for request in bench.task_managers[0].asked(ReleaseSlot)] == ["slot-0", "slot-1"]
        assert [executor_id for executor_id, _ in bench.spark.removed] == ["0", "1"]
        messages = [entry.message for entry in bench.status().exceptions]
        assert messages[0] == "executor 0 on tm-0 ended with exit code 1: java.lang.OutOfMemoryError"
        assert bench.status().exceptions[0].traceback == f"{messages[0]}\n\tat Main.main"

    run(story)


def test_executors_that_keep_failing_fail_the_attempt_once(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.service.master.application_started(application(count=4))
        await bench.offer("a", "b", "c", "d")
        for number, slot in enumerate("abcd"):
            await bench.executor_ends(slot, str(number), exit_code=-9)
        await bench.until(lambda: len(bench.spark.failures) == 1, 0.5)
        assert "3 executors ended by themselves within 600 s" in bench.spark.failures[0]
        assert "was killed by signal 9" in bench.spark.failures[0]
        await asyncio.sleep(TIMEOUT)
        assert len(bench.spark.failures) == 1
        assert bench.wanted() == 0

    run(story)


def test_executors_that_end_well_are_no_failures(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.service.master.application_started(application(count=4))
        await bench.offer("a", "b", "c", "d")
        for number, slot in enumerate("abcd"):
            await bench.executor_ends(slot, str(number), exit_code=0)
        await asyncio.sleep(TIMEOUT)
        assert bench.spark.failures == []
        assert bench.wanted() == 4
        assert (await bench.service.master.take_status()).exceptions == ()

    run(story)


def test_an_executor_that_could_not_be_started_counts_as_failed(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.task_managers[0].answers[StartExecutor] = Fatal("no Java")
        bench.service.master.application_started(application(count=3))
        await bench.offer("a", "b", "c")
        await bench.until(lambda: bool(bench.spark.failures), 0.5)
        assert "could not be started: no Java" in bench.spark.failures[0]

    run(story)


def test_without_any_slot_the_attempt_fails_in_time_and_says_why(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.job_manager.answers[JobMasterHeartbeat] = reply(missing="no task manager is registered")
        bench.service.master.application_started(application())
        await asyncio.sleep(59.0)
        assert bench.spark.failures == []
        await bench.until(lambda: bool(bench.spark.failures), 2.0)
        assert "not one slot could be had for 60 s" in bench.spark.failures[0]
        assert "no task manager is registered" in bench.spark.failures[0]

    run(story)


def test_one_slot_is_enough_to_go_on(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.job_manager.answers[JobMasterHeartbeat] = reply(missing="1 of 2 slots is missing")
        bench.service.master.application_started(application(count=2))
        await bench.offer("a")
        bench.spark.executors.add(ExecutorId("0"))
        await asyncio.sleep(300.0)
        assert bench.spark.failures == []
        assert bench.status().waiting == "1 of 2 slots is missing"

    run(story)


# --- Spark ------------------------------------------------------------------------------------------------------------


def test_an_executor_that_never_registers_with_spark_is_replaced(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.service.master.application_started(application(count=2))
        await bench.offer("a", "b")
        bench.spark.executors.add(ExecutorId("0"))
        await bench.until(lambda: bench.held() == ["a"], 35.0)
        assert bench.loop.time() >= 30.0
        assert "did not register with Spark in time" in bench.spark.removed[0][1]
        registered = {view.executor_id: view.registered for view in bench.status().executors}
        assert registered == {"0": True}

    run(story)


def test_an_executor_that_spark_has_given_up_is_replaced(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.service.master.application_started(application(count=1))
        await bench.offer("a")
        bench.spark.executors.add(ExecutorId("0"))
        await asyncio.sleep(TIMEOUT)
        bench.spark.executors.clear()
        await bench.until(lambda: not bench.held(), TIMEOUT + 3 * INTERVAL)
        await bench.until(lambda: bool(bench.task_managers[0].asked(ReleaseSlot)), 0.5)

    run(story)


def test_a_jvm_that_hangs_holds_up_nothing(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.service.master.application_started(application(count=1))
        await bench.offer("a")
        bench.spark.hangs = True
        await bench.executor_ends("a", "0")
        count = len(bench.job_manager.requests)
        await asyncio.sleep(10 * INTERVAL)
        assert len(bench.job_manager.requests) >= count + 8
        assert bench.wanted() == 1

    run(story)


# --- task managers ----------------------------------------------------------------------------------------------------


def test_it_beats_to_those_that_hold_its_slots(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.service.master.application_started(application(count=2))
        await bench.offer("a", number=0)
        await bench.offer("b", number=1)
        await asyncio.sleep(5 * INTERVAL)
        for number, slot in enumerate("ab"):
            beats = bench.task_managers[number].asked(JobMasterBeat)
            assert len(beats) in (4, 5)
            assert {beat.allocations for beat in beats} == {(slot,)}

    run(story)


@pytest.mark.req("SAFE-15")
def test_the_blocklist_is_told_to_a_job_manager_that_has_lost_it(run: Run) -> None:
    async def story(bench: Bench) -> None:
        known = Blocklist(revision=7)
        await asyncio.sleep(2 * INTERVAL)
        bench.job_manager.answers[JobMasterHeartbeat] = msgspec.structs.replace(reply(), blocklist=known)
        await bench.until(lambda: bench.status().blocklist_revision == 7)
        assert bench.status().blocklist is None
        bench.job_manager.answers[JobMasterHeartbeat] = msgspec.structs.replace(reply(), blocklist_lost=True)
        await bench.until(lambda: bench.status().blocklist == known)
        assert bench.status().blocklist_epoch == reply().epoch
        bench.job_manager.answers[JobMasterHeartbeat] = reply()
        await bench.until(lambda: bench.status().blocklist is None)

    run(story)


@pytest.mark.req("BLK-18")
@pytest.mark.parametrize("drains", [False, True])
def test_executors_on_an_evacuated_node_or_one_that_drains_are_to_leave_with_the_next_beat(
    run: Run, drains: bool
) -> None:
    async def story(bench: Bench) -> None:
        bench.service.master.application_started(msgspec.structs.replace(application(count=2), decommissions=True))
        await bench.offer("a", number=0)
        await bench.offer("b", number=1)
        bench.spark.executors = {ExecutorId("0"), ExecutorId("1")}
        await asyncio.sleep(2 * INTERVAL)
        entry = BlockedTaskManager(
            id=bench.task_managers[0].info.id,
            action=BlockAction.MARK_BLOCKED_AND_EVACUATE_TASKS,
            start_ms=0,
            causes=("power",),
        )
        if drains:
            told = msgspec.structs.replace(reply(), draining=(entry.id,))
            bench.job_manager.answers[JobMasterHeartbeat] = told
        else:
            bench.service.master.report_blocked(entry)
        beats = bench.task_managers[0].asked
        await bench.until(lambda: beats(JobMasterBeat)[-1].decommissioned == (AllocationId("a"),))
        assert all(not beat.decommissioned for beat in bench.task_managers[1].asked(JobMasterBeat))
        await bench.until(lambda: any(executor.departure for executor in bench.status().executors))
        assert [executor.departure is None for executor in bench.status().executors] == [False, True]
        assert bench.wanted() == 2
        assert await bench.offer("c", number=1), "as its replacement"
        await bench.executor_ends("a", "0", exit_code=0)
        await bench.until(lambda: bench.held() == ["b", "c"])
        assert not bench.status().exceptions
        bench.service.master.application_stopped()
        await bench.until(lambda: len(bench.task_managers[1].asked(ReleaseSlot)) == 2)
        assert [request.stopped for request in bench.task_managers[0].asked(ReleaseSlot)] == [False]
        assert [request.stopped for request in bench.task_managers[1].asked(ReleaseSlot)] == [True, True]

    run(story)


@pytest.mark.req("LOC-11")
def test_it_asks_the_nodes_of_its_slots_what_they_hold_of_the_state(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.service.master.application_started(application(count=3))
        await bench.offer("a", "b", number=0)
        await bench.offer("c", number=1)
        held = Holding(job_id=JOB, root="/ck", name="q/state/0/1", files=2, size=99, newest_version=7)
        bench.task_managers[0].answers[ListLocalState] = LocalStateListed(holdings=(held,))
        bench.task_managers[1].answers[ListLocalState] = RetryLater("not now")
        survey = await bench.service.survey_local_state()
        assert survey.wanted == 3
        assert survey.holdings == {"tm-0": (held,)}, "what tm-1 holds is not known"
        assert [(place.host, place.task_manager) for place in survey.executors] == [
            ("127.0.0.2", "tm-0"),
            ("127.0.0.2", "tm-0"),
            ("127.0.0.3", "tm-1"),
        ]
        (asked,) = bench.task_managers[0].asked(ListLocalState)
        assert (asked.job_id, asked.attempt) == (JOB, 1)

    run(story)


def test_what_a_beat_tells_of_executors_counts_as_told(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.service.master.application_started(application(count=1))
        await bench.offer("a")
        running = ExecutorReport(
            allocation_id=AllocationId("a"), executor_id=ExecutorId("0"), state=ProcessState.RUNNING, pid=77
        )
        bench.task_managers[0].executors[AllocationId("a")] = running
        await bench.until(lambda: [view.pid for view in bench.status().executors] == [77], 2 * INTERVAL)

    run(story)


def test_a_silent_task_manager_loses_its_slots_and_no_other_does(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.service.master.application_started(application(count=2))
        await bench.offer("a", number=0)
        await bench.offer("b", number=1)
        bench.network.detach(bench.task_managers[0].info.address)
        await bench.until(lambda: bench.held() == ["b"], TIMEOUT + 2 * INTERVAL)
        assert bench.loop.time() > TIMEOUT
        assert bench.wanted() == 2, "a replacement is wanted at once: this was no failure of the executor"
        assert "has been silent" in bench.spark.removed[0][1]

    run(story)


def test_task_managers_that_the_job_manager_calls_lost_lose_their_slots(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.service.master.application_started(application(count=1))
        await bench.offer("a")
        bench.job_manager.answers[JobMasterHeartbeat] = reply(lost=(bench.task_managers[0].info.instance,))
        await bench.until(lambda: not bench.held(), 2 * INTERVAL)

    run(story)


def test_another_life_of_a_task_manager_holds_nothing(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.service.master.application_started(application(count=1))
        await bench.offer("a")
        bench.task_managers[0].answers[JobMasterBeat] = SlotsReply(
            instance=InstanceId("life-0b"), allocations=(), executors=()
        )
        await bench.until(lambda: not bench.held(), 2 * INTERVAL)
        assert "was restarted" in bench.spark.removed[0][1]

    run(story)


def executor_report(slot: str, executor_id: str, state: ProcessState, pid: int = 0) -> ExecutorReport:
    return ExecutorReport(allocation_id=AllocationId(slot), executor_id=ExecutorId(executor_id), state=state, pid=pid)


@pytest.mark.req("LOC-11")
def test_slots_of_a_silent_task_manager_are_kept_while_spark_hears_their_executors(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.service.master.application_started(application(count=3))
        await bench.offer("a", "b", "c")
        bench.spark.executors |= {ExecutorId("0"), ExecutorId("1"), ExecutorId("2")}
        await asyncio.sleep(INTERVAL)
        bench.network.detach(bench.task_managers[0].info.address)
        await asyncio.sleep(3 * TIMEOUT)
        assert bench.held() == ["a", "b", "c"]
        assert all(view.away for view in bench.status().executors)
        bench.spark.silent.add(ExecutorId("1"))
        await bench.until(lambda: bench.held() == ["a", "c"], 2 * INTERVAL)
        bench.spark.executors.discard(ExecutorId("2"))
        await bench.until(lambda: bench.held() == ["a"], 2 * INTERVAL)
        assert bench.wanted() == 3, "at once, without a pause"
        bench.network.attach(bench.task_managers[0].info.address, bench.task_managers[0])
        await bench.until(lambda: not any(view.away for view in bench.status().executors), 2 * INTERVAL)

    run(story)


@pytest.mark.req("LOC-11")
def test_an_executor_whose_task_manager_stays_away_is_given_up_in_time(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.service.master.application_started(application(count=1))
        await bench.offer("a")
        bench.spark.executors.add(ExecutorId("0"))
        await asyncio.sleep(INTERVAL)
        bench.network.detach(bench.task_managers[0].info.address)
        began = bench.loop.time()
        await bench.until(lambda: not bench.held(), 400.0)
        assert 290.0 < bench.loop.time() - began < 310.0
        assert "has been silent for 300 s" in bench.spark.removed[0][1]

    run(story)


@pytest.mark.req("LOC-5")
def test_a_recovered_slot_keeps_the_executor_that_runs_in_it(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.service.master.application_started(application(count=1))
        await bench.offer("a")
        bench.spark.executors.add(ExecutorId("0"))
        await asyncio.sleep(INTERVAL)
        running = executor_report("a", "0", ProcessState.RUNNING, 77)
        assert await bench.offer_again("a", running) == ("a",)
        await asyncio.sleep(3 * TIMEOUT)
        assert [(view.executor_id, view.pid, view.away) for view in bench.status().executors] == [("0", 77, False)]
        assert len(bench.task_managers[0].asked(StartExecutor)) == 1
        assert bench.spark.removed == []

    run(story)


@pytest.mark.req("LOC-5")
@pytest.mark.parametrize("known", [True, False], ids=["ended", "never started"])
def test_a_recovered_slot_without_an_executor_gets_one_at_once(run: Run, known: bool) -> None:
    async def story(bench: Bench) -> None:
        bench.service.master.application_started(application(count=1))
        await bench.offer("a")
        await asyncio.sleep(INTERVAL)
        ended = (executor_report("a", "0", ProcessState.EXITED),) if known else ()
        assert await bench.offer_again("a", *ended) == ("a",)
        bench.task_managers[0].executors = {}
        await bench.until(lambda: len(bench.task_managers[0].asked(StartExecutor)) == 2, 1.0)
        started = [start.executor_id for start in bench.task_managers[0].asked(StartExecutor)]
        assert started == (["0", "1"] if known else ["0", "0"]), "the first request may still arrive"
        assert (bench.held(), bench.wanted(), bench.spark.failures) == (["a"], 1, [])
        assert bench.task_managers[0].asked(ReleaseSlot) == []

    run(story)


@pytest.mark.req("LOC-5")
def test_a_recovered_slot_that_was_given_up_meanwhile_is_refused(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.service.master.application_started(application(count=1))
        await bench.offer("a")
        bench.job_manager.answers[JobMasterHeartbeat] = reply(lost=(bench.task_managers[0].info.instance,))
        await bench.until(lambda: not bench.held(), 2 * INTERVAL)
        assert await bench.offer_again("a", executor_report("a", "0", ProcessState.RUNNING, 7)) == ()
        assert await bench.offer("b", number=1) == ("b",)

    run(story)


@pytest.mark.req("LOC-5")
def test_a_slot_that_was_given_up_is_taken_again_when_its_node_is_back_before_another_was_found(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.service.master.application_started(application(count=1))
        await bench.offer("a")
        bench.job_manager.answers[JobMasterHeartbeat] = reply(lost=(bench.task_managers[0].info.instance,))
        await bench.until(lambda: not bench.held(), 2 * INTERVAL)
        ended = executor_report("a", "0", ProcessState.EXITED)
        assert await bench.offer_again("a", ended) == ("a",)
        bench.task_managers[0].executors = {}
        await bench.until(lambda: len(bench.task_managers[0].asked(StartExecutor)) == 2, 1.0)
        assert [start.executor_id for start in bench.task_managers[0].asked(StartExecutor)] == ["0", "1"]
        assert await bench.offer("b", number=1) == ()
        await asyncio.sleep(3 * TIMEOUT)
        assert bench.held() == ["a"]

    run(story)


@pytest.mark.req("LOC-5")
def test_a_late_offer_of_a_life_that_is_over_changes_nothing(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.service.master.application_started(application(count=1))
        await bench.offer("a")
        old = bench.task_managers[0].info
        await bench.offer_again("a", executor_report("a", "0", ProcessState.RUNNING, 7))
        late = OfferSlots(job_id=JOB, attempt=1, task_manager=old, slots=(allocation("a", PROFILE),))
        with pytest.raises(RetryLater, match="a later life"):
            await bench.network.call(JOB_MASTER, late, OfferSlotsReply, timeout=5.0)
        assert bench.service.master.pool.state.held[AllocationId("a")].task_manager.instance == "life-0b"

    run(story)


def test_a_slot_missing_from_the_answer_to_a_beat_is_lost(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.service.master.application_started(application(count=2))
        await bench.offer("a", "b")
        bench.task_managers[0].slots.remove(AllocationId("a"))
        await bench.until(lambda: bench.held() == ["b"], 2 * INTERVAL)

    run(story)


def test_a_task_manager_that_refuses_this_attempt_makes_it_ask_the_job_manager(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.service.master.application_started(application(count=1))
        await bench.offer("a")
        bench.task_managers[0].answers[JobMasterBeat] = Conflict("superseded by attempt 2")
        bench.job_manager.answers[JobMasterHeartbeat] = Conflict("attempt 2 runs")
        await bench.until(lambda: bool(bench.spark.abandonments), 2 * INTERVAL)

    run(story)


# --- the JobManager ---------------------------------------------------------------------------------------------------


@pytest.mark.req("HA-7")
def test_an_attempt_that_was_superseded_abandons_once_and_serves_nobody(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.service.master.registered.wait()
        bench.job_manager.answers[JobMasterHeartbeat] = Conflict("attempt 2 runs")
        bench.job_manager.answers[RegisterJobMaster] = Conflict("attempt 2 runs")
        await bench.until(lambda: bool(bench.spark.abandonments), 2 * INTERVAL)
        await asyncio.sleep(TIMEOUT)
        assert bench.spark.abandonments == ["attempt 2 runs"]
        with pytest.raises(Conflict, match="is not led by"):
            await bench.offer("a")

    run(story)


@pytest.mark.req("HA-5")
def test_without_a_job_manager_it_goes_on_and_registers_again_later(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.service.master.application_started(application(count=1))
        await bench.offer("a")
        bench.spark.executors.add(ExecutorId("0"))
        await bench.service.master.registered.wait()
        bench.network.detach(JOB_MANAGER)
        await asyncio.sleep(30 * TIMEOUT)
        assert bench.held() == ["a"]
        bench.job_manager.answers[JobMasterHeartbeat] = reply(epoch=2, known=False)
        bench.job_manager.answers[RegisterJobMaster] = reply(epoch=2)
        bench.network.attach(JOB_MANAGER, bench.job_manager)
        await bench.until(lambda: len(bench.job_manager.asked(RegisterJobMaster)) == 2, 2 * INTERVAL)
        again = bench.job_manager.asked(RegisterJobMaster)[-1]
        assert [view.allocation_id for view in again.status.executors] == ["a"]
        assert bench.spark.abandonments == []

    run(story)


@pytest.mark.req("SAFE-6")
def test_answers_of_an_older_job_manager_change_nothing_and_are_named_once(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.job_manager.answers[RegisterJobMaster] = reply(epoch=5)
        bench.service.master.application_started(application(count=1))
        await bench.offer("a")
        await bench.service.master.registered.wait()
        bench.job_manager.answers[JobMasterHeartbeat] = reply(epoch=4, lost=(bench.task_managers[0].info.instance,))
        with capture_logs() as logs:
            await asyncio.sleep(TIMEOUT)
        assert bench.held() == ["a"]
        assert [(log["epoch"], log["newest"]) for log in logs if "older copy" in log["event"]] == [(4, 5)]

    run(story)


# --- the end ----------------------------------------------------------------------------------------------------------


def test_when_an_application_stops_all_slots_go_back_and_the_next_starts_anew(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.service.master.application_started(application(count=2))
        await bench.offer("a", "b")
        bench.service.master.application_stopped()
        await bench.until(lambda: not bench.task_managers[0].slots, 0.5)
        assert bench.wanted() == 0
        bench.service.master.application_started(application(count=1, app_id="app-2"))
        await bench.offer("c")
        await bench.until(lambda: len(bench.task_managers[0].asked(StartExecutor)) == 3)
        newest = bench.task_managers[0].asked(StartExecutor)[-1]
        assert (newest.app_id, newest.executor_id) == ("app-2", "2"), "executor ids are never used again"

    run(story)


def test_executors_end_with_their_application_as_they_like(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.service.master.application_started(application(count=2))
        await bench.offer("a", "b")
        await bench.until(lambda: len(bench.task_managers[0].asked(StartExecutor)) == 2)
        bench.service.master.application_stopping()
        await bench.executor_ends("a", "0")
        assert not (await bench.service.master.take_status()).exceptions
        assert bench.held() == ["b"]
        bench.service.master.application_stopped()
        await bench.until(lambda: not bench.task_managers[0].slots, 0.5)

    run(story)


def test_a_slot_is_given_back_again_and_again_until_the_task_manager_hears(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.service.master.application_started(application(count=1))
        await bench.offer("a")
        bench.task_managers[0].answers[ReleaseSlot] = RetryLater("not now")
        bench.service.master.application_stopped()
        await bench.until(lambda: len(bench.task_managers[0].asked(ReleaseSlot)) > 2)
        assert not bench.service.master.all_released.is_set()
        await bench.until(bench.service.master.all_released.is_set, TIMEOUT + INTERVAL)

    run(story)


def test_the_outcome_is_told_and_the_slots_are_given_back(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.service.master.application_started(application(count=2))
        await bench.offer("a", "b")
        outcome = AttemptOutcome(exit_code=0)
        await bench.service.report_outcome(outcome)
        assert [request.outcome for request in bench.job_manager.asked(ReportOutcome)] == [outcome]
        assert bench.task_managers[0].slots == []

    run(story)


def test_a_refusal_after_the_end_is_no_reason_to_die_without_goodbye(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.service.master.registered.wait()
        await bench.service.report_outcome(AttemptOutcome(exit_code=0))
        for kind in (JobMasterHeartbeat, RegisterJobMaster, ReportOutcome):
            bench.job_manager.answers[kind] = Conflict("the job has ended")
        await asyncio.sleep(TIMEOUT)
        await bench.service.report_outcome(AttemptOutcome(exit_code=0))
        assert bench.spark.abandonments == []

    run(story)


def test_an_outcome_that_cannot_be_told_is_given_up_in_time(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.network.detach(JOB_MANAGER)
        began = bench.loop.time()
        with pytest.raises(RetryLater):
            await bench.service.report_outcome(AttemptOutcome(exit_code=0))
        assert TIMEOUT <= bench.loop.time() - began <= TIMEOUT + INTERVAL

    run(story)


class PowerlessService:
    """A JobManager whose machine is gone: connections to it are neither accepted nor refused."""

    async def serve(self, request: Message) -> Message:
        await asyncio.get_running_loop().create_future()
        raise AssertionError(request)


def test_the_outcome_goes_to_the_next_leader_while_the_machine_of_the_last_one_is_silent(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.network.attach(JOB_MANAGER, PowerlessService())
        bench.network.attach("jm:2", bench.job_manager)
        began = bench.loop.time()
        reporting = asyncio.create_task(bench.service.report_outcome(AttemptOutcome(exit_code=0)))
        await asyncio.sleep(INTERVAL / 2)
        bench.service.master.link.follow("jm:2")
        await reporting
        assert len(bench.job_manager.asked(ReportOutcome)) == 1
        assert bench.loop.time() - began < TIMEOUT / 2

    run(story)


def test_an_attempt_that_was_told_to_end_tries_once(run: Run) -> None:
    """With the whole cluster each JobManager goes; drivers need not look for one."""

    async def story(bench: Bench) -> None:
        bench.network.detach(JOB_MANAGER)
        began = bench.loop.time()
        with pytest.raises(RetryLater):
            await bench.service.report_outcome(AttemptOutcome(exit_code=143, kind=FailureKind.LOST))
        assert bench.loop.time() - began <= INTERVAL

    run(story)


def test_what_a_job_master_does_not_serve_is_refused(run: Run) -> None:
    async def story(bench: Bench) -> None:
        with pytest.raises(InvalidInput, match="does not serve"):
            await bench.service.serve(Ack())

    run(story)


def test_it_reports_when_it_has_reached_what_and_repeats_what_the_job_manager_adds(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.service.master.registered.wait()
        told = TraceReport(milestones={"detected": -7.0}, cause="lost", delay=4.0)
        bench.job_manager.answers[JobMasterHeartbeat] = msgspec.structs.replace(reply(), trace=told)
        await asyncio.sleep(1.0)
        bench.service.master.application_started(application(1))
        await bench.until(lambda: "context-up" in milestones(bench), 0.5)  # at once
        await asyncio.sleep(1.0)
        await bench.offer("a")
        await bench.until(lambda: "executor-ordered" in milestones(bench), 0.5)  # at once
        executor = ExecutorReport(
            allocation_id=AllocationId("a"), executor_id=ExecutorId("1"), state=ProcessState.RUNNING, pid=7
        )
        bench.task_managers[0].executors[AllocationId("a")] = executor
        changed = ExecutorChanged(job_id=JOB, attempt=1, task_manager=TaskManagerId("tm-0"), executor=executor)
        await bench.network.call(JOB_MASTER, changed, Ack, timeout=5.0)
        await bench.until(lambda: "executor-started" in milestones(bench), 0.5)  # at once
        await asyncio.sleep(1.0)
        now_ms = VirtualClock(bench.loop).now_ms()
        bench.service.master.application_stopping(FirstTimes(executors_ms=(now_ms - 500,), stage_ms=now_ms - 250))
        await bench.until(lambda: "stage-completed" in milestones(bench), 0.5)  # at once
        known = milestones(bench)
        assert known.keys() == {
            *("detected", "registered", "context-up", "executor-ordered", "executor-started"),
            *("executor-registered", "executors-registered", "stage-completed"),
        }
        assert round(known["stage-completed"] - known["executor-registered"], 2) == 0.25
        trace = bench.status().trace
        assert trace is not None
        assert (known["detected"], trace.cause, trace.delay) == (-7.0, "lost", 4.0)

    run(story)


def milestones(bench: Bench) -> dict[str, float]:
    trace = bench.status().trace
    assert trace is not None
    return trace.milestones


# --- what the attempt has done ----------------------------------------------------------------------------------------


def test_what_the_attempt_has_done_outlives_its_application(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.service.master.registered.wait()
        bench.service.master.application_started(application())
        stages = tuple(
            StageProgress(
                stage_id=number, stage_attempt=0, name="", status=status, tasks=4, active=0, completed=4, failed=0
            )
            for number, status in ((2, "ACTIVE"), (1, "COMPLETE"))
        )
        bench.spark.work = AttemptWork(active_jobs=1, active_tasks=2, completed_tasks=6, total_tasks=9, stages=stages)
        await bench.until(lambda: bench.status().completed_tasks == 6)
        assert bench.status().active_tasks == 2

        last = AttemptWork(completed_jobs=1, completed_tasks=9, total_tasks=9, stages=stages[1:])
        bench.service.master.application_stopping(work=last)
        await bench.until(lambda: bench.status().completed_tasks == 9, 0.5)
        bench.spark.is_up = False
        bench.service.master.application_stopped()
        await asyncio.sleep(3 * INTERVAL)
        assert bench.status().work == last
        assert (bench.status().active_tasks, bench.status().completed_tasks) == (0, 9)

    run(story)


def test_the_flows_of_a_pipeline_are_reported_up_to_the_last_event(run: Run) -> None:
    def flow(state: str) -> FlowProgress:
        return FlowProgress(name="orders", state=state, changed_ms=1, message="")

    async def story(bench: Bench) -> None:
        await bench.service.master.registered.wait()
        bench.service.master.application_started(application())
        bench.spark.flows = (flow("RUNNING"),)
        await bench.until(lambda: bench.status().flows == (flow("RUNNING"),))
        bench.service.master.application_stopping(work=AttemptWork(), flows=(flow("COMPLETED"),))
        bench.spark.is_up = False
        bench.service.master.application_stopped()
        await bench.until(lambda: bench.status().flows == (flow("COMPLETED"),))
        await asyncio.sleep(3 * INTERVAL)
        assert bench.status().flows == (flow("COMPLETED"),)

    run(story)


def test_it_reports_a_trend_of_the_tasks_or_of_the_rows_of_its_queries(run: Run) -> None:
    def trend(bench: Bench) -> tuple[TrendUnit, int] | None:
        told = bench.status().trend
        return None if told is None else (told.unit, sum(told.samples))

    async def story(bench: Bench) -> None:
        await bench.service.master.registered.wait()
        bench.service.master.application_started(application())
        bench.spark.work = AttemptWork(completed_tasks=6, total_tasks=9)
        await bench.until(lambda: trend(bench) == (TrendUnit.TASKS_DONE, 6))
        begun = VirtualClock(bench.loop).now_ms()
        bench.spark.reports = [record(1, triggered_ms=begun, duration_ms=1000, rows=4000)]
        await bench.until(lambda: trend(bench) == (TrendUnit.ROWS_PER_SECOND, 400))

    run(story)


# --- the history of streaming queries ---------------------------------------------------------------------------------


class MemoryProgressStore:
    """Keeps what the attempt writes; ``away`` makes reads and writes fail."""

    def __init__(self, earlier: KeptProgress = NOTHING_KEPT) -> None:
        self.before = earlier
        self.kept = NOTHING_KEPT
        self.writes = 0
        self.away = False

    async def earlier(self) -> KeptProgress:
        self._reach()
        return self.before

    async def keep(self, kept: KeptProgress) -> None:
        self._reach()
        self.kept, self.writes = kept, self.writes + 1

    def _reach(self) -> None:
        if self.away:
            raise Unavailable("the storage is away")

    def batches(self) -> list[int]:
        return [one.batch_id for query in self.kept.queries for one in query.records]


def with_history(bench: Bench, *batches: int) -> MemoryProgressStore:
    """Let the driver's storage hold the history of an earlier attempt."""
    records = tuple(record(batch, run_id="before", recorded_ms=batch) for batch in batches)
    history = (QueryHistory(query_id="q-1", records=records),) if records else ()
    store = MemoryProgressStore(KeptProgress(queries=history))
    bench.service.master.progress.store = store
    bench.service.master.application_started(application())
    return store


async def read_progress(bench: Bench) -> list[int]:
    request = ReadProgress(job_id=JOB, attempt=1, selection=Selection(limit=10))
    reply = await bench.network.call(JOB_MASTER, request, ProgressRead, timeout=5.0)
    return [one.batch_id for one in reply.page.records]


def test_an_attempt_continues_the_history_and_writes_what_is_new(run: Run) -> None:
    async def story(bench: Bench) -> None:
        store = with_history(bench, 1, 2)
        bench.spark.reports = [record(3)]
        await bench.until(lambda: store.batches() == [1, 2, 3])
        bench.spark.reports = [record(3), record(4)]
        await bench.until(lambda: store.batches() == [1, 2, 3, 4])
        assert await read_progress(bench) == [1, 2, 3, 4]
        writes = store.writes
        await asyncio.sleep(5 * PAUSE)
        assert store.writes == writes, "nothing new is not written"

    run(story)


def test_nothing_is_written_before_the_earlier_history_was_read(run: Run) -> None:
    async def story(bench: Bench) -> None:
        store = with_history(bench, 1)
        store.away = True
        bench.spark.reports = [record(2)]
        await asyncio.sleep(5 * PAUSE)
        assert await read_progress(bench) == [2]
        assert store.writes == 0
        store.away = False
        await bench.until(lambda: store.batches() == [1, 2])

    run(story)


def test_a_failed_write_is_repeated(run: Run) -> None:
    async def story(bench: Bench) -> None:
        store = with_history(bench)
        bench.spark.reports = [record(1)]
        await bench.until(lambda: store.batches() == [1])
        store.away = True
        bench.spark.reports.append(record(2))
        await asyncio.sleep(5 * PAUSE)
        store.away = False
        await bench.until(lambda: store.batches() == [1, 2])

    run(story)


def test_the_end_of_the_script_writes_the_newest_batch(run: Run) -> None:
    async def story(bench: Bench) -> None:
        store = with_history(bench)
        bench.spark.reports = [record(1)]
        await bench.until(lambda: store.batches() == [1])
        bench.spark.reports.append(record(2))
        await asyncio.sleep(1.2 * INTERVAL)
        await bench.service.report_outcome(AttemptOutcome(exit_code=0))
        assert store.batches() == [1, 2]
        assert len(bench.job_manager.asked(ReportOutcome)) == 1

    run(story)


def test_the_course_of_the_job_goes_on_in_the_next_attempt_and_is_written_now_and_then(run: Run) -> None:
    async def story(bench: Bench) -> None:
        store = with_history(bench)
        began = VirtualClock(bench.loop).now_ms() - 40_000
        store.before = KeptProgress(queries=(), course=Course(began_ms=began, tasks=(2, 5), executors=(1, 2)))
        bench.spark.work = AttemptWork(completed_tasks=6, total_tasks=9, gc_ms=70)
        await bench.service.master.registered.wait()
        await bench.until(lambda: bool((course := bench.status().course) and course.tasks[-1] == 11))
        await asyncio.sleep(PAUSE)
        assert store.writes == 0, "a short batch job writes nothing"
        await bench.until(lambda: store.writes == 1, 3 * COURSE_PAUSE)
        kept = store.kept.course
        assert kept is not None
        assert (kept.began_ms, kept.tasks[:4], kept.tasks[-1]) == (began, (2, 5, 5, 5), 11)
        assert (kept.gc_ms[0], kept.gc_ms[-1]) == (0, 70)

    run(story)


def test_the_history_of_another_attempt_is_refused(run: Run) -> None:
    async def story(bench: Bench) -> None:
        request = ReadProgress(job_id=JOB, attempt=2, selection=Selection(limit=10))
        with pytest.raises(Conflict, match="attempt 2"):
            await bench.network.call(JOB_MASTER, request, ProgressRead, timeout=5.0)

    run(story)
