"""Bodies of the REST API. Where Flink has the thing they have Flink's shape; our own fields are below ``emberkeep``.

Times are Unix milliseconds and durations are milliseconds; -1 where Flink has -1 ("has not happened"). Readers ignore
fields that they do not know, so a newer JobManager can serve an older client. Requests with unknown fields are refused.
"""

from __future__ import annotations

import enum
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta, field

from emberkeep.base.ids import ExecutorId, JobId, TaskManagerId
from emberkeep.blobs.model import BlobContent
from emberkeep.jobs.model import Artefact, EntryPoint, FailureKind, JobResources, JobStatus
from emberkeep.lifecycle.model import Procedure, ProcedurePhase
from emberkeep.protocol.messages import ProcessState

API_PREFIX = "/v1"
PROBLEM_MEDIA_TYPE = "application/problem+json"
IDEMPOTENCY_HEADER = "Idempotency-Key"
LOG_OFFSET_HEADER = "X-Log-Offset"  # offset of the body's first byte; the next read starts at this + length of the body
LOG_SIZE_HEADER = "X-Log-Size"  # bytes of the log now
LOG_COMPLETE_HEADER = "X-Log-Complete"  # "true": nothing more will be appended

Millis: TypeAlias = Annotated[int, Meta(description="Unix time in milliseconds, -1 when it has not happened")]
Duration: TypeAlias = Annotated[int, Meta(description="milliseconds")]


