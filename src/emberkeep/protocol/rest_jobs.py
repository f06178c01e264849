"""REST bodies about jobs: lists, details, exceptions, configuration."""

from __future__ import annotations

from typing import Any

from msgspec import field

from emberkeep.base.ids import ExecutorId, JobId, TaskManagerId
from emberkeep.jobs.model import Artefact, EntryPoint, FailureKind, JobResources, JobStatus
from emberkeep.lifecycle.model import Procedure, ProcedurePhase
from emberkeep.protocol.messages.task_manager_reports import ProcessState
from emberkeep.protocol.progress.rest_flows import FlowInfo
from emberkeep.protocol.progress.rest_work import CourseInfo, EndedExecutorInfo, WorkInfo
from emberkeep.protocol.rest import Camel, Duration, Kebab, Millis
from emberkeep.protocol.rest_recovery import RecoveryInfo
from emberkeep.protocol.upgrades.rest_upgrades import UpgradeInfo
from emberkeep.slots.model import ProcessStart
from emberkeep.watchdog.model import AlarmKind


class JobIdWithStatus(Kebab, frozen=True, kw_only=True):
    id: JobId
    status: JobStatus


class JobIdsWithStatus(Kebab, frozen=True, kw_only=True):
    jobs: list[JobIdWithStatus]


class TaskCounts(Kebab, frozen=True, kw_only=True):
    """Spark tasks of the current attempt, from its start on, by Flink's task states.

    ``total``: those that have finished, and those of active Spark jobs that have not. A failed task is tried again, so
    ``failed`` is no part of it. States that Spark does not have stay 0.
    """

    total: int = 0
    created: int = 0
    scheduled: int = 0
    deploying: int = 0
    running: int = 0
    finished: int = 0
    canceling: int = 0
    canceled: int = 0
    failed: int = 0
    reconciling: int = 0
    initializing: int = 0


class AlarmInfo(Kebab, frozen=True, kw_only=True):
    """An alarm of the watchdog, which is raised now. ``query``: the streaming query's name; "" for the whole job."""

    kind: AlarmKind
    query: str
    since: Millis
    message: str


class JobSummaryExtension(Kebab, frozen=True, kw_only=True):
    attempt: int
    executors: int  # executors that Spark can use now
    executors_wanted: int
    waiting: str
    exit_code: int | None
    owner: str = ""  # name of the identity that submitted it; "": the cluster's own token
    namespace: str = ""
    alarms: list[AlarmInfo] = field(default_factory=list)  # of the watchdog, the oldest first


class JobDetails(Kebab, frozen=True, kw_only=True):
    """One job in the overview of all jobs.

    ``pending-operators`` is always 0: Flink's client refuses a job without it.
    """

    jid: JobId
    name: str
    state: JobStatus
    start_time: Millis
    end_time: Millis
    duration: Duration
    last_modification: Millis
    tasks: TaskCounts
    emberkeep: JobSummaryExtension
    pending_operators: int = 0


class MultipleJobsDetails(Kebab, frozen=True, kw_only=True):
    """All jobs, newest submission first."""

    jobs: list[JobDetails]


class DriverInfo(Kebab, frozen=True, kw_only=True):
    """The newest driver, which may have ended. ``pid``: 0 while it is unknown, and after the end of its attempt."""

    taskmanager_id: TaskManagerId
    pid: int


class ReservedStandbyInfo(Kebab, frozen=True, kw_only=True):
    """The warm driver that is reserved for a job's next attempt.

    ``taskmanager-id``: null while no task manager keeps it. ``why-not``: why it is not ready, in words.
    """

    taskmanager_id: TaskManagerId | None
    ready: bool
    why_not: str = ""


class DepartureInfo(Kebab, frozen=True, kw_only=True):
    """Progress of an executor that is leaving.

    ``begun`` false: it continues to work, and waits for another executor that can take over its blocks.
    ``shuffle-blocks`` and ``cached-blocks``: how many map outputs of shuffles and cached RDD blocks it still holds,
    according to Spark's driver; -1: not known. ``at-least``: there are more map outputs than were counted.
    """

    begun: bool
    shuffle_blocks: int
    cached_blocks: int
    at_least: bool


