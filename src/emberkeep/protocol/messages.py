"""Messages between JobManager, TaskManagers and JobMasters.

The protocol is level-triggered: heartbeats carry the whole state of the sender and are sent at once when something
changed, so a lost, repeated or late message is repaired by the next one. Each request names who sends it in which life
(epoch of the JobManager, instance of a TaskManager, attempt of a JobMaster); a receiver that knows a newer life refuses
with Conflict. Encoded as MessagePack; wrong types are refused.

Neighbouring releases talk to each other while a cluster is upgraded (``base.compatible``): unknown fields are ignored,
a new field has a default that means what the release before did, and PROTOCOL_VERSION changes only when that does not
do.
"""

from __future__ import annotations

import enum

from emberkeep.base.compatible import Compatible
from emberkeep.base.ids import AllocationId, ExecutorId, InstanceId, JobId, TaskManagerId
from emberkeep.blocklist.model import Blocklist, Report
from emberkeep.jobs.checkpoints import QueryCheckpoint
from emberkeep.jobs.model import Artefact, AttemptOutcome, ExceptionEntry, JobGraph
from emberkeep.lifecycle.model import ProcedureProgress, ProcedureRequest
from emberkeep.local_state.model import Holding
from emberkeep.slots.model import Allocation, ResourceProfile, SlotRequirement, TaskManagerInfo

PROTOCOL_VERSION = 1


class Message(Compatible, frozen=True, kw_only=True):
    """Root of all messages."""


class Ack(Message, frozen=True, kw_only=True):
    """Done (or was done before)."""


# --- what processes look like ---------------------------------------------------------------------------------------


class ProcessState(enum.Enum):
    STARTING = "STARTING"  # artefacts are fetched, the process is being started
    RUNNING = "RUNNING"
    EXITED = "EXITED"


class DriverReport(Message, frozen=True, kw_only=True):
    """A driver as its TaskManager sees it. EXITED ones stay in the report until the JobManager acknowledges them."""

    job_id: JobId
    attempt: int
    state: ProcessState
    pid: int = 0
    memory_mb: int = 0  # reserved
    outcome: AttemptOutcome | None = None  # with EXITED


class ExecutorReport(Message, frozen=True, kw_only=True):
    """An executor as its TaskManager sees it, by the allocation that it lives in."""

    allocation_id: AllocationId
    executor_id: ExecutorId
    state: ProcessState
    pid: int = 0
    exit_code: int | None = None  # negative: minus the signal
    detail: str = ""  # last lines of its log when it failed


class BlobCacheReport(Message, frozen=True, kw_only=True):
    """What a TaskManager's BLOB cache holds now and has done since its process started."""

    blobs: int = 0
    hits: int = 0  # in the local store
    shared: int = 0  # another job had the same content
    ha_hits: int = 0  # copied from the HA store
    downloads: int = 0  # from the BLOB server or a peer
    received_bytes: int = 0  # of both
    failures: int = 0  # retrievals that failed
    verify_failures: int = 0  # copies, here or received, whose bytes were wrong
    served: int = 0  # to peers
    deleted: int = 0  # by clean-up
    cleanup_runs: int = 0


class LocalStateReport(Message, frozen=True, kw_only=True):
    """What a node's disk holds of one job's state. Slots and driver of the job's next attempt are placed there."""

    job_id: JobId
    files: int
    size: int  # bytes
    allocations: tuple[AllocationId, ...] = ()  # for which it is kept, ended ones included


class StateGatewayReport(Message, frozen=True, kw_only=True):
    """What a TaskManager's state gateway holds now and has done since its process started."""

    copies: int = 0  # state files with a copy on the node's disk
    used_bytes: int = 0  # that they take there
    hits: int = 0  # files opened that were read from the local copy, at least in part
    misses: int = 0  # files opened that were read from the durable store
    local_read_bytes: int = 0
    remote_read_bytes: int = 0
    written_bytes: int = 0  # to the durable store
    kept_bytes: int = 0  # of these, with a local copy
    verify_failures: int = 0  # local copies whose bytes were wrong
    stale: int = 0  # local copies of a file that was replaced elsewhere
    disk_failures: int = 0  # times that the disk refused a local copy, or a note of a rename
    evictions: int = 0  # local copies dropped for the quota
    purged: int = 0  # local copies dropped as their durable file was gone
    fenced: int = 0  # requests of attempts that are over


