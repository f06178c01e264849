"""Messages between JobManager, TaskManagers and JobMasters.

The protocol is level-triggered. Heartbeats carry the whole state of the sender and are sent at once after a change, so
the next heartbeat repairs a lost, repeated or late message. Each request identifies its sender's current term: the
epoch of the JobManager, the instance of a TaskManager, the attempt of a JobMaster. A receiver that knows a newer term
refuses the request with Conflict. Messages are encoded as MessagePack; wrong types are refused.

Neighbouring releases talk to each other while a cluster is upgraded (``base.compatible``): unknown fields are ignored,
and the default of a new field means what the previous release did. PROTOCOL_VERSION changes only if that is impossible.

All messages are in one module, so that a reader sees the whole agreement between the processes in one place.
"""

from __future__ import annotations

import enum

import msgspec

from emberkeep.base.compatible import Compatible
from emberkeep.base.ids import AllocationId, ExecutorId, InstanceId, JobId, TaskManagerId
from emberkeep.blocklist.model import Blocklist, Report
from emberkeep.jobs.checkpoints import QueryCheckpoint
from emberkeep.jobs.model import Artefact, AttemptOutcome, ExceptionEntry, JobGraph
from emberkeep.jobs.progress.course import Course
from emberkeep.jobs.progress.flows import FlowProgress
from emberkeep.jobs.progress.history import HistoryPage, Selection
from emberkeep.jobs.progress.outstanding import Outstanding, outstanding
from emberkeep.jobs.progress.records import SourceProgress
from emberkeep.jobs.progress.totals import QueryTotals
from emberkeep.jobs.progress.trend import Trend
from emberkeep.jobs.progress.work import AttemptWork
from emberkeep.jobs.traces.recovery_trace import TraceReport
from emberkeep.kept_logs.model import LogPiece, Position
from emberkeep.lifecycle.model import ProcedureProgress, ProcedureRequest
from emberkeep.local_state.model import Holding
from emberkeep.log_records.scan import Found, Search
from emberkeep.slots.custom.addresses import ResourceAddresses
from emberkeep.slots.custom.amounts import Amounts
from emberkeep.slots.model import (
    Allocation,
    ProcessStart,
    Reclaim,
    ResourceProfile,
    SlotRequirement,
    TaskManagerInfo,
)

PROTOCOL_VERSION = 1


class Message(Compatible, frozen=True, kw_only=True):
    """Root of all messages."""


class Ack(Message, frozen=True, kw_only=True):
    """The request is done, or was done before.

    ``never_had_by``: in reply to StopDriver, the TaskManager's instance if it has no such driver and refuses to start
    it from now on; "" otherwise.
    """

    never_had_by: str = ""


# --- state of processes ---------------------------------------------------------------------------------------------


class ProcessState(enum.Enum):
    STARTING = "STARTING"  # fetching artefacts, or starting the process
    RUNNING = "RUNNING"
    EXITED = "EXITED"


class DriverReport(Message, frozen=True, kw_only=True):
    """A driver as its TaskManager sees it.

    An EXITED driver stays in the report until the JobManager acknowledges it. ``start``: how the TaskManager got its
    process; None if it has no process yet, or if that is unknown.
    """

    job_id: JobId
    attempt: int
    state: ProcessState
    pid: int = 0
    memory_mb: int = 0  # reserved on the task manager
    custom: Amounts = ()  # of its custom resources, like memory_mb
    outcome: AttemptOutcome | None = None  # with EXITED
    start: ProcessStart | None = None
    why_cold: str = ""  # why it took no standby process, "" if it has none to take


class ExecutorReport(Message, frozen=True, kw_only=True):
    """An executor as its TaskManager sees it, identified by its allocation."""

    allocation_id: AllocationId
    executor_id: ExecutorId
    state: ProcessState
    pid: int = 0
    exit_code: int | None = None  # negative: minus the number of the signal that ended it
    detail: str = ""  # last lines of its log, if it failed
    start: ProcessStart | None = None
    why_cold: str = ""  # why it took no standby process, "" if it has none to take


