"""Read-only views of a JobManager's state, for REST, the web page and metrics."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol

import msgspec

from emberkeep.base.ids import JobId, TaskManagerId
from emberkeep.jobmanager.views.blocklist import BlocklistGateway
from emberkeep.jobmanager.views.briefs import JobBrief
from emberkeep.jobmanager.views.procedures import ProcedureGateway, ProcedureView
from emberkeep.jobmanager.views.upgrades import UpgradeGateway, UpgradeView
from emberkeep.jobs.checkpoints import JobPointers
from emberkeep.jobs.model import AttemptRecord, ExceptionEntry, JobGraph, JobResult, JobStatus
from emberkeep.jobs.periodic.model import PeriodicView
from emberkeep.jobs.progress.work import ended
from emberkeep.jobs.traces.recovery_trace import RecoveryTrace
from emberkeep.protocol.messages.job_master_reports import JobMasterStatus
from emberkeep.protocol.messages.task_manager_reports import TaskManagerReport
from emberkeep.slots.model import Allocation, ResourceProfile, TaskManagerInfo
from emberkeep.slots.reserved.choices import StandbyView
from emberkeep.usage.history import Sample
from emberkeep.watchdog.model import Alarm

# What a query of an attempt that is over has instead of what its driver reported.
_STILL: Final[dict[str, Any]] = {"input_rows_per_second": 0.0, "processed_rows_per_second": 0.0}
_ENDED: Final[dict[str, Any]] = {"status": "ended", **_STILL}
_INTERRUPTED: Final[dict[str, Any]] = {"status": "interrupted", **_STILL}


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """One job, active or ended.

    If it ended under an earlier leader, ``graph`` is None, and ``status_report`` only has what is kept with its result.
    """

    job_id: JobId
    name: str
    status: JobStatus
    submitted_ms: int
    ended_ms: int | None
    status_times_ms: dict[JobStatus, int]  # when the job last entered each status
    attempt: int  # 0: none has started yet
    driver_task_manager: TaskManagerId | None
    driver_pid: int
    exit_code: int | None
    root_cause: str
    waiting: str  # a text that names what the job waits for; "" when nothing is missing
    waiting_since_ms: int = 0  # since when it waits, although it runs; 0 if unknown
    attempts: tuple[AttemptRecord, ...]
    traces: tuple[RecoveryTrace, ...] = ()  # of the newest attempts, as far as this leader knows; oldest first
    exceptions: tuple[ExceptionEntry, ...]
    graph: JobGraph | None
    status_report: JobMasterStatus | None
    result: JobResult | None
    pointers: JobPointers = JobPointers()  # as stored; of an ended job only savepoints
    procedure: ProcedureView | None = None  # current request, or the one that stopped it; None once ended
    unreadable: bool = False  # its job graph cannot be read now: ``waiting`` says why
    leaving: bool = False  # its driver is about to exit, or must move
    last_attempt_over: bool = False  # no other one follows; how the job ends may not be recorded yet
    job_master: str = ""  # address of the current attempt's JobMaster; "" while none is registered
    driver_expected_on: TaskManagerId | None = None  # where its driver is or may start; None: nowhere or unknown
    standby: StandbyView | None = None  # reserved for its next attempt; None in lists, or if it wants none
    alarms: tuple[Alarm, ...] = ()  # of the watchdog, the oldest first
    periodic: PeriodicView | None = None  # its periodic savepoints; None once ended, or if it has none
    upgrade: UpgradeView | None = None  # the newest that it is part of; None if it is part of none
    priority: int = 0  # jobs with a higher one come first; 0 if it ended under an earlier leader
    gang: bool = False  # it gets all its executors at once, or none

    @property
    def report(self) -> JobMasterStatus | None:
        """The newest report. Nothing of an attempt that is over is active, although its report may come from before.

        If no other attempt follows, the job wants no executors either.
        """
        report = self.status_report
        if report is None or not (self.wants_nothing or self.status is JobStatus.RESTARTING):
            return report
        now = _ENDED if self.wants_nothing else _INTERRUPTED
        report = msgspec.structs.replace(
            report,
            executors=(),
            queries=tuple(msgspec.structs.replace(query, **now) for query in report.queries),
            active_stages=0,
            active_tasks=0,
            reclaim=None,
            work=None if report.work is None else ended(report.work),
        )
        if not self.wants_nothing:
            return report
        return msgspec.structs.replace(report, requirements=(), given_back=0, scaling=None)

    @property
    def wants_nothing(self) -> bool:
        """True if the job's last attempt is over."""
        return self.status.is_globally_terminal or self.last_attempt_over

    @property
    def driver_has_ended(self) -> bool:
        """True if the newest driver ran in an attempt that has ended, and no other one is ordered yet."""
        return bool(self.attempts) and self.attempts[-1].ended_ms is not None

    @property
    def executors_wanted(self) -> int:
        """Number of executors that the job wants, now or once its driver runs."""
        if self.wants_nothing:
            return 0
        if self.report is None:
            return 0 if self.graph is None else self.graph.resources.executors
        return self.report.executors_wanted

    @property
    def entered_ms(self) -> int:
        """When the job has entered its status."""
        return self.status_times_ms.get(self.status, self.ended_ms or self.submitted_ms)

    @property
    def owner(self) -> str:
        """Name of the identity that submitted the job; "" for the cluster's own token, or if it is unknown."""
        known = self.graph or self.result
        return "" if known is None else known.owner

    @property
    def namespace(self) -> str:
        known = self.graph or self.result
        return "" if known is None else known.namespace

    @property
    def started_from(self) -> str:
        """Location of the savepoint that the job was started from; "" if it was started without, or if unknown."""
        known = self.graph or self.result
        return "" if known is None else known.savepoint

    @property
    def has_known_owner(self) -> bool:
        """False while the job graph cannot be read."""
        return self.graph is not None or self.result is not None