class TaskManagerReport(Message, frozen=True, kw_only=True):
    """Everything a TaskManager holds. ``sequence`` grows within an instance, so that late reports are dropped.
    ``leaving``: it is shutting down and takes nothing new; once nothing is in its report it is gone. ``draining``: what
    it holds is to go elsewhere first, as far as there is room.
    ``local_state``: the jobs with the most of it, at most LOCAL_STATE_JOBS, one entry each. ``left``: jobs that hold
    nothing here any more and of which something is kept; LEFT_JOBS at most, of more in turn."""

    sequence: int
    allocations: tuple[Allocation, ...]
    drivers: tuple[DriverReport, ...]
    leaving: bool = False
    disk_free_mb: int = 0
    memory_used_mb: int = 0
    cpu_percent: float = 0.0
    blobs: BlobCacheReport | None = None
    adopted: int = 0  # processes that this life has taken over from the one before it
    local_state: tuple[LocalStateReport, ...] = ()
    state_gateway: StateGatewayReport | None = None  # where there is one
    left: tuple[JobId, ...] = ()
    draining: bool = False


# --- TaskManager → JobManager ---------------------------------------------------------------------------------------


class AttemptKey(Message, frozen=True, kw_only=True):
    job_id: JobId
    attempt: int


class RegisterTaskManager(Message, frozen=True, kw_only=True):
    """First message of an instance; answered by TaskManagerRegistered. A second instance under the same id replaces the
    first only when the first is lost or has the same address; else Conflict (two processes with one id). ``attempts``:
    the newest ones that it has heard of, of the jobs that it has heard of last, at most SEEN_JOBS."""

    info: TaskManagerInfo
    report: TaskManagerReport
    attempts: tuple[AttemptKey, ...] = ()
    lineage: str = ""  # of the job store that its JobManagers have led with; "": it follows any
    epoch: int = 0  # highest one that it has heard of in that job store


class TaskManagerRegistered(Message, frozen=True, kw_only=True):
    epoch: int
    heartbeat_interval: float  # seconds
    lineage: str = ""  # of the job store that the epoch counts in


class TaskManagerHeartbeat(Message, frozen=True, kw_only=True):
    id: TaskManagerId
    instance: InstanceId
    report: TaskManagerReport
    lineage: str = ""  # of the job store that its JobManagers have led with; "": it follows any
    epoch: int = 0  # highest one that it has heard of in that job store


class TaskManagerHeartbeatReply(Message, frozen=True, kw_only=True):
    """``known`` False: register again. ``acknowledged``: exited drivers that need not be reported again: what follows
    from their ends is stored. ``stale``: attempts (and all older ones of the job) that are over: free their slots and
    end their drivers; how these ended is reported until it is acknowledged.
    ``ended``: of the jobs that the report names as left those that have ended: nothing of them needs to be kept."""

    epoch: int
    known: bool
    acknowledged: tuple[AttemptKey, ...] = ()
    stale: tuple[AttemptKey, ...] = ()
    ended: tuple[JobId, ...] = ()
    lineage: str = ""  # of the job store that the epoch counts in


# --- JobManager → TaskManager ---------------------------------------------------------------------------------------


class StartDriver(Message, frozen=True, kw_only=True):
    """Start the driver of an attempt. Idempotent per (job, attempt); Conflict when a newer attempt is known."""

    epoch: int
    graph: JobGraph
    attempt: int
    memory_mb: int  # reserved on the task manager: heap and overhead
    job_manager: str  # address to fetch artefacts from and to register at
    checkpoint_root: str  # where queries without an own checkpoint location keep theirs
    checkpoints_recorded: bool = False  # checkpoint_root carries an ownership record, wherever it is there
    checkpoints: tuple[QueryCheckpoint, ...] = ()  # what earlier attempts have committed, for a check of the storage
    procedure: ProcedureRequest | None = None  # begun by an earlier attempt, perhaps: to be carried on
    lineage: str = ""  # of the job store that the epoch counts in


class StopDriver(Message, frozen=True, kw_only=True):
    """End the driver of this attempt: SIGTERM, after ``grace`` seconds SIGKILL for its whole session."""

    epoch: int
    job_id: JobId
    attempt: int
    grace: float
    lineage: str = ""  # of the job store that the epoch counts in


class StopTaskManager(Message, frozen=True, kw_only=True):
    """End for good: take nothing new, let what is there go elsewhere or end by itself for ``drain`` seconds, then end
    drivers and executors, give everything back and clean up. Ack: it has begun. The newest request's ``drain`` counts.
    ``instance``: the life that is meant; Conflict in any other, so that a late message ends nobody else."""

    epoch: int
    instance: InstanceId
    drain: float
    lineage: str = ""  # of the job store that the epoch counts in


class AllocateSlot(Message, frozen=True, kw_only=True):
    """Reserve a slot for a job and offer it to its JobMaster. Conflict when the resources are not free."""

    epoch: int
    allocation_id: AllocationId
    job_id: JobId
    attempt: int
    profile: ResourceProfile
    job_master: str
    lineage: str = ""  # of the job store that the epoch counts in