class BlobCacheReport(Message, frozen=True, kw_only=True):
    """Contents of a TaskManager's BLOB cache, and what the cache has done since its process started."""

    blobs: int = 0
    hits: int = 0  # BLOBs found in the local store
    shared: int = 0  # BLOBs whose content another job already had here
    ha_hits: int = 0  # BLOBs copied from the HA store
    downloads: int = 0  # BLOBs downloaded from the BLOB server or a peer
    received_bytes: int = 0  # copied from the HA store or downloaded
    failures: int = 0  # retrievals that failed
    verify_failures: int = 0  # local or received copies whose bytes were wrong
    served: int = 0  # BLOBs served to peers
    deleted: int = 0  # BLOBs deleted by clean-up
    cleanup_runs: int = 0


class LocalStateReport(Message, frozen=True, kw_only=True):
    """One job's state on a node's disk. The job's next attempt preferably gets its slots and driver there."""

    job_id: JobId
    files: int
    size: int  # bytes
    allocations: tuple[AllocationId, ...] = ()  # owners of these files, ended allocations included


class StateGatewayReport(Message, frozen=True, kw_only=True):
    """Contents of a TaskManager's state gateway, and what the gateway has done since its process started."""

    copies: int = 0  # state files with a copy on the node's disk
    used_bytes: int = 0  # disk space that these copies take
    hits: int = 0  # opened files that were read from the local copy, at least in part
    misses: int = 0  # opened files that were read from the durable store
    local_read_bytes: int = 0
    remote_read_bytes: int = 0
    written_bytes: int = 0  # to the durable store
    kept_bytes: int = 0  # part of written_bytes that has a local copy
    verify_failures: int = 0  # local copies whose bytes were wrong
    stale: int = 0  # local copies of files that another node has replaced
    disk_failures: int = 0  # times that the disk refused a local copy or the record of a rename
    evictions: int = 0  # local copies dropped for the quota
    purged: int = 0  # local copies dropped because their durable file no longer exists
    fenced: int = 0  # refused requests of attempts that are over
    standby_bytes: int = 0  # copied from the durable store for reserved standbys


class StandbyReport(Message, frozen=True, kw_only=True):
    """How many standby processes a TaskManager has ready, and how many it keeps when all are."""

    drivers: int
    drivers_kept: int
    executors: int
    executors_kept: int


class ReservedStandbyReport(Message, frozen=True, kw_only=True):
    """A job's reserved standby. ``why_not``: why it is not ready; "" if it is."""

    job_id: JobId
    why_not: str = ""


class TaskManagerReport(Message, frozen=True, kw_only=True):
    """Everything that a TaskManager holds.

    - ``sequence`` grows within an instance, so that late reports are dropped.
    - ``leaving``: it is shutting down and accepts nothing new. Once its report is empty it counts as gone.
    - ``draining``: before it stops, what it holds must move elsewhere, as far as there is room.
    - ``local_state``: the jobs with the most local state, at most LOCAL_STATE_JOBS, one entry each.
    - ``left``: jobs that no longer hold anything here but whose data is kept here; at most LEFT_JOBS. If there are
      more, successive reports list different ones.
    - ``reserved_standbys``: those that it keeps or tries to keep, at most RESERVED_STANDBYS (64).
    """

    sequence: int
    allocations: tuple[Allocation, ...]
    drivers: tuple[DriverReport, ...]
    leaving: bool = False
    disk_free_mb: int = 0
    memory_used_mb: int = 0
    cpu_percent: float = 0.0
    blobs: BlobCacheReport | None = None
    adopted: int = 0  # processes that this instance has taken over from the previous one
    local_state: tuple[LocalStateReport, ...] = ()
    state_gateway: StateGatewayReport | None = None  # None without a state gateway
    left: tuple[JobId, ...] = ()
    draining: bool = False
    connections_rejected: int = 0  # without a valid login, since the TaskManager's process started
    standbys: StandbyReport | None = None  # None if it keeps none
    reserved_standbys: tuple[ReservedStandbyReport, ...] = ()
    memory_total_mb: int = 0  # of the machine; 0 if unknown
    disk_total_mb: int = 0  # of the disk with the working directory; 0 if unknown


