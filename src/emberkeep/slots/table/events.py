"""The events that happen to a task manager's slots and driver places, and the effects to carry out."""

from __future__ import annotations

from dataclasses import dataclass

from emberkeep.base.ids import AllocationId, ExecutorId, JobId
from emberkeep.slots.model import Allocation, ResourceProfile

# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EpochSeen:
    """A request of a JobManager has arrived. Raises Conflict unless that JobManager is the newest."""

    epoch: int
    lineage: str = ""


@dataclass(frozen=True)
class StoreFollowed:
    """A JobManager has sent a request, whose job store this task manager follows from now on.

    Only epochs of that store count.
    """

    epoch: int
    lineage: str


@dataclass(frozen=True)
class ReserveSlot:
    """Reserve a slot. Raises Conflict: superseded attempt, late order, shutdown, or not enough free resources."""

    allocation_id: AllocationId
    job_id: JobId
    attempt: int
    profile: ResourceProfile
    job_master: str


@dataclass(frozen=True)
class OfferAnswered:
    """The JobMaster took ``accepted`` out of ``offered``.

    It, or the job's next attempt, may need the state of ``later``. The job has no use for the others, nor for their
    state.
    """

    offered: tuple[AllocationId, ...]
    accepted: tuple[AllocationId, ...]
    later: tuple[AllocationId, ...] = ()


@dataclass(frozen=True)
class OfferRefused:
    """The process at the JobMaster's address will never accept any of ``offered``: the attempt no longer runs there."""

    offered: tuple[AllocationId, ...]


@dataclass(frozen=True)
class StartWanted:
    """The JobMaster requests an executor in its slot: the first, or one with a new id after the previous one has ended.

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
    """The executor ended, or could not be started (``exit_code`` None)."""

    allocation_id: AllocationId
    executor_id: ExecutorId
    exit_code: int | None
    detail: str


@dataclass(frozen=True)
class SlotReleased:
    """The JobMaster returns a slot.

    ``stopped``: the application has stopped and returns all slots. Otherwise the job continues without this slot.
    """

    job_id: JobId
    attempt: int
    allocation_id: AllocationId
    stopped: bool = False


@dataclass(frozen=True)
class JobMasterHeard:
    """A beat of the JobMaster: it holds these allocations.

    Executors in ``decommissioned`` must hand over what they keep and end. Raises Conflict for a superseded attempt,
    RetryLater while the attempt's recovered slots are on offer.
    """

    job_id: JobId
    attempt: int
    allocations: tuple[AllocationId, ...]
    decommissioned: tuple[AllocationId, ...] = ()


@dataclass(frozen=True)
class ReserveDriver:
    """Reserve a driver place. Raises Conflict: superseded attempt, shutdown, or no driver place or memory free."""

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
    """The driver ended, or could not be started."""

    job_id: JobId
    attempt: int


@dataclass(frozen=True)
class StopWanted:
    """The JobManager asks this attempt to end within ``grace`` seconds.

    If the attempt is not here, it will not start here later either.
    """

    job_id: JobId
    attempt: int
    grace: float


@dataclass(frozen=True)
class DriverAcknowledged:
    job_id: JobId
    attempt: int


@dataclass(frozen=True)
class AttemptsOver:
    """This attempt of the job and all older ones have ended."""

    job_id: JobId
    attempt: int


@dataclass(frozen=True)
class JobsEnded:
    """These jobs have ended: forget those that hold nothing here."""

    job_ids: tuple[JobId, ...]


@dataclass(frozen=True)
class StopLapsed:
    """A process did not end within its time limit."""

    job_id: JobId
    attempt: int
    allocation_id: AllocationId | None  # None: the driver


@dataclass(frozen=True)
class Drain:
    """The task manager will end: accept nothing new, let running work continue.

    ``moves``: True if running work moves elsewhere.
    """

    moves: bool


@dataclass(frozen=True)
class Close:
    """The task manager ends: accept nothing new, and give drivers ``grace`` seconds.

    Release at once the slots of attempts whose driver does not run here.
    """

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
    """The slot is free again and nothing of its executor remains.

    ``may_return``: True if a later executor or attempt of the job may need the local state of this slot. That is so if
    the executor ended by itself, the attempt has ended, or the slot was never accepted (unless its job has no use for
    it). False if a job that continues returned the slot, or no JobMaster claimed a recovered slot.
    """

    allocation: Allocation
    may_return: bool


@dataclass(frozen=True)
class LaunchExecutor:
    allocation_id: AllocationId
    executor_id: ExecutorId


@dataclass(frozen=True)
class EndExecutor:
    """End the executor at once."""

    job_id: JobId
    attempt: int
    allocation_id: AllocationId
    executor_id: ExecutorId


@dataclass(frozen=True)
class DecommissionExecutor:
    """Ask the executor to hand over its blocks and end. The task manager's next instance asks again."""

    job_id: JobId
    attempt: int
    allocation_id: AllocationId
    executor_id: ExecutorId


@dataclass(frozen=True)
class TellJobMaster:
    """Report to the JobMaster that this slot's executor started to run or ended."""

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
    """Delete the job's files, because it holds nothing here, and has ended or has held nothing here for a long time."""

    job_id: JobId


@dataclass(frozen=True)
class ReportChanged:
    """The report to the JobManager has changed."""


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