class ListLogs(Message, frozen=True, kw_only=True):
    """Which logs there are: of one job, or with None all, the TaskManager's own among them."""

    job_id: JobId | None


class LogView(Message, frozen=True, kw_only=True):
    """One log as ``protocol.rest.LogInfo`` shows it. ``complete``: nothing will be added any more."""

    name: str  # its id on this TaskManager
    size: int  # bytes
    mtime: int  # ms since 1970
    kind: str
    complete: bool
    job_id: str = ""  # "" when it belongs to no job, as what follows
    attempt: int = 0
    executor_id: str = ""


class LogsListed(Message, frozen=True, kw_only=True):
    logs: tuple[LogView, ...]


class UploadLog(Message, frozen=True, kw_only=True):
    """Store a piece of a log as a transient BLOB at the BLOB server. Who asks gives its reference back once it has read
    it; what was not given back ends when the log is asked for again, some time later. Absent: there is no such log, or
    it belongs to another job than ``job_id``."""

    log_id: str
    offset: int  # bytes; negative: before the end
    limit: int  # bytes
    wait: float  # seconds for which it waits while there is nothing after ``offset``
    from_start: bool  # where ``offset`` is beyond the end, the log was replaced: its first bytes are meant
    job_id: JobId | None = None


class LogUploaded(Message, frozen=True, kw_only=True):
    """The piece begins at ``offset``; it is empty, and no BLOB, when ``key`` is "". ``size``: bytes of the log now.
    ``complete``: the piece reaches the log's end, and nothing will be added."""

    offset: int
    size: int
    complete: bool
    owner: JobId
    key: str = ""
    holder: str = ""


# --- TaskManager → JobMaster ----------------------------------------------------------------------------------------


class OfferSlots(Message, frozen=True, kw_only=True):
    """Offered until answered, for at most ``taskmanager.slot.timeout``; what is not accepted is freed.

    A restarted task manager offers what it has recovered again, with the executors that it has adopted or that ended
    while it was away; an allocation without an executor here holds none.
    """

    job_id: JobId
    attempt: int
    task_manager: TaskManagerInfo
    slots: tuple[Allocation, ...]
    executors: tuple[ExecutorReport, ...] = ()


class OfferSlotsReply(Message, frozen=True, kw_only=True, omit_defaults=True):
    """``later``: not accepted only because the pause before a replacement is not over yet. The job has no use for the
    others any more, nor for what is kept for them."""

    accepted: tuple[AllocationId, ...]
    later: tuple[AllocationId, ...] = ()


class ExecutorChanged(Message, frozen=True, kw_only=True):
    """An executor started to run or ended. Repeated in each SlotsReply, so a loss of this one only costs time."""

    job_id: JobId
    attempt: int
    task_manager: TaskManagerId
    executor: ExecutorReport


# --- JobMaster → TaskManager ----------------------------------------------------------------------------------------


class StartExecutor(Message, frozen=True, kw_only=True):
    """Start Spark's executor in an accepted slot. Idempotent per (allocation, executor id)."""

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
    artefacts: tuple[Artefact, ...] = ()  # bound to the executor by its own node's BLOB cache
    python: str = ""  # what the application starts Python workers with, such as ./environment/bin/python
    jars_first: bool = False  # the artefacts' jars win over Spark's own


class ReleaseSlot(Message, frozen=True, kw_only=True):
    """Give a slot back: its executor is ended at once. Unknown allocations are already released: Ack. ``stopped``: the
    application has, so that the node keeps what it holds of the job's state; else the job goes on, and needs it no
    more."""

    job_id: JobId
    attempt: int
    allocation_id: AllocationId
    stopped: bool = False


class JobMasterBeat(Message, frozen=True, kw_only=True):
    """The allocations that the JobMaster holds on this TaskManager: others of this attempt, once offered and answered,
    are freed. Silence for ``heartbeat.timeout`` (and no driver of the attempt alive here) frees them all.
    ``decommissioned``: those of them whose executors are to hand over their blocks and end by themselves."""

    job_id: JobId
    attempt: int
    allocations: tuple[AllocationId, ...]
    decommissioned: tuple[AllocationId, ...] = ()


class SlotsReply(Message, frozen=True, kw_only=True):
    """What the TaskManager holds for that attempt; a held allocation that is missing here is lost."""

    instance: InstanceId
    allocations: tuple[AllocationId, ...]
    executors: tuple[ExecutorReport, ...]


class ListLocalState(Message, frozen=True, kw_only=True):
    """What the TaskManager's disk holds of the job's state, so that tasks can be placed where it lies. Answered by
    LocalStateListed, an empty one where it keeps none. Conflict: a newer attempt is known."""

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
    watermark: str  # "" when the query has none
    status: str
    checkpoint_location: str