# --- TaskManager → JobManager ---------------------------------------------------------------------------------------


class AttemptKey(Message, frozen=True, kw_only=True):
    job_id: JobId
    attempt: int


class RegisterTaskManager(Message, frozen=True, kw_only=True):
    """First message of an instance. Answered by TaskManagerRegistered.

    A second instance with the same id replaces the first only if the first is lost or has the same address. Otherwise
    two processes have one id: Conflict. ``attempts``: the newest known attempt of each of at most SEEN_JOBS jobs: those
    about which this TaskManager most recently received messages.
    """

    info: TaskManagerInfo
    report: TaskManagerReport
    attempts: tuple[AttemptKey, ...] = ()
    lineage: str = ""  # job store of the JobManagers that it follows; "": it follows any
    known_epoch: int = 0  # the highest known epoch of that job store


class TaskManagerRegistered(Message, frozen=True, kw_only=True):
    epoch: int
    heartbeat_interval: float  # seconds
    lineage: str = ""  # job store to which the epoch belongs


class TaskManagerHeartbeat(Message, frozen=True, kw_only=True):
    id: TaskManagerId
    instance: InstanceId
    report: TaskManagerReport
    lineage: str = ""  # job store of the JobManagers that it follows; "": it follows any
    known_epoch: int = 0  # the highest known epoch of that job store


class ReservedStandby(Message, frozen=True, kw_only=True):
    """A standby driver that is reserved for a job. ``graph``: None if the TaskManager's report lists the job.

    ``checkpoints``: durable locations of the job's streaming queries, at most RESERVED_CHECKPOINTS.
    """

    job_id: JobId
    graph: JobGraph | None = None
    checkpoints: tuple[str, ...] = ()


class TaskManagerHeartbeatReply(Message, frozen=True, kw_only=True):
    """Reply to a heartbeat.

    - ``known`` False: register again.
    - ``acknowledged``: exited drivers that need not be reported again, because the consequences of their ends are
      stored.
    - ``stale``: attempts that have ended; each also stands for all older attempts of its job. Free their slots and end
      their drivers; keep reporting how the drivers ended until that is acknowledged.
    - ``ended``: those of the ``left`` jobs in the report that have ended. Their data need not be kept.
    - ``reserved_standbys``: those to keep, at most RESERVED_STANDBYS (64), and no others. At most RESERVED_GRAPHS of
      them have a graph. The graph of any other that the TaskManager does not know comes in a later reply.
    """

    epoch: int
    known: bool
    acknowledged: tuple[AttemptKey, ...] = ()
    stale: tuple[AttemptKey, ...] = ()
    ended: tuple[JobId, ...] = ()
    lineage: str = ""  # job store to which the epoch belongs
    reserved_standbys: tuple[ReservedStandby, ...] = ()


class KeepLog(Message, frozen=True, kw_only=True):
    """Store a piece of a log in the shared storage, where it outlives the TaskManager.

    Absent: the JobManager does not know the job. Conflict: logs are not stored, or another instance of the TaskManager
    is registered.
    """

    task_manager: TaskManagerId
    instance: InstanceId
    job_id: JobId
    attempt: int
    name: str  # of the file
    piece: LogPiece


class LogKept(Message, frozen=True, kw_only=True):
    """Reply to KeepLog: how far the log is stored now. The next piece begins there."""

    position: Position


# --- JobManager → TaskManager ---------------------------------------------------------------------------------------