class ExecutorInfo(Kebab, frozen=True, kw_only=True):
    id: ExecutorId
    taskmanager_id: TaskManagerId
    host: str
    state: ProcessState
    registered: bool  # with Spark, so tasks can run in it
    pid: int
    cores: int
    heap_mb: int
    away: bool  # its task manager is silent, but Spark reports the executor as alive
    departure: DepartureInfo | None = None  # it is leaving an evacuated node, and does not count towards those wanted
    outgoing: bool = False  # its node is blocked, or its disk is full: another executor will replace it
    cordoned: bool = False  # others run in its place: it gets no new tasks, and keeps its blocks and running tasks
    start: ProcessStart | None = None  # hot: from a standby process; null if unknown
    why_cold: str = ""  # why it did not take a standby process
    dismissed: bool = False  # dynamic allocation removes it: it hands over its blocks and ends
    lacks_space: bool = False  # tasks have failed there lately because its disk is full
    task_time: Duration | None = None  # of all its tasks, at once or not, as Spark counts it; null if unknown
    gc_time: Duration | None = None  # the part of task-time that went into garbage collection; null if unknown


class BacklogInfo(Kebab, frozen=True, kw_only=True):
    """What a query has not read, as its sources count it; a field is null if none counts so.

    A source that counts rows is in ``rows`` only. ``time-behind``: of the source that is farthest behind.
    ``unknown-sources``: those that do not say what is left.
    """

    rows: int | None
    files: int | None
    bytes: int | None
    time_behind: Duration | None
    unknown_sources: int


class StreamingQuery(Kebab, frozen=True, kw_only=True):
    """The newest progress of one streaming query, as Spark reports it.

    ``status``: Spark's text; "interrupted" between two attempts of the job, "ended" once the last one is over. Both
    have no rows per second.
    ``backlog-rows``: that its sources have and that it has not read; null unless each of them counts rows.
    ``backlog-seconds``: how long these take at the rate of the newest micro-batch; null if that is unknown.
    ``backlog``: the same, as each source counts it; null if none of them says.
    """

    id: str
    run_id: str
    name: str
    batch_id: int
    timestamp: str  # ISO 8601
    num_input_rows: int
    input_rows_per_second: float
    processed_rows_per_second: float
    state_rows: int
    watermark: str  # "" without one
    status: str
    checkpoint_location: str
    backlog_rows: int | None = None
    backlog_seconds: float | None = None
    backlog: BacklogInfo | None = None


class AttemptInfo(Kebab, frozen=True, kw_only=True):
    """One start of the driver.

    ``failure-kind`` and ``root-cause`` are empty while the attempt runs and after a success. ``recovery``: null for all
    but the newest attempts, and for those that ended under an earlier leader.
    """

    attempt: int
    taskmanager_id: TaskManagerId
    start_time: Millis
    end_time: Millis
    exit_code: int | None
    failure_kind: FailureKind | None
    root_cause: str
    recovery: RecoveryInfo | None = None


class ProcedureInfo(Kebab, frozen=True, kw_only=True):
    """Progress of a savepoint, a stop or a move.

    ``procedure``: null if only its savepoint is known. ``phase``: null before the start. ``detail`` and ``waiting``:
    what is being done or waited for, in words. ``warning``: what users should know although the procedure succeeded.
    ``periodic``: the JobManager makes this savepoint by itself.
    """

    trigger_id: str
    procedure: Procedure | None
    phase: ProcedurePhase | None
    detail: str
    waiting: str
    target_directory: str
    files_done: int
    files_total: int
    bytes_done: int
    bytes_total: int
    requested: Millis
    started: Millis
    ended: Millis
    duration: Duration  # since the request; -1 if that time is not known
    location: str  # of the savepoint, once its completion is recorded durably
    manifest_sha256: str
    job_status: JobStatus
    warning: str = ""
    periodic: bool = False


class PeriodicSavepointsInfo(Kebab, frozen=True, kw_only=True):
    """The periodic savepoints of a job, see the options ``execution.savepoint.*``.

    ``max-age``: 0 for any age. ``next``: when the next one is due; -1 if none follows for now. It waits while the job
    stops, restarts, moves or carries out another request. ``newest``: when the newest one was complete; -1 if there is
    none. ``retiring``: how many are being deleted. ``failures``: how many tries have failed since the newest one.
    ``problem``: why none is made or deleted now, or "".
    """

    interval: Duration
    retained: int
    max_age: Duration
    next: Millis
    newest: Millis
    kept: int
    retiring: int
    failures: int
    problem: str


class DynamicAllocationInfo(Kebab, frozen=True, kw_only=True):
    """The number of executors that is wanted. ``maximum``: null for no limit.

    ``autoscaled``: autoscaling decides, for ``reason``; otherwise Spark's dynamic allocation.
    """

    wanted: int
    minimum: int
    maximum: int | None
    changed: Millis  # when another number was wanted last
    autoscaled: bool = False
    reason: str = ""