class Departure(Message, frozen=True, kw_only=True):
    """How far an executor is that leaves. ``begun`` False: it waits for another one that can take its blocks. Blocks:
    how many still lie there, as Spark's driver knows; -1: not known. ``at_least``: there are more map outputs than were
    looked at."""

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
    registered: bool  # with Spark
    cores: int
    heap_mb: int
    pid: int = 0
    away: bool = False  # its task manager is silent; Spark says that it lives
    departure: Departure | None = None  # it leaves, and does not count as one of those wanted
    outgoing: bool = False  # its place is blocked: likewise, but it stays until it has nothing left to do
    cordoned: bool = False  # it takes no new task, as another one is there in its place


class JobMasterStatus(Message, frozen=True, kw_only=True):
    """Everything a JobMaster tells about its attempt. ``waiting`` says in words what is missing, if anything."""

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
    blocklist_revision: int = -1  # of the list that it acts by; -1: it was told none
    blocklist: Blocklist | None = None  # that list, where the JobManager cannot read its own
    blocklist_epoch: int = 0  # of the leader that told it
    block_reports: tuple[Report, ...] = ()  # what it wants in the list and has not found answered there, bounded
    checkpoints: tuple[QueryCheckpoint, ...] = ()  # newest commit of each streaming query of this attempt, bounded
    procedure: ProcedureProgress | None = None  # the one that it was asked for last, until another one comes
    functions: tuple[str, ...] = ()  # names of user functions that may have state, bounded


class RegisterJobMaster(Message, frozen=True, kw_only=True):
    """A driver's JobMaster is up. Conflict: this attempt has been superseded or the job has ended: end yourself.

    ``in_doubt``: it was stopped for long, and the answer decides whether it may commit: the JobManager first confirms
    that it leads."""

    job_id: JobId
    attempt: int
    address: str
    task_manager: TaskManagerId
    pid: int
    status: JobMasterStatus
    in_doubt: bool = False
    lineage: str = ""  # of the job store that its JobManagers have led with; "": it follows any
    epoch: int = 0  # highest one that it has heard of in that job store


class JobMasterHeartbeat(Message, frozen=True, kw_only=True):
    job_id: JobId
    attempt: int
    status: JobMasterStatus
    lineage: str = ""  # of the job store that its JobManagers have led with; "": it follows any
    epoch: int = 0  # highest one that it has heard of in that job store


class JobMasterReply(Message, frozen=True, kw_only=True):
    """Answer to both. ``known`` False: register again. ``lost``: instances of task managers that are gone.
    ``missing``: what the cluster cannot give at present, in words, "" when all is met; ``missing_blocked``: it
    may, once nodes are not blocked any more. ``procedure``: what the job is asked to do, until its end is recorded.
    ``procedure_recorded``: trigger id of the newest whose end is. ``draining``: task managers that are to end once what
    they hold has gone elsewhere."""

    epoch: int
    known: bool
    heartbeat_interval: float
    lost: tuple[InstanceId, ...] = ()
    missing: str = ""
    missing_blocked: bool = False
    blocklist: Blocklist | None = None  # the whole list, unless the status names its revision
    blocklist_lost: bool = False  # the JobManager cannot read its list: it wants to be told the one known here
    procedure: ProcedureRequest | None = None
    procedure_recorded: str = ""
    draining: tuple[TaskManagerId, ...] = ()
    lineage: str = ""  # of the job store that the epoch counts in


class AskLeader(Message, frozen=True, kw_only=True):
    """To any JobManager, TaskManager or JobMaster, from one whose leader does not answer: who leads, as far as known?
    What cannot reach ZooKeeper, or has no session there, learns it so."""


class LeaderTold(Message, frozen=True, kw_only=True):
    """What is known. ``epoch`` 0: no leader. ``job_managers``: where JobManagers were heard of, newest first."""

    epoch: int = 0
    address: str = ""
    job_managers: tuple[str, ...] = ()


class ReportOutcome(Message, frozen=True, kw_only=True):
    """The script has ended and Spark is stopped; the process exits next. The first report of an attempt counts."""

    job_id: JobId
    attempt: int
    outcome: AttemptOutcome
    lineage: str = ""  # of the job store that its JobManagers have led with
    epoch: int = 0  # highest one that it has heard of in that job store


REQUESTS: dict[str, type[Message]] = {
    kind.__name__: kind
    for kind in (
        RegisterTaskManager,
        TaskManagerHeartbeat,
        StartDriver,
        StopDriver,
        StopTaskManager,
        AllocateSlot,
        ListLogs,
        UploadLog,
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
    )
}