class StartDriver(Message, frozen=True, kw_only=True):
    """Start the driver of an attempt. Idempotent per (job, attempt); Conflict if a newer attempt is known."""

    epoch: int
    graph: JobGraph
    attempt: int
    memory_mb: int  # reserved on the task manager: heap and overhead
    job_manager: str  # address from which to fetch artefacts and at which to register
    checkpoint_root: str  # directory for the checkpoints of queries without a checkpoint location of their own
    checkpoints_recorded: bool = False  # checkpoint_root has an ownership record wherever it is mounted
    checkpoints: tuple[QueryCheckpoint, ...] = ()  # commits of earlier attempts, to compare the storage with
    procedure: ProcedureRequest | None = None  # to be continued; an earlier attempt may have begun it
    lineage: str = ""  # job store to which the epoch belongs
    addresses: tuple[ResourceAddresses, ...] = ()  # of custom resources, set by the TaskManager itself


class StopDriver(Message, frozen=True, kw_only=True):
    """Stop the driver of this attempt: SIGTERM, and after ``grace`` seconds SIGKILL to its whole session."""

    epoch: int
    job_id: JobId
    attempt: int
    grace: float
    lineage: str = ""  # job store to which the epoch belongs


class StopTaskManager(Message, frozen=True, kw_only=True):
    """Stop the TaskManager permanently.

    It accepts nothing new, and for ``drain`` seconds lets what it holds move elsewhere or end. Then it stops drivers
    and executors, releases everything and cleans up. Ack means that this has begun. The newest request's ``drain``
    applies. ``instance``: the instance to stop. Any other instance replies with Conflict, so a late message cannot stop
    the wrong process.
    """

    epoch: int
    instance: InstanceId
    drain: float
    lineage: str = ""  # job store to which the epoch belongs


class AllocateSlot(Message, frozen=True, kw_only=True):
    """Reserve a slot for a job and offer it to its JobMaster. Conflict if the resources are not free."""

    epoch: int
    allocation_id: AllocationId
    job_id: JobId
    attempt: int
    profile: ResourceProfile
    job_master: str
    lineage: str = ""  # job store to which the epoch belongs


class ListLogs(Message, frozen=True, kw_only=True):
    """List the logs of one job, or without a job all logs, including the TaskManager's own."""

    job_id: JobId | None


class LogView(Message, frozen=True, kw_only=True):
    """One log as ``protocol.rest_logs.LogInfo`` shows it. ``complete``: nothing more will be appended."""

    name: str  # the log's id on this TaskManager
    size: int  # bytes
    mtime: int  # Unix milliseconds
    kind: str
    complete: bool
    job_id: str = ""  # "" if the log belongs to no job; if so, the fields below are empty
    attempt: int = 0
    executor_id: str = ""


class LogsListed(Message, frozen=True, kw_only=True):
    logs: tuple[LogView, ...]


class UploadLog(Message, frozen=True, kw_only=True):
    """Store a piece of a log as a transient BLOB at the BLOB server.

    The requester releases the BLOB's reference once it has read the piece. A reference that was not released ends at a
    later request for the log. Absent: there is no such log, or it belongs to a job other than ``job_id``.
    """

    log_id: str
    offset: int  # bytes; negative: counted from the end
    limit: int  # bytes
    wait: float  # seconds to wait while there is nothing after ``offset``
    from_start: bool  # if ``offset`` is beyond the end, the log was replaced: send its first bytes
    job_id: JobId | None = None


class LogUploaded(Message, frozen=True, kw_only=True):
    """Reply to UploadLog: the piece begins at ``offset``. It is empty and has no BLOB if ``key`` is "".

    ``size``: bytes of the log now. ``complete``: the piece reaches the log's end, and nothing more will be appended.
    """

    offset: int
    size: int
    complete: bool
    owner: JobId
    key: str = ""
    holder: str = ""


class SearchLog(Message, frozen=True, kw_only=True):
    """Search a bounded part of a log. ``search.offset`` may be beyond the end.

    Absent: there is no such log, or it belongs to a job other than ``job_id``.
    """

    log_id: str
    search: Search
    wait: float  # seconds to wait while a search forwards has no bytes to examine
    job_id: JobId | None = None


class LogSearched(Message, frozen=True, kw_only=True):
    """Reply to SearchLog. ``size`` and ``complete`` as in LogUploaded."""

    found: Found
    size: int
    complete: bool


