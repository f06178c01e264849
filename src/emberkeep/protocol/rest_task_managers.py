"""REST bodies about task managers."""

from __future__ import annotations

import enum

from msgspec import field

from emberkeep.base.ids import JobId, TaskManagerId
from emberkeep.protocol.messages.task_manager_reports import ProcessState
from emberkeep.protocol.rest import Camel, Duration, Kebab, Millis


class Resources(Camel, frozen=True, kw_only=True):
    """Memory in MiB. ``taskHeapMemory`` (Flink's name) is heap and overhead of drivers and executors together."""

    cpu_cores: float
    task_heap_memory: int
    task_off_heap_memory: int = 0
    managed_memory: int = 0
    network_memory: int = 0
    extended_resources: dict[str, float] = field(default_factory=dict)


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
    standby_bytes: int = 0  # copied from the durable store for reserved standbys


class EvacuationInfo(Kebab, frozen=True, kw_only=True):
    """What still runs on an evacuated task manager.

    ``executors-waiting``: those of ``executors`` whose blocks no other executor can take over. ``shuffle-blocks`` and
    ``cached-blocks``: how many map outputs of shuffles and cached RDD blocks are not handed over yet.
    ``at-least``: there may be more that were not counted. ``drivers-staying``: drivers that stay until their jobs end.
    ``left``: executors and drivers that hold a slot or a place there now. ``total``: the most that did since the
    evacuation began, or since this JobManager leads.
    """

    executors: int
    executors_waiting: int
    shuffle_blocks: int
    cached_blocks: int
    at_least: bool
    drivers_moving: int
    drivers_staying: int
    left: int = 0
    total: int = 0


class StandbyCounters(Kebab, frozen=True, kw_only=True):
    """How many standby processes are ready, and how many the task manager keeps when all are."""

    drivers: int
    drivers_kept: int
    executors: int
    executors_kept: int


class SlotsKept(Kebab, frozen=True, kw_only=True):
    """Slots that are kept for the next attempt of a job that restarts. They are not free, and nobody holds them."""

    jid: JobId
    slots: int


class TaskManagerExtension(Kebab, frozen=True, kw_only=True):
    """Emberkeep's own fields of a task manager.

    ``adopted``: drivers and executors that this process has taken over from the previous one. ``state-gateway``: null
    if ``state.backend.local-recovery`` is off. ``evacuation``: null if nothing has to leave. ``standbys``: null if it
    keeps no standby processes.
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
    standbys: StandbyCounters | None = None
    version: str = ""  # of Emberkeep; "" if its release does not report it
    disk_total_mb: int = 0  # 0 if its release does not report it, as the next one
    memory_total_mb: int = 0
    disk_full: bool = False  # nothing new is placed there until its disk has room
    cgroups: str = ""  # what control groups bound there, or why nothing; "" if its release does not report it
    slots_kept: list[SlotsKept] = field(default_factory=list)


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
    addresses: dict[str, list[str]] = field(default_factory=dict)  # of custom resources, by name


class TaskManagerDetails(TaskManagerSummary, frozen=True, kw_only=True):
    allocated_slots: list[SlotInfo]


class UsageSample(Kebab, frozen=True, kw_only=True):
    """One interval, which begins at ``time``.

    ``cpu-percent``: the mean of the interval. The rest is the newest value in it; in an earlier sample, the most memory
    and slots in use, and the least of the disk free.
    """

    time: Millis
    cpu_percent: float
    memory_used_mb: int
    disk_free_mb: int
    slots: int
    slots_taken: int


class UsageInfo(Kebab, frozen=True, kw_only=True):
    """How busy a task manager's machine has been.

    - ``since``: from when on the JobManager that leads now knows it; null before the first heartbeat.
    - ``interval``: the length of a sample's interval.
    - ``memory-total-mb``: of the machine. ``disk-total-mb``: of the disk with the working directory. 0 if unknown.
    - ``samples``: at most 360, oldest first. An interval without a heartbeat has none. The newest sample changes until
      its interval ends.
    - ``earlier``: what is older than ``samples``, oldest first: at most 277, one for each ``earlier-interval``. The
      newest of them may be of a part of its interval only, which ``samples`` continue.
    """

    since: Millis | None
    interval: Duration
    memory_total_mb: int
    disk_total_mb: int
    samples: list[UsageSample]
    earlier_interval: Duration
    earlier: list[UsageSample]


class SlotSample(Kebab, frozen=True, kw_only=True):
    """One interval, which begins at ``time``: the newest numbers in it; in an earlier sample, the most slots taken."""

    time: Millis
    slots: int
    slots_taken: int


class SlotHistory(Kebab, frozen=True, kw_only=True):
    """How many slots the cluster has had, and how many of them were taken. Its fields are those of UsageInfo."""

    since: Millis | None
    interval: Duration
    samples: list[SlotSample]
    earlier_interval: Duration
    earlier: list[SlotSample]