class Kebab(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Replies with hyphenated names (Flink's older ones, and our own)."""


class Camel(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Replies with camel-case names (Flink's newer ones)."""


class Empty(msgspec.Struct, frozen=True):
    """``{}``: done or accepted."""


# --- errors -----------------------------------------------------------------------------------------------------------


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error (RFC 9457), with Flink's ``errors`` list.

    ``field`` names the invalid part of the request: a path such as ``artefacts[0].sha256``, a query parameter or a
    header.
    """

    title: str
    status: int
    detail: str
    errors: list[str]
    type: str = "about:blank"
    field: str | None = None
    hint: str | None = None


# --- cluster ----------------------------------------------------------------------------------------------------------


class TaskManagerOfAnotherStore(Kebab, frozen=True, kw_only=True):
    """A task manager that this cluster does not use, because it works for JobManagers with the job store ``store``.

    ``path``: its address.
    """

    id: TaskManagerId
    path: str
    node_id: str
    pid: int
    store: str


class ClusterExtension(Kebab, frozen=True, kw_only=True):
    version: str
    epoch: int
    job_manager: str  # host:port
    started: Millis
    jobs_by_status: dict[JobStatus, int]
    driver_places_total: int
    driver_places_available: int
    taskmanagers_away: int  # silent ones; counted in ``taskmanagers`` too
    taskmanagers_of_another_store: tuple[TaskManagerOfAnotherStore, ...] = ()  # not counted in ``taskmanagers``
    problem: str = ""  # what the JobManager cannot do now, and what to do about it; the same as in its readiness
    blocklist_problem: str = ""  # why the blocked nodes are unknown; nothing new is placed until they are known
    storage_problem: str = ""  # why nothing is deleted in the shared storage; empty if this cluster owns it
    storage_unneeded: int = 0  # pieces of data in the storage that no job needs


class ClusterOverview(Kebab, frozen=True, kw_only=True):
    """Counts of the whole cluster. ``flink-version`` is the version that Flink's tools show."""

    taskmanagers: int
    slots_total: int
    slots_available: int
    jobs_running: int
    jobs_finished: int
    jobs_cancelled: int
    jobs_failed: int
    flink_version: str
    flink_commit: str
    emberkeep: ClusterExtension
    taskmanagers_blocked: int = 0
    slots_free_and_blocked: int = 0  # available slots on blocked task managers, where nothing new is placed


class Features(Kebab, frozen=True, kw_only=True):
    web_submit: bool
    web_cancel: bool


class DashboardConfiguration(Kebab, frozen=True, kw_only=True):
    refresh_interval: Duration
    timezone_name: str
    timezone_offset: int  # milliseconds
    flink_version: str
    flink_revision: str
    features: Features


class ConfigurationEntry(Kebab, frozen=True, kw_only=True):
    """One option. Secret values are shown as ``******``. ``origin``: default, a file, environment …, -D."""

    key: str
    value: str
    origin: str


class Probe(Kebab, frozen=True, kw_only=True):
    """Reply to a load balancer's probe: status 200 if the probe succeeds, else 503 with a problem."""

    status: str
    epoch: int
    problem: str = ""  # what cannot be done although the probe succeeds, such as decisions or storage reads


# --- jobs -------------------------------------------------------------------------------------------------------------


class JobIdWithStatus(Kebab, frozen=True, kw_only=True):
    id: JobId
    status: JobStatus


class JobIdsWithStatus(Kebab, frozen=True, kw_only=True):
    jobs: list[JobIdWithStatus]


class TaskCounts(Kebab, frozen=True, kw_only=True):
    """Spark tasks of the current attempt, by Flink's task states. States that Spark does not have stay 0."""

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


class JobSummaryExtension(Kebab, frozen=True, kw_only=True):
    attempt: int
    executors: int  # executors that Spark can use now
    executors_wanted: int
    waiting: str
    exit_code: int | None


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
    taskmanager_id: TaskManagerId
    pid: int  # 0 while unknown


class DepartureInfo(Kebab, frozen=True, kw_only=True):
    """Progress of an executor that is leaving.

    ``begun`` false: it continues to work, and waits for another executor that can take over its blocks.
    ``shuffle-blocks`` and ``cached-blocks``: map outputs of shuffles and cached RDD blocks that it still holds, as
    Spark's driver knows; -1: not known. ``at-least``: there are more map outputs than were counted.
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
    away: bool  # its task manager is silent, but Spark reports the executor alive
    departure: DepartureInfo | None = None  # it is leaving an evacuated node, and not counted as one of those wanted
    outgoing: bool = False  # its node is blocked: another executor will replace it
    cordoned: bool = False  # its replacement is there: it gets no new tasks, and keeps its blocks and running tasks


class StreamingQuery(Kebab, frozen=True, kw_only=True):
    """The newest progress of one streaming query, as Spark reports it."""

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


class AttemptInfo(Kebab, frozen=True, kw_only=True):
    """One start of the driver.

    ``failure-kind`` and ``root-cause`` are empty while the attempt runs and after a success.
    """

    attempt: int
    taskmanager_id: TaskManagerId
    start_time: Millis
    end_time: Millis
    exit_code: int | None
    failure_kind: FailureKind | None
    root_cause: str


class ProcedureInfo(Kebab, frozen=True, kw_only=True):
    """Progress of a savepoint, a stop or a move.

    ``procedure``: null if only its savepoint is known. ``phase``: null before the start. ``detail`` and ``waiting``:
    what is being done or waited for, in words. ``warning``: what people should know although the procedure succeeded.
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


class JobPlan(Kebab, frozen=True, kw_only=True):
    """Flink's tools expect this object. Spark plans at run time, so ``nodes`` is empty."""

    jid: JobId
    name: str
    nodes: list[Any]


class JobDetailsInfo(Kebab, frozen=True, kw_only=True):
    """One job. ``timestamps``: when the job last entered each status, 0 if it never did (as in Flink)."""

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
    """One entry of a job's history. ``failureLabels`` contains the attempt. ``message`` is the entry in one line."""

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


# --- submission -------------------------------------------------------------------------------------------------------


class JobSubmission(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job graph without the fields that the JobManager adds (job id, time).

    Field names are those of the job graph, with underscores.

    ``idempotency_key`` may be sent as the Idempotency-Key header instead; requests with the same key start one job.
    ``jobid``: chosen by the client, which uploads its files under this id first. If it is "", the job has no files to
    upload and the JobManager chooses an id.
    """

    name: str
    entry_point: EntryPoint
    arguments: list[str]
    artefacts: list[Artefact]
    spark_conf: dict[str, str]
    options: dict[str, str]
    working_directory: str
    resources: JobResources
    python: str  # the client's, "3.11"
    idempotency_key: str = ""
    jobid: str = ""
    savepoint: str = ""  # directory of the savepoint that the job starts from


class OffloadedSubmission(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sent instead of a large JobSubmission: the transient BLOB of the same job that holds the submission as JSON."""

    jobid: str
    blob: BlobContent
    idempotency_key: str


class JobSubmitted(msgspec.Struct, frozen=True, kw_only=True):
    """The submitted job. ``created`` false: the idempotency key was known, and this is the job that it started."""

    jobid: JobId
    job_url: str = field(name="jobUrl")
    created: bool


# --- task managers ----------------------------------------------------------------------------------------------------


class Resources(Camel, frozen=True, kw_only=True):
    """Memory in MiB. ``taskHeapMemory`` (Flink's name) is heap and overhead of drivers and executors together."""

    cpu_cores: float
    task_heap_memory: int
    task_off_heap_memory: int = 0
    managed_memory: int = 0
    network_memory: int = 0
    extended_resources: dict[str, float] = {}


class Hardware(Camel, frozen=True, kw_only=True):
    """The resources that the task manager may allocate. Memory in bytes."""

    cpu_cores: int
    physical_memory: int
    free_memory: int
    managed_memory: int = 0


class DriverOnTaskManager(Kebab, frozen=True, kw_only=True):
    jid: JobId
    attempt: int
    state: ProcessState
    pid: int
    memory_mb: int


class TaskManagerState(enum.Enum):
    ALIVE = "ALIVE"
    AWAY = "AWAY"  # silent: what jobs hold there continues, nothing new is allocated


class LocalStateOfJob(Kebab, frozen=True, kw_only=True):
    """One job's state on a node's disk."""

    jid: JobId
    files: int
    size: int  # bytes


class StateGatewayCounters(Kebab, frozen=True, kw_only=True):
    """Contents of a state gateway, and what it has done since its process started.

    See ``emberkeep_state_gateway_…`` at /metrics.
    """

    copies: int
    used_bytes: int
    hits: int
    misses: int
    local_read_bytes: int
    remote_read_bytes: int
    written_bytes: int
    kept_bytes: int
    verify_failures: int
    stale: int
    disk_failures: int
    evictions: int
    purged: int
    fenced: int


class EvacuationInfo(Kebab, frozen=True, kw_only=True):
    """What still runs on an evacuated task manager.

    ``executors-waiting``: those of ``executors`` for which no other executor can take over their blocks.
    ``shuffle-blocks`` and ``cached-blocks``: map outputs of shuffles and cached RDD blocks that are not handed over
    yet. ``at-least``: there may be more that were not counted. ``drivers-staying``: drivers that stay until their jobs
    end.
    """

    executors: int
    executors_waiting: int
    shuffle_blocks: int
    cached_blocks: int
    at_least: bool
    drivers_moving: int
    drivers_staying: int


class TaskManagerExtension(Kebab, frozen=True, kw_only=True):
    """Our own fields of a task manager.

    ``adopted``: drivers and executors that this process has taken over from the previous one. ``state_gateway``: null
    if ``state.backend.local-recovery`` is off. ``evacuation``: null if nothing has to leave.
    """

    state: TaskManagerState
    instance: str
    host: str
    node_id: str
    pid: int
    started: Millis
    python: str
    spark: str
    java: int
    driver_places_total: int
    driver_places_available: int
    drivers: list[DriverOnTaskManager]
    disk_free_mb: int
    memory_used_mb: int
    cpu_percent: float
    adopted: int
    local_state: list[LocalStateOfJob]
    state_gateway: StateGatewayCounters | None = None
    evacuation: EvacuationInfo | None = None


class TaskManagerSummary(Camel, frozen=True, kw_only=True):
    """One task manager. ``timeSinceLastHeartbeat`` is the time of the last heartbeat, as in Flink, despite its name."""

    id: TaskManagerId
    path: str  # address of its RPC
    data_port: int
    jmx_port: int
    time_since_last_heartbeat: Millis
    slots_number: int
    free_slots: int
    total_resource: Resources
    free_resource: Resources
    hardware: Hardware
    emberkeep: TaskManagerExtension
    blocked: bool = False  # on the blocklist: nothing new is placed there


class TaskManagers(Camel, frozen=True, kw_only=True):
    taskmanagers: list[TaskManagerSummary]


class SlotInfo(Camel, frozen=True, kw_only=True):
    job_id: JobId
    attempt: int
    index: int
    resource: Resources


class TaskManagerDetails(TaskManagerSummary, frozen=True, kw_only=True):
    allocated_slots: list[SlotInfo]


# --- logs -------------------------------------------------------------------------------------------------------------


class LogInfo(Kebab, frozen=True, kw_only=True):
    """One log. ``name``: its id on the process that holds it. ``id``: its id in ``/jobs/{jid}/logs/{log_id}``.

    ``kind``: jobmanager, taskmanager, driver-stdout, driver-stderr, executor-stdout, executor-stderr. ``complete``:
    nothing more will be appended. The fields after ``complete`` are empty for logs that belong to no job.
    """

    name: str
    size: int  # bytes
    mtime: Millis
    kind: str
    complete: bool
    id: str = ""
    taskmanager_id: str = ""
    job_id: str = ""
    attempt: int = 0
    executor_id: str = ""


class LogList(Kebab, frozen=True, kw_only=True):
    """A list of logs.

    ``unreachable``: task managers that did not answer or are gone, so their logs are missing from the list.
    """

    logs: list[LogInfo]
    unreachable: list[str] = []