# --- TaskManager → JobMaster ----------------------------------------------------------------------------------------


class OfferSlots(Message, frozen=True, kw_only=True):
    """Offer slots.

    Repeated until answered, for at most ``taskmanager.slot.timeout``; slots that are not accepted are freed.

    A restarted task manager again offers the slots that it has recovered, with the executors that it has adopted or
    that ended while it was away. An allocation that ``executors`` does not name has no executor.
    """

    job_id: JobId
    attempt: int
    task_manager: TaskManagerInfo
    slots: tuple[Allocation, ...]
    executors: tuple[ExecutorReport, ...] = ()


class OfferSlotsReply(Message, frozen=True, kw_only=True, omit_defaults=True):
    """Reply to an offer.

    ``later``: slots not accepted because the pause before a replacement is not over yet, or because the application
    stops. The job no longer needs the slots that are in neither field, nor the data kept for them.
    """

    accepted: tuple[AllocationId, ...]
    later: tuple[AllocationId, ...] = ()


class ExecutorChanged(Message, frozen=True, kw_only=True):
    """An executor has started to run or has ended.

    Each SlotsReply repeats it, so the loss of this message only costs time.
    """

    job_id: JobId
    attempt: int
    task_manager: TaskManagerId
    executor: ExecutorReport


# --- JobMaster → TaskManager ----------------------------------------------------------------------------------------


class StartExecutor(Message, frozen=True, kw_only=True):
    """Start Spark's executor in an accepted slot. Idempotent per (allocation, executor id).

    ``python_path``: folders in which Python workers may find modules beside the script. ``python_path_owner``: the user
    who may own these folders, apart from root and the task manager's user; None: the driver is from the previous
    release, and its workers find the folders only by ``PYTHONPATH``. ``secrets``: the job graph's, encrypted.
    ``namespace_claim``: proves the job's namespace, see ``identities.attempts``.
    ``addresses``: of custom resources. The TaskManager itself sets them to those of the slot.
    """

    job_id: JobId
    attempt: int
    allocation_id: AllocationId
    executor_id: ExecutorId
    driver_url: str
    app_id: str
    cores: int
    heap_mb: int
    java_options: tuple[str, ...]
    extra_class_path: str
    environ: dict[str, str]
    auth_secret: str
    python_path: tuple[str, ...]
    artefacts: tuple[Artefact, ...] = ()  # the node's BLOB cache makes them available to the executor
    python: str = ""  # interpreter of the application's Python workers, such as ./environment/bin/python
    jars_first: bool = False  # the artefacts' jars take precedence over Spark's own
    python_path_owner: int | None = None
    secrets: dict[str, str] = msgspec.field(default_factory=dict)
    namespace_claim: str = ""
    addresses: tuple[ResourceAddresses, ...] = ()


class ReleaseSlot(Message, frozen=True, kw_only=True):
    """Release a slot and kill its executor. An unknown allocation counts as released, so the reply is Ack.

    ``stopped``: the application has stopped, so the node keeps its copies of the job's state. Otherwise the job
    continues and no longer needs that state here.
    """

    job_id: JobId
    attempt: int
    allocation_id: AllocationId
    stopped: bool = False


class JobMasterBeat(Message, frozen=True, kw_only=True):
    """The allocations that the JobMaster holds on this TaskManager.

    Other allocations of this attempt that were offered and answered are freed. Silence for ``heartbeat.timeout`` frees
    all allocations of the attempt, unless a driver of the attempt is alive here. ``decommissioned``: held allocations
    whose executors must hand over their blocks and end by themselves.
    """

    job_id: JobId
    attempt: int
    allocations: tuple[AllocationId, ...]
    decommissioned: tuple[AllocationId, ...] = ()


class SlotsReply(Message, frozen=True, kw_only=True):
    """The TaskManager's allocations and executors for the attempt. Held allocations that are missing are lost."""

    instance: InstanceId
    allocations: tuple[AllocationId, ...]
    executors: tuple[ExecutorReport, ...]


