"""A TaskManagerService over fake processes, in virtual time, between a scripted JobManager and JobMaster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from emberkeep.base.configuration.options.job_managers import HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT
from emberkeep.base.configuration.options.jobs import DRIVER_START_TIMEOUT
from emberkeep.base.configuration.options.slots import SLOT_TIMEOUT
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.ids import AllocationId, ExecutorId, InstanceId, JobId, TaskManagerId
from emberkeep.jobs.model import AttemptOutcome, EntryPoint, EntryPointKind, JobGraph, JobResources
from emberkeep.protocol.messages.executors import (
    ExecutorChanged,
    JobMasterBeat,
    OfferSlots,
    OfferSlotsReply,
    SlotsReply,
    StartExecutor,
)
from emberkeep.protocol.messages.root import Ack, Message
from emberkeep.protocol.messages.task_manager_reports import DriverReport, TaskManagerReport
from emberkeep.protocol.messages.task_managers import (
    AllocateSlot,
    RegisterTaskManager,
    StartDriver,
    StopDriver,
    TaskManagerHeartbeat,
    TaskManagerHeartbeatReply,
    TaskManagerRegistered,
)
from emberkeep.slots.model import Allocation, ResourceProfile, RuntimeVersions, TaskManagerInfo
from emberkeep.taskmanager.ports import DriverKey, ExecutorKey, NodeUsage, TaskManagerPorts
from emberkeep.taskmanager.service import TaskManagerService
from tests.support.agent_store import MemoryAgentStore
from tests.support.fake_launcher import FakeLauncher
from tests.support.memory_rpc import MemoryNetwork
from tests.support.scripted_service import ScriptedService
from tests.support.simulator.virtual_loop import VirtualClock, VirtualLoop, seeded_system

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
FREE_MB = 77  # of the disk


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

    def allocation_freed(self, allocation: Allocation, may_return: bool) -> None:
        self.told.append(("freed", allocation.id, may_return))

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
        system = seeded_system(VirtualClock(self.loop), 1, "tm")
        ports = TaskManagerPorts(
            rpc=self.network,
            launcher=self.launcher,
            store=self.store,
            usage=lambda: NodeUsage(disk_free_mb=FREE_MB),
            listeners=(self.listener,),
        )
        service = TaskManagerService(system, self.configuration, info, ports, JOB_MANAGER)
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
        self.service = self.next_life(**changes)
        await self.start()

    def next_life(self, **changes: object) -> TaskManagerService:
        """It does not run yet."""
        self.lives += 1
        instance = InstanceId(f"life-{self.lives}")
        return self._life(msgspec.structs.replace(INFO, instance=instance, **changes))

    async def until(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        """Virtual seconds; the condition is looked at often, so that instants can be told apart."""
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(0.01)

    async def send(self, request: Message) -> Ack:
        return await self.network.call(TASK_MANAGER, request, Ack, timeout=8.0)

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
