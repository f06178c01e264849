"""Messages between JobManager and TaskManagers, except those about logs."""

from __future__ import annotations

from emberkeep.base.ids import AllocationId, InstanceId, JobId, TaskManagerId
from emberkeep.jobs.checkpoints import QueryCheckpoint
from emberkeep.jobs.model import JobGraph
from emberkeep.lifecycle.model import ProcedureRequest
from emberkeep.protocol.messages.root import Message
from emberkeep.protocol.messages.task_manager_reports import TaskManagerReport
from emberkeep.slots.custom.addresses import ResourceAddresses
from emberkeep.slots.model import ResourceProfile, TaskManagerInfo


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