class ListLocalState(Message, frozen=True, kw_only=True):
    """List the copies of the job's state on the TaskManager's disk, so that tasks can be placed where their state is.

    Answered by LocalStateListed, which is empty if nothing is kept. Conflict: a newer attempt is known.
    """

    job_id: JobId
    attempt: int


class LocalStateListed(Message, frozen=True, kw_only=True):
    holdings: tuple[Holding, ...]


# --- JobMaster → JobManager -----------------------------------------------------------------------------------------


class QueryProgress(Message, frozen=True, kw_only=True):
    """The newest progress of one streaming query."""

    id: str
    run_id: str
    name: str
    batch_id: int
    timestamp: str  # ISO 8601, as Spark gives it
    num_input_rows: int
    input_rows_per_second: float
    processed_rows_per_second: float
    state_rows: int
    watermark: str  # "" if the query has none
    status: str
    checkpoint_location: str
    state_bytes: int = 0  # memory that the state stores of its operators use
    backlog_rows: int | None = None  # that its sources have and that it has not read; None if they do not say
    late_rows: int = 0  # that the newest batch dropped, because they came after the watermark
    state_commit_ms: int = 0  # of the newest batch, added over its tasks
    totals: QueryTotals | None = None  # of the attempt; None if they are not counted
    sources: tuple[SourceProgress, ...] = ()  # of the newest report, without offsets

    @property
    def is_waiting(self) -> bool:
        """True while the query waits for data or for its next trigger, by Spark's text."""
        return self.status.startswith("Waiting")

    @property
    def outstanding(self) -> Outstanding:
        """What its sources have and it has not read, as they count it."""
        return outstanding(self.sources, self.backlog_rows)


class Departure(Message, frozen=True, kw_only=True):
    """Progress of an executor that is leaving.

    ``begun`` False: it waits for another executor that can take over its blocks. ``shuffle_blocks`` and
    ``cached_blocks``: how many it still holds, according to Spark's driver; -1: not known. ``at_least``: there are more
    map outputs than were counted.
    """

    begun: bool
    shuffle_blocks: int = -1
    cached_blocks: int = -1
    at_least: bool = False


class ExecutorView(Message, frozen=True, kw_only=True):
    """One slot of the job as its JobMaster sees it."""

    executor_id: ExecutorId
    allocation_id: AllocationId
    task_manager: TaskManagerId
    host: str
    state: ProcessState
    registered: bool  # with Spark's driver
    cores: int
    heap_mb: int
    pid: int = 0
    away: bool = False  # its task manager is silent, but Spark reports the executor as alive
    departure: Departure | None = None  # it is leaving, and does not count towards the executors wanted
    outgoing: bool = False  # its place is blocked: it does not count either, but stays until it has no work left
    cordoned: bool = False  # it gets no new tasks, because its replacement runs
    start: ProcessStart | None = None  # how its task manager got its process; None if unknown
    why_cold: str = ""
    dismissed: bool = False  # Spark needs fewer executors: it hands over its blocks and ends, and counts no more


class Scaling(Message, frozen=True, kw_only=True):
    """``wanted`` executors are wanted since ``changed_ms`` (Unix time). ``maximum``: None for no limit.

    ``autoscaled``: by autoscaling, for ``reason``; otherwise by Spark's dynamic allocation.
    """

    wanted: int
    minimum: int
    maximum: int | None
    changed_ms: int
    autoscaled: bool = False
    reason: str = ""


