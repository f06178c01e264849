"""What happens to a task manager's slots and driver places, and what has to be done about it (see ``slot_table``)."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from emberkeep.base.ids import AllocationId, ExecutorId, JobId
from emberkeep.slots.model import Allocation, ResourceProfile


class SlotState(enum.Enum):
    """The life of one allocation. Its end is its absence from the table."""

    OFFERED = "OFFERED"  # reserved; the JobMaster has not accepted it yet
    ACTIVE = "ACTIVE"  # accepted; no executor yet
    STARTING = "STARTING"  # its executor is being started
    RUNNING = "RUNNING"
    EXITED = "EXITED"  # its executor has ended; the JobMaster has not released it yet
    RELEASING = "RELEASING"  # given back; its executor is being ended


class DriverState(enum.Enum):
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    EXITED = "EXITED"  # uses nothing; stays until the JobManager has taken note


@dataclass
class Slot:
    """One allocation and the one executor that lives in it."""

    allocation: Allocation
    state: SlotState
    claim_until: float | None  # until then its JobMaster has to accept it, or names it in a beat; None: it has
    executor_id: ExecutorId | None = None
    former: tuple[ExecutorId, ...] = ()  # executors that lived here before and have ended
    pid: int = 0
    exit_code: int | None = None
    detail: str = ""
    missed_beats: int = 0  # beats of the JobMaster in a row that did not name this slot
    decommissioned: bool = False  # its executor was told, by this life, to hand over what it keeps and end
    attempt_ends: bool = False  # it is given back as its attempt ends, as far as anybody knows


@dataclass
class DriverPlace:
    job_id: JobId
    attempt: int
    memory_mb: int  # reserved; 0 once it has ended
    state: DriverState
    pid: int = 0
    stop_grace: float | None = None  # asked to end, with this much time


# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EpochSeen:
    """A JobManager has spoken. Raises Conflict when it is not the newest."""

    epoch: int
    lineage: str = ""


@dataclass(frozen=True)
class StoreFollowed:
    """A JobManager whose job store is followed from now on has spoken: epochs count in that."""

    epoch: int
    lineage: str


@dataclass(frozen=True)
class ReserveSlot:
    """Raises Conflict: superseded attempt, or not enough free resources."""

    allocation_id: AllocationId
    job_id: JobId
    attempt: int
    profile: ResourceProfile
    job_master: str


@dataclass(frozen=True)
class OfferAnswered:
    """The JobMaster took ``accepted`` out of ``offered``. It may want ``later`` after a pause, and has no use for the
    others, nor for their state."""

    offered: tuple[AllocationId, ...]
    accepted: tuple[AllocationId, ...]
    later: tuple[AllocationId, ...] = ()


@dataclass(frozen=True)
class OfferRefused:
    """Who answers for the JobMaster takes none of ``offered``, now or later: the attempt is led there no more."""

    offered: tuple[AllocationId, ...]


@dataclass(frozen=True)
class StartWanted:
    """The JobMaster wants an executor in its slot: the first one, or one with a new id after the last one has ended.

    Raises Absent (no such slot), Conflict.
    """

    job_id: JobId
    attempt: int
    allocation_id: AllocationId
    executor_id: ExecutorId


@dataclass(frozen=True)
class ExecutorStarted:
    allocation_id: AllocationId
    executor_id: ExecutorId
    pid: int


@dataclass(frozen=True)
class ExecutorEnded:
    """It ended, or could not be started (``exit_code`` None)."""

    allocation_id: AllocationId
    executor_id: ExecutorId
    exit_code: int | None
    detail: str


@dataclass(frozen=True)
class SlotReleased:
    """``stopped``: the application has, and the slot goes back with all others; else the job goes on without it."""

    job_id: JobId
    attempt: int
    allocation_id: AllocationId
    stopped: bool = False


@dataclass(frozen=True)
class JobMasterHeard:
    """A beat: the JobMaster holds these; the executors of ``decommissioned`` are to hand over what they keep and end.
    Raises Conflict for a superseded attempt; RetryLater while recovered slots of it are being offered again."""

    job_id: JobId
    attempt: int
    allocations: tuple[AllocationId, ...]
    decommissioned: tuple[AllocationId, ...] = ()


@dataclass(frozen=True)
class ReserveDriver:
    """Raises Conflict: superseded attempt, or no driver place or memory free."""

    job_id: JobId
    attempt: int
    memory_mb: int


@dataclass(frozen=True)
class DriverStarted:
    job_id: JobId
    attempt: int
    pid: int


@dataclass(frozen=True)
class DriverEnded:
    """It ended, or could not be started."""

    job_id: JobId
    attempt: int


@dataclass(frozen=True)
class StopWanted:
    """The JobManager wants this attempt to end; one that is not here will not start here either."""

    job_id: JobId
    attempt: int
    grace: float


@dataclass(frozen=True)
class DriverAcknowledged:
    job_id: JobId
    attempt: int


@dataclass(frozen=True)
class AttemptsOver:
    """This attempt of the job and all older ones are over."""

    job_id: JobId
    attempt: int


@dataclass(frozen=True)
class JobsEnded:
    """These jobs have ended: what is kept of those that hold nothing here can go."""

    job_ids: tuple[JobId, ...]


@dataclass(frozen=True)
class StopLapsed:
    """A process did not end in the time that was given to ending it."""

    job_id: JobId
    attempt: int
    allocation_id: AllocationId | None  # None: the driver


@dataclass(frozen=True)
class Drain:
    """The task manager is to end: nothing new is taken, what is here goes on. ``moves``: it is to go elsewhere."""

    moves: bool


@dataclass(frozen=True)
class Close:
    """The task manager ends: nothing new is taken, drivers get ``grace`` seconds, other slots end at once."""

    grace: float


@dataclass(frozen=True)
class Tick:
    """Time has passed."""


TableEvent = (
    EpochSeen
    | StoreFollowed
    | ReserveSlot
    | OfferAnswered
    | OfferRefused
    | StartWanted
    | ExecutorStarted
    | ExecutorEnded
    | SlotReleased
    | JobMasterHeard
    | ReserveDriver
    | DriverStarted
    | DriverEnded
    | StopWanted
    | DriverAcknowledged
    | AttemptsOver
    | JobsEnded
    | StopLapsed
    | Drain
    | Close
    | Tick
)

# --- effects ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SlotBegun:
    """A slot was reserved."""

    allocation: Allocation


@dataclass(frozen=True)
class SlotFreed:
    """The slot is free again and nothing is left of its executor. ``may_return``: what follows may come back to this
    node for what was kept here, as the executor in an accepted slot or the whole attempt has ended, or the job wants
    the slot only later. False: a job that goes on has given it back, or nobody has claimed it."""

    allocation: Allocation
    may_return: bool


@dataclass(frozen=True)
class LaunchExecutor:
    allocation_id: AllocationId
    executor_id: ExecutorId


@dataclass(frozen=True)
class EndExecutor:
    """End it at once."""

    job_id: JobId
    attempt: int
    allocation_id: AllocationId
    executor_id: ExecutorId


@dataclass(frozen=True)
class DecommissionExecutor:
    """Have it hand over what it keeps and end by itself. Said again by the next life of this task manager."""

    job_id: JobId
    attempt: int
    allocation_id: AllocationId
    executor_id: ExecutorId


@dataclass(frozen=True)
class TellJobMaster:
    """The executor of this slot started to run or ended."""

    allocation_id: AllocationId


@dataclass(frozen=True)
class LaunchDriver:
    job_id: JobId
    attempt: int


@dataclass(frozen=True)
class EndDriver:
    job_id: JobId
    attempt: int
    grace: float


@dataclass(frozen=True)
class ForgetJob:
    """The job holds nothing here, and has ended or not been here for long: its files can go."""

    job_id: JobId


@dataclass(frozen=True)
class ReportChanged:
    """What the JobManager is told has changed."""


TableEffect = (
    SlotBegun
    | SlotFreed
    | LaunchExecutor
    | EndExecutor
    | DecommissionExecutor
    | TellJobMaster
    | LaunchDriver
    | EndDriver
    | ForgetJob
    | ReportChanged
)