class ReclaimInfo(Kebab, frozen=True, kw_only=True):
    """The job may have at most ``ceiling`` executors for now: it gives slots back, for ``reason``.

    With a ``ceiling`` of 0 it is put back to waiting: its driver continues without executors until slots are free.
    """

    ceiling: int
    reason: str


class JobExtension(Kebab, frozen=True, kw_only=True):
    attempt: int  # 0 before the first start
    driver: DriverInfo | None
    waiting: str  # what the job waits for, in words; "" when nothing is missing
    executors: list[ExecutorInfo]
    executors_wanted: int
    queries: list[StreamingQuery]
    attempts: list[AttemptInfo]  # oldest first
    exit_code: int | None
    root_cause: str
    app_id: str
    active_stages: int
    procedure: ProcedureInfo | None = None  # the procedure in progress, or the one that stopped the job
    owner: str = ""  # name of the identity that submitted the job; "": the cluster's own token
    namespace: str = ""
    reserved_standby: ReservedStandbyInfo | None = None  # null unless ``execution.standby`` is ``hot``
    alarms: list[AlarmInfo] = field(default_factory=list)  # of the watchdog, the oldest first
    periodic_savepoints: PeriodicSavepointsInfo | None = None  # null if it has none, and once it has ended
    upgrade: UpgradeInfo | None = None  # the newest that it is part of; null if it is part of none
    work: WorkInfo | None = None  # null before the first report
    dynamic_allocation: DynamicAllocationInfo | None = None  # null if the number of executors is fixed
    reclaim: ReclaimInfo | None = None  # null unless others are entitled to slots of the job
    priority: int = 0  # from ``job.priority``; 0 (normal) if the job ended under an earlier leader
    gang: bool = False  # it gets all its executors at once, or none
    ended_executors: list[EndedExecutorInfo] = field(default_factory=list)  # the 30 whose tasks took most time
    course: CourseInfo | None = None  # null before the first executor or task
    flows: list[FlowInfo] = field(default_factory=list)  # of a declarative pipeline, those that came first; 200 at most


class JobPlan(Kebab, frozen=True, kw_only=True):
    """Flink's tools expect this object. Spark plans at run time, so ``nodes`` is empty."""

    jid: JobId
    name: str
    nodes: list[Any]


class JobDetailsInfo(Kebab, frozen=True, kw_only=True):
    """One job. ``timestamps``: when the job last entered each status; 0 if it never did (as in Flink)."""

    jid: JobId
    name: str
    is_stoppable: bool = field(name="isStoppable")
    state: JobStatus
    start_time: Millis
    end_time: Millis
    duration: Duration
    max_parallelism: int = field(name="maxParallelism")
    now: Millis
    timestamps: dict[JobStatus, Millis]
    vertices: list[Any]
    status_counts: dict[str, int]
    plan: JobPlan
    emberkeep: JobExtension


class ExceptionInfo(Camel, frozen=True, kw_only=True):
    """One entry of a job's history. ``failureLabels`` contains the attempt. ``message`` is the entry as one line."""

    exception_name: str
    stacktrace: str
    message: str
    timestamp: Millis
    task_name: str
    endpoint: str
    task_manager_id: str
    failure_labels: dict[str, str]
    concurrent_exceptions: list[Any]


class ExceptionHistory(Camel, frozen=True, kw_only=True):
    """The entries, newest first."""

    entries: list[ExceptionInfo]
    truncated: bool


class JobExceptions(Kebab, frozen=True, kw_only=True):
    root_exception: str | None
    timestamp: Millis | None
    all_exceptions: list[Any]  # deprecated in Flink, always empty
    truncated: bool
    exception_history: ExceptionHistory = field(name="exceptionHistory")


class ExecutionConfig(Kebab, frozen=True, kw_only=True):
    execution_mode: str
    restart_strategy: str
    job_parallelism: int
    object_reuse_mode: bool
    user_config: dict[str, str]  # Spark configuration and Emberkeep options; secret values are shown as ``******``


class JobConfigExtension(Kebab, frozen=True, kw_only=True):
    entry_point: EntryPoint
    arguments: list[str]
    artefacts: list[Artefact]
    spark_conf: dict[str, str]
    options: dict[str, str]
    resources: JobResources
    working_directory: str
    python: str


class JobConfigInfo(Kebab, frozen=True, kw_only=True):
    """A job's configuration.

    ``emberkeep`` is null for jobs that ended before this JobManager started, because only their results are kept.
    """

    jid: JobId
    name: str
    execution_config: ExecutionConfig
    emberkeep: JobConfigExtension | None