class JobMasterStatus(Message, frozen=True, kw_only=True):
    """Everything that a JobMaster reports about its attempt. ``waiting``: what is missing, in words, if anything."""

    sequence: int
    requirements: tuple[SlotRequirement, ...]
    executors: tuple[ExecutorView, ...]
    queries: tuple[QueryProgress, ...] = ()
    active_stages: int = 0
    active_tasks: int = 0
    completed_tasks: int = 0
    failed_tasks: int = 0
    app_id: str = ""
    waiting: str = ""
    exceptions: tuple[ExceptionEntry, ...] = ()  # the newest ones of this attempt, bounded
    blocklist_revision: int = -1  # of the list that the JobMaster follows; -1: it has received none
    blocklist: Blocklist | None = None  # that list, sent if the JobManager cannot read its own
    blocklist_epoch: int = 0  # of the leader that sent that list
    block_reports: tuple[Report, ...] = ()  # requested entries that the list has not answered yet, bounded
    checkpoints: tuple[QueryCheckpoint, ...] = ()  # newest commit of each streaming query of this attempt, bounded
    procedure: ProcedureProgress | None = None  # of the newest request, until another one comes
    functions: tuple[str, ...] = ()  # names of user functions that may have state, bounded
    trace: TraceReport | None = None  # of the attempt's start, with what replies have added to it
    work: AttemptWork | None = None  # from the attempt's start on; None from release 0.1.0, which counts active stages
    trend: Trend | None = None  # of the last minutes; None while there is none
    scaling: Scaling | None = None  # None if the number of executors is fixed
    least_slots: int = 0  # that the attempt keeps when others are entitled to its slots; 0: it can give none back
    reclaim: Reclaim | None = None  # what it gives back now
    given_back: int = 0  # executors that it wants, and does without for that reason
    flows: tuple[FlowProgress, ...] = ()  # of a declarative pipeline, bounded
    course: Course | None = None  # of the job over all its attempts; None before the first executor or task

    @property
    def executors_wanted(self) -> int:
        """Number of executors that the job wants. With dynamic allocation it may hold more for a while."""
        if self.scaling is not None:
            return self.scaling.wanted
        return sum(requirement.count for requirement in self.requirements) + self.given_back


class RegisterJobMaster(Message, frozen=True, kw_only=True):
    """A driver's JobMaster is ready.

    Conflict: this attempt has been superseded or the job has ended, so the JobMaster must exit.

    ``in_doubt``: the JobMaster was stopped for a long time, and the reply decides whether it may commit. Therefore the
    JobManager first confirms that it is the leader.
    """

    job_id: JobId
    attempt: int
    address: str
    task_manager: TaskManagerId
    pid: int
    status: JobMasterStatus
    in_doubt: bool = False
    lineage: str = ""  # job store of the JobManagers that it follows; "": it follows any
    known_epoch: int = 0  # the highest known epoch of that job store


class JobMasterHeartbeat(Message, frozen=True, kw_only=True):
    """The status of an attempt.

    ``asks_confirmation``: the JobManager must find out whether it is certainly the leader, and say so in its reply.
    """

    job_id: JobId
    attempt: int
    status: JobMasterStatus
    lineage: str = ""  # job store of the JobManagers that it follows; "": it follows any
    known_epoch: int = 0  # the highest known epoch of that job store
    asks_confirmation: bool = False


class JobMasterReply(Message, frozen=True, kw_only=True):
    """Reply to RegisterJobMaster and JobMasterHeartbeat.

    - ``known`` False: register again.
    - ``lost``: instances of task managers that are gone.
    - ``missing``: what the cluster cannot provide now, in words; "" if all requirements are met.
    - ``missing_blocked``: the cluster could provide it if no node were blocked or had a full disk.
    - ``procedure``: what the job is asked to do, until the procedure's end is recorded.
    - ``procedure_recorded``: trigger id of the newest procedure whose end is recorded.
    - ``draining``: task managers that will stop once what they hold has moved elsewhere.
    - ``reclaim``: what the attempt is to give back for other jobs; None: nothing.
    - ``confirmed``: the JobManager is certainly the leader, and this is the job's current attempt.
    - ``lease``: seconds of silence after which the JobManager may start a newer attempt; 0: it does not say.
    - ``trace``: what the JobManager knows of the attempt's start and the status does not name. The JobMaster repeats it
      in its next statuses, so that the next leader learns it.
    """

    epoch: int
    known: bool
    heartbeat_interval: float
    lost: tuple[InstanceId, ...] = ()
    missing: str = ""
    missing_blocked: bool = False
    blocklist: Blocklist | None = None  # the whole list, unless the status already names its revision
    blocklist_lost: bool = False  # the JobManager cannot read its blocklist and asks the JobMaster for its copy
    procedure: ProcedureRequest | None = None
    procedure_recorded: str = ""
    draining: tuple[TaskManagerId, ...] = ()
    lineage: str = ""  # job store to which the epoch belongs
    trace: TraceReport | None = None
    reclaim: Reclaim | None = None
    confirmed: bool = False
    lease: float = 0.0