class Evacuation(msgspec.Struct, frozen=True, kw_only=True):
    """What still runs on an evacuated task manager.

    Blocks: map outputs of shuffles and cached RDD blocks that its executors have not handed over yet. ``at_least``:
    there may be more that were not counted. ``left``: executors and drivers that hold a slot or a place there now.
    ``total``: the most that did since the evacuation began, or since this JobManager leads.
    """

    executors: int  # leaving
    executors_waiting: int  # of these, waiting for one that can take over their blocks
    shuffle_blocks: int
    cached_blocks: int
    at_least: bool
    drivers_moving: int
    drivers_staying: int  # they stay until their jobs end
    left: int = 0
    total: int = 0


class TaskManagerView(msgspec.Struct, frozen=True, kw_only=True):
    """One registered task manager.

    ``away``: True while it is silent. In that case ``report`` is its last report, and none of its slots is free.
    ``kept``: slots that it has freed, and that nobody gets because their jobs restart.
    """

    info: TaskManagerInfo
    report: TaskManagerReport
    last_heartbeat_ms: int
    free_slots: int
    free_driver_places: int
    free_resources: ResourceProfile
    away: bool
    blocked: bool  # by the blocklist: nothing new is placed there
    evacuated: bool  # its running work must move elsewhere as well
    disk_full: bool = False  # nothing new is placed there until its disk has room
    evacuation: Evacuation | None = None  # set if it is evacuated
    usage_since_ms: int = 0  # when the history of its usage begins; 0 before its first heartbeat
    disk_low_since_ms: int = 0  # since when its disk is nearly full, in that history; 0 if it is not
    kept: tuple[Allocation, ...] = ()


class UsageView(msgspec.Struct, frozen=True, kw_only=True):
    """How busy a task manager's machine has been, as far as this leader knows. ``since_ms``: 0 before a heartbeat.

    Totals are of the newest report; 0 if unknown. That of the whole cluster has slots only.
    """

    since_ms: int
    step_ms: int
    memory_total_mb: int
    disk_total_mb: int
    samples: tuple[Sample, ...]
    earlier_step_ms: int
    earlier: tuple[Sample, ...]


class Stranger(msgspec.Struct, frozen=True, kw_only=True):
    """A task manager that follows another job store, or a later epoch of this one. ``lineage`` says which."""

    id: TaskManagerId
    address: str
    node_id: str
    pid: int
    lineage: str


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """Reply to a submission. ``created`` False: the idempotency key was known, and nothing new was started."""

    job_id: JobId
    created: bool


class JobManagerGateway(BlocklistGateway, ProcedureGateway, UpgradeGateway, Protocol):
    """What the edges may ask of a JobManager. Implemented by the JobManager's actors, faked in tests."""

    def epoch(self) -> int:
        """Return the leader's epoch."""

    def started_ms(self) -> int:
        """Return when this JobManager became the leader, in Unix milliseconds."""

    def address(self) -> str:
        """Return the host:port that other processes use."""

    async def is_confirmed(self) -> bool:
        """True if this JobManager is certainly the leader now; False while its job store does not say.

        Raises RetryLater if another one is.
        """

    async def submit(self, graph: JobGraph) -> Submission:
        """Accept a job durably.

        Raises InvalidInput (unsatisfiable, unknown option), NotUploaded (an artefact), Conflict (the id is taken),
        RetryLater (too many jobs; somebody deletes the savepoint to start from), Unavailable (the shared storage),
        UnknownOutcome, Fatal.
        """

    async def cancel(self, job_id: JobId, *, grace: float | None = None) -> None:
        """Cancel a job. Idempotent while the job ends.

        ``grace``: seconds until its driver is killed; None: ``task.cancellation.timeout``. A later call may shorten it.
        Raises Absent; Conflict if the job has ended otherwise; RetryLater, UnknownOutcome, Fatal.
        """

    def disposing(self, path: str) -> AbstractAsyncContextManager[None]:
        """Let no job be accepted that starts from the savepoint at ``path`` while the body runs, which deletes it.

        Raises Conflict if such a job is being accepted, RetryLater.
        """

    async def jobs(self) -> list[JobView]:
        """Return all jobs, ended ones included, newest submission first."""

    async def briefs(self) -> list[JobBrief]:
        """Return all jobs in brief, ended ones included, newest submission first."""

    async def jobs_of(self, job_ids: Sequence[JobId]) -> list[JobView]:
        """Return those of these jobs that are known, in the given order."""

    async def job(self, job_id: JobId) -> JobView:
        """Return one job. Raises Absent."""

    async def task_managers(self) -> list[TaskManagerView]:
        """Return all registered task managers, by id."""

    def strangers(self) -> tuple[Stranger, ...]:
        """Return the task managers that follow another job store, or a later epoch of this one, by id."""

    async def task_managers_by_node(self) -> dict[str, list[TaskManagerId]]:
        """Return the ids of all registered task managers, sorted, for each node."""

    async def task_manager(self, task_manager_id: TaskManagerId) -> TaskManagerView:
        """Return one task manager. Raises Absent."""

    async def usage(self, task_manager_id: TaskManagerId | None, *, after_ms: int) -> UsageView:
        """Return the samples that begin after ``after_ms`` of a task manager's history; None: of all slots together.

        Raises Absent.
        """

    async def stop_task_manager(self, task_manager_id: TaskManagerId, *, drain: float) -> None:
        """Stop a task manager permanently. For up to ``drain`` seconds, its work may end or move elsewhere first.

        Idempotent. Raises Absent, RetryLater (it does not answer), UnknownOutcome.
        """
