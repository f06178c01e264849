"""A job store and task managers in memory, for the JobManager's tests."""

from __future__ import annotations

from typing import Any

from emberkeep.base.errors import Conflict, EmberkeepError, InvalidInput
from emberkeep.base.ids import ExecutorId, InstanceId, JobId, TaskManagerId
from emberkeep.jobmanager.service import JobManagerService
from emberkeep.jobs.model import (
    AttemptOutcome,
    EntryPoint,
    EntryPointKind,
    JobGraph,
    JobResources,
)
from emberkeep.protocol.messages.job_master_reports import ExecutorView, JobMasterStatus
from emberkeep.protocol.messages.job_masters import JobMasterHeartbeat, JobMasterReply, RegisterJobMaster, ReportOutcome
from emberkeep.protocol.messages.root import Ack, Message
from emberkeep.protocol.messages.task_manager_reports import (
    DriverReport,
    ProcessState,
    ReservedStandbyReport,
    StandbyReport,
    TaskManagerReport,
)
from emberkeep.protocol.messages.task_managers import (
    AllocateSlot,
    RegisterTaskManager,
    StartDriver,
    StopDriver,
    StopTaskManager,
    TaskManagerHeartbeat,
    TaskManagerHeartbeatReply,
)
from emberkeep.slots.model import Allocation, ResourceProfile, RuntimeVersions, SlotRequirement, TaskManagerInfo

RUNTIME = RuntimeVersions(python="3.11", spark="4.3.0")
SLOT = ResourceProfile(cores=1, memory_mb=1024)


def graph(
    number: int = 1,
    *,
    options: dict[str, str] | None = None,
    key: str = "",
    executors: int = 2,
    savepoint: str = "",
) -> JobGraph:
    return JobGraph(
        job_id=JobId(f"{number:032x}"),
        name=f"job {number}",
        entry_point=EntryPoint(kind=EntryPointKind.SCRIPT, name="app.py"),
        arguments=(),
        artefacts=(),
        spark_conf={},
        options=options or {},
        working_directory="/",
        resources=JobResources(
            driver_memory_mb=512,
            driver_overhead_mb=128,
            executors=executors,
            executor_cores=SLOT.cores,
            executor_memory_mb=SLOT.memory_mb,
            executor_overhead_mb=0,
        ),
        python="3.11",
        submitted_ms=1_000 + number,
        idempotency_key=key or f"key {number}",
        savepoint=savepoint,
    )


def status(sequence: int = 1, count: int = 0, **more: Any) -> JobMasterStatus:
    requirements = (SlotRequirement(count=count, profile=SLOT, runtime=RUNTIME),) if count else ()
    return JobMasterStatus(**{"sequence": sequence, "requirements": requirements, "executors": (), **more})