class AskLeader(Message, frozen=True, kw_only=True):
    """Ask any JobManager, TaskManager or JobMaster who the leader is.

    Sent by a process whose leader does not answer. In this way, a process that cannot reach ZooKeeper, or has no
    session there, learns about a new leader. ``job_id`` and ``attempt``: those of the JobMaster that is asked; "" and 0
    if another process is asked.
    """

    job_id: str = ""
    attempt: int = 0


class LeaderTold(Message, frozen=True, kw_only=True):
    """What the process knows about the leader.

    ``epoch`` 0: no leader is known. ``job_managers``: known addresses of JobManagers, most recently reported first.
    """

    epoch: int = 0
    address: str = ""
    job_managers: tuple[str, ...] = ()


# --- JobManager → JobMaster -----------------------------------------------------------------------------------------


class ReportNow(Message, frozen=True, kw_only=True):
    """Send a heartbeat at once, because its reply says something new, such as a request to stop.

    Nothing depends on it: without it, the next regular heartbeat learns the same.
    """

    job_id: JobId
    attempt: int


class ReadSparkUi(Message, frozen=True, kw_only=True):
    """Read a page of the driver's Spark UI. ``path``: from "/" on, with its query.

    ``base``: the path below which the reader sees the UI, without "/" at its end, so that its links lead there.
    ``in_pieces``: the reader takes a page that is too large for one reply in pieces. ``more``: the page whose next
    piece to read, as an earlier reply names it; ``path`` and ``base`` then mean nothing. ``abandons``: nobody reads
    that page any longer; the reply then has no body.
    """

    job_id: JobId
    attempt: int
    path: str
    base: str = ""
    in_pieces: bool = False
    more: str = ""
    abandons: bool = False


class SparkUiRead(Message, frozen=True, kw_only=True):
    """A page as Spark returned it, or a piece of it.

    ``location``: the path that it redirects to; "" if it does not redirect. ``more``: names the page if further pieces
    follow.
    """

    status: int
    content_type: str
    location: str
    body: bytes
    more: str = ""


class ReadProgress(Message, frozen=True, kw_only=True):
    """Read the progress history of the job's streaming queries. Conflict: the JobMaster leads another attempt."""

    job_id: JobId
    attempt: int
    selection: Selection


class ProgressRead(Message, frozen=True, kw_only=True):
    page: HistoryPage


class ReportOutcome(Message, frozen=True, kw_only=True):
    """The script has ended and Spark is stopped; the process exits soon. The first report of an attempt counts."""

    job_id: JobId
    attempt: int
    outcome: AttemptOutcome
    lineage: str = ""  # job store of the JobManagers that it follows
    known_epoch: int = 0  # the highest known epoch of that job store


REQUESTS: dict[str, type[Message]] = {
    kind.__name__: kind
    for kind in (
        RegisterTaskManager,
        TaskManagerHeartbeat,
        KeepLog,
        StartDriver,
        StopDriver,
        StopTaskManager,
        AllocateSlot,
        ListLogs,
        UploadLog,
        SearchLog,
        OfferSlots,
        ExecutorChanged,
        StartExecutor,
        ReleaseSlot,
        JobMasterBeat,
        ListLocalState,
        RegisterJobMaster,
        JobMasterHeartbeat,
        ReportOutcome,
        AskLeader,
        ReportNow,
        ReadSparkUi,
        ReadProgress,
    )
}
