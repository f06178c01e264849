"""What a TaskManager reports of its processes, its slots and its disk."""

from __future__ import annotations

import enum

from emberkeep.base.ids import AllocationId, ExecutorId, JobId
from emberkeep.jobs.model import AttemptOutcome
from emberkeep.protocol.messages.root import Message
from emberkeep.slots.custom.amounts import Amounts
from emberkeep.slots.model import Allocation, ProcessStart


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