class FakeTaskManager:
    """Holds what it is told to, and reports when the test says so."""

    def __init__(self, service: JobManagerService, name: str = "tm-1", *, instance: str = "1", **info: Any) -> None:
        self.service = service
        values: dict[str, Any] = {
            "id": TaskManagerId(name),
            "instance": InstanceId(f"{name}/{instance}"),
            "address": f"{name}:1",
            "host": name,
            "node_id": name,
            "pid": 1,
            "slots": 4,
            "driver_places": 4,
            "total": ResourceProfile(cores=4, memory_mb=16_384),
            "runtime": RUNTIME,
            "java_major": 17,
            "started_ms": 1,
        }
        self.info = TaskManagerInfo(**{**values, **info})
        self.sequence = 0
        self.allocations: dict[str, Allocation] = {}
        self.drivers: dict[tuple[JobId, int], DriverReport] = {}
        self.started: list[StartDriver] = []
        self.stopped: list[StopDriver] = []
        self.ending: list[StopTaskManager] = []
        self.left: tuple[JobId, ...] = ()
        self.leaving = self.draining = False
        self.disk_free_mb = self.disk_total_mb = 100_000
        self.refusal: EmberkeepError | None = None
        self.replies: list[TaskManagerHeartbeatReply] = []
        self.standbys: StandbyReport | None = None
        self.reserved: dict[JobId, str] = {}  # why a job's reserved standby is not ready

    async def serve(self, request: Message) -> Message:
        match request:
            case StartDriver():
                self.started.append(request)
                if self.refusal is not None:
                    raise self.refusal
                report = DriverReport(
                    job_id=request.graph.job_id,
                    attempt=request.attempt,
                    state=ProcessState.RUNNING,
                    pid=100,
                    memory_mb=request.memory_mb,
                )
                self.drivers.setdefault((request.graph.job_id, request.attempt), report)
            case StopDriver():
                self.stopped.append(request)
            case StopTaskManager():
                if request.instance != self.info.instance:
                    raise Conflict(f"{self.info.id} was restarted")
                self.ending.append(request)
                self.leaving, self.draining = True, request.drain > 0
            case AllocateSlot():
                if len(self.allocations) >= self.info.slots:
                    raise Conflict(f"{self.info.id} has no free slot")
                self.allocations[request.allocation_id] = Allocation(
                    id=request.allocation_id,
                    slot_index=len(self.allocations),
                    job_id=request.job_id,
                    attempt=request.attempt,
                    profile=request.profile,
                    job_master=request.job_master,
                )
            case _:
                raise InvalidInput(f"{type(request).__name__} is not for a task manager")
        return Ack()

    def report(self) -> TaskManagerReport:
        self.sequence += 1
        return TaskManagerReport(
            sequence=self.sequence,
            allocations=tuple(self.allocations.values()),
            drivers=tuple(self.drivers.values()),
            left=self.left,
            leaving=self.leaving,
            draining=self.draining,
            disk_free_mb=self.disk_free_mb,
            disk_total_mb=self.disk_total_mb,
            standbys=self.standbys,
            reserved_standbys=tuple(
                ReservedStandbyReport(job_id=job_id, why_not=why_not) for job_id, why_not in self.reserved.items()
            ),
        )

    async def register(self) -> None:
        await self.service.serve(RegisterTaskManager(info=self.info, report=self.report()))

    async def beat(self) -> TaskManagerHeartbeatReply:
        request = TaskManagerHeartbeat(id=self.info.id, instance=self.info.instance, report=self.report())
        reply = await self.service.serve(request)
        assert isinstance(reply, TaskManagerHeartbeatReply)
        for key in reply.acknowledged:
            self.drivers.pop((key.job_id, key.attempt), None)
        return reply

    def exits(self, job_id: JobId, attempt: int, outcome: AttemptOutcome) -> None:
        self.drivers[job_id, attempt] = DriverReport(
            job_id=job_id, attempt=attempt, state=ProcessState.EXITED, outcome=outcome
        )


def executor_in(allocation: Allocation, info: TaskManagerInfo, number: int = 0) -> ExecutorView:
    """The executor of a slot, as its JobMaster tells of it."""
    return ExecutorView(
        executor_id=ExecutorId(str(number)),
        allocation_id=allocation.id,
        task_manager=info.id,
        host=info.host,
        state=ProcessState.RUNNING,
        registered=True,
        cores=allocation.profile.cores,
        heap_mb=0,
    )


class FakeJobMaster:
    """The JobMaster of one attempt."""

    def __init__(self, service: JobManagerService, job_id: JobId, attempt: int, task_manager: str = "tm-1") -> None:
        self.service = service
        self.job_id = job_id
        self.attempt = attempt
        self.task_manager = TaskManagerId(task_manager)
        self.sequence = 0

    def _status(self, count: int, **more: Any) -> JobMasterStatus:
        self.sequence += 1
        return status(self.sequence, count, **more)

    async def register(self, count: int = 0, **more: Any) -> JobMasterReply:
        request = RegisterJobMaster(
            job_id=self.job_id,
            attempt=self.attempt,
            address=f"jm-{self.job_id[-4:]}-{self.attempt}:1",
            task_manager=self.task_manager,
            pid=100,
            status=self._status(count, **more),
        )
        reply = await self.service.serve(request)
        assert isinstance(reply, JobMasterReply)
        return reply

    async def beat(self, count: int = 0, **more: Any) -> JobMasterReply:
        request = JobMasterHeartbeat(job_id=self.job_id, attempt=self.attempt, status=self._status(count, **more))
        reply = await self.service.serve(request)
        assert isinstance(reply, JobMasterReply)
        return reply

    async def ends(self, outcome: AttemptOutcome) -> None:
        await self.service.serve(ReportOutcome(job_id=self.job_id, attempt=self.attempt, outcome=outcome))
