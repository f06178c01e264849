"""Read-only pictures of a JobManager's state, for REST, web page and metrics."""

from __future__ import annotations

from typing import Protocol

import msgspec

from emberkeep.base.ids import JobId, TaskManagerId
from emberkeep.jobmanager.views.blocklist import BlocklistGateway
from emberkeep.jobmanager.views.procedures import ProcedureGateway, ProcedureView
from emberkeep.jobs.checkpoints import JobPointers
from emberkeep.jobs.model import AttemptRecord, ExceptionEntry, JobGraph, JobResult, JobStatus
from emberkeep.protocol.messages import JobMasterStatus, TaskManagerReport
from emberkeep.slots.model import ResourceProfile, TaskManagerInfo


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """One job, running or ended. ``graph`` and ``status_report`` are None for ended jobs of earlier lives."""

    job_id: JobId
    name: str
    status: JobStatus
    submitted_ms: int
    ended_ms: int | None
    status_times_ms: dict[JobStatus, int]  # when each status was entered last
    attempt: int  # 0: none was started yet
    driver_task_manager: TaskManagerId | None
    driver_pid: int
    exit_code: int | None
    root_cause: str
    waiting: str  # what the job waits for, in words; "" when nothing is missing
    attempts: tuple[AttemptRecord, ...]
    exceptions: tuple[ExceptionEntry, ...]
    graph: JobGraph | None
    status_report: JobMasterStatus | None
    result: JobResult | None
    pointers: JobPointers = JobPointers()  # as they are stored; of an ended job only its savepoints
    procedure: ProcedureView | None = None  # what it does on request, or was stopped by; None once it has ended
    unreadable: bool = False  # its job graph cannot be read at present: ``waiting`` says why
    leaving: bool = False  # its driver is about to end, or was asked to move
    driver_expected_on: TaskManagerId | None = None  # where its driver is or may come up; None: nowhere, or not known


class Evacuation(msgspec.Struct, frozen=True, kw_only=True):
    """What still runs on an evacuated task manager. Blocks: what its executors have not handed over yet, map outputs of
    shuffles and cached RDD blocks; ``at_least``: there may be more that was not counted."""

    executors: int  # that leave
    executors_waiting: int  # of these, for another one that can take over their blocks
    shuffle_blocks: int
    cached_blocks: int
    at_least: bool
    drivers_moving: int
    drivers_staying: int  # until their jobs end


class TaskManagerView(msgspec.Struct, frozen=True, kw_only=True):
    """One registered task manager. ``away``: it is silent, ``report`` is what it last said; nothing of it is free."""

    info: TaskManagerInfo
    report: TaskManagerReport
    last_heartbeat_ms: int
    free_slots: int
    free_driver_places: int
    free_resources: ResourceProfile
    away: bool = False
    blocked: bool = False  # by the blocklist: nothing new goes there
    evacuated: bool = False  # what runs there is to go as well
    evacuation: Evacuation | None = None  # where it is evacuated


class Stranger(msgspec.Struct, frozen=True, kw_only=True):
    """A task manager that works for JobManagers with another job store: ``lineage`` names that."""

    id: TaskManagerId
    address: str
    node_id: str
    pid: int
    lineage: str


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to a submission. ``created`` False: the idempotency key was known, nothing new was started."""

    job_id: JobId
    created: bool


class JobManagerGateway(BlocklistGateway, ProcedureGateway, Protocol):
    """What the edges may ask of a JobManager. Implemented by the JobManager's actors, faked in tests."""

    def epoch(self) -> int:
        """The leader's epoch."""

    def started_ms(self) -> int:
        """When this JobManager started to lead."""

    def address(self) -> str:
        """host:port that the other processes use."""

    async def submit(self, graph: JobGraph) -> Submission:
        """Accept a job durably.

        Raises InvalidInput (unsatisfiable, unknown option), RetryLater (too many jobs), Fatal.
        """

    async def cancel(self, job_id: JobId, *, grace: float | None = None) -> None:
        """Ask a job to end; idempotent while it ends.

        ``grace``: seconds until its driver is killed, None for ``task.cancellation.timeout``; a later call may shorten
        it. Raises Absent; Conflict when the job has ended otherwise.
        """

    async def jobs(self) -> list[JobView]:
        """All jobs, newest submission first, ended ones included."""

    async def job(self, job_id: JobId) -> JobView:
        """One job. Raises Absent."""

    async def task_managers(self) -> list[TaskManagerView]:
        """All registered task managers, by id."""

    def strangers(self) -> tuple[Stranger, ...]:
        """Task managers that hold work of JobManagers with another job store, and follow nobody else; by id."""

    async def task_managers_by_node(self) -> dict[str, list[TaskManagerId]]:
        """The ids of all registered task managers, sorted, by the node that they stand on."""

    async def task_manager(self, task_manager_id: TaskManagerId) -> TaskManagerView:
        """One task manager. Raises Absent."""

    async def stop_task_manager(self, task_manager_id: TaskManagerId, *, drain: float) -> None:
        """Have it end for good, its work first; that may end by itself for ``drain`` seconds. Repeats do no harm.

        Raises Absent, RetryLater (it does not answer).
        """
