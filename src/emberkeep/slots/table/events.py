"""The events that happen to a task manager's slots and driver places, and the effects to carry out."""

from __future__ import annotations

import msgspec

from emberkeep.base.ids import AllocationId, ExecutorId, JobId
from emberkeep.slots.custom.amounts import Amounts
from emberkeep.slots.model import Allocation, ProcessStart, ResourceProfile

# --- events -----------------------------------------------------------------------------------------------------------


class EpochSeen(msgspec.Struct, frozen=True):
    """A request of a JobManager has arrived. Raises Conflict unless that JobManager is the newest."""

    epoch: int
    lineage: str = ""


class StoreFollowed(msgspec.Struct, frozen=True):
    """A request has come from a JobManager whose job store this task manager follows from now on.

    Only epochs of that store count.
    """

    epoch: int
    lineage: str


class ReserveSlot(msgspec.Struct, frozen=True):
    """Reserve a slot. Raises Conflict: superseded attempt, late order, shutdown, or not enough free resources."""

    allocation_id: AllocationId
    job_id: JobId
    attempt: int
    profile: ResourceProfile
    job_master: str


class OfferAnswered(msgspec.Struct, frozen=True):
    """The JobMaster took ``accepted`` out of ``offered``.

    The JobMaster, or the job's next attempt, may need the state of the slots in ``later``. The job has no use for the
    other slots, or for their state.
    """

    offered: tuple[AllocationId, ...]
    accepted: tuple[AllocationId, ...]
    later: tuple[AllocationId, ...] = ()


class OfferRefused(msgspec.Struct, frozen=True):
    """The process at the JobMaster's address will never accept any of ``offered``: the attempt no longer runs there."""

    offered: tuple[AllocationId, ...]


class StartWanted(msgspec.Struct, frozen=True):
    """The JobMaster requests an executor in its slot: the first, or one with a new id after the previous one has ended.

    Raises Absent (no such slot), Conflict.
    """

    job_id: JobId
    attempt: int
    allocation_id: AllocationId
    executor_id: ExecutorId


class ExecutorStarted(msgspec.Struct, frozen=True):
    """The executor has its process. ``start``: None if an earlier task manager process started it."""

    allocation_id: AllocationId
    executor_id: ExecutorId
    pid: int
    start: ProcessStart | None = None
    why_cold: str = ""


class ExecutorEnded(msgspec.Struct, frozen=True):
    """The executor ended, or could not be started (``exit_code`` None)."""

    allocation_id: AllocationId
    executor_id: ExecutorId
    exit_code: int | None
    detail: str


class SlotReleased(msgspec.Struct, frozen=True):
    """The JobMaster returns a slot.

    ``stopped``: the application has stopped and returns all slots. Otherwise the job continues without this slot.
    """

    job_id: JobId
    attempt: int
    allocation_id: AllocationId
    stopped: bool = False


class JobMasterHeard(msgspec.Struct, frozen=True):
    """A heartbeat from the JobMaster, which holds these allocations.

    Executors in ``decommissioned`` must hand over what they keep and end. Raises Conflict for a superseded attempt,
    RetryLater while the attempt's recovered slots are on offer.
    """

    job_id: JobId
    attempt: int
    allocations: tuple[AllocationId, ...]
    decommissioned: tuple[AllocationId, ...] = ()


class ReserveDriver(msgspec.Struct, frozen=True):
    """Reserve a driver place.

    Raises Conflict: superseded attempt, shutdown, or no driver place, memory or custom resource free.
    """

    job_id: JobId
    attempt: int
    memory_mb: int
    custom: Amounts = ()


class DriverStarted(msgspec.Struct, frozen=True):
    """The driver has its process. ``start``: None if an earlier task manager process started it."""

    job_id: JobId
    attempt: int
    pid: int
    start: ProcessStart | None = None
    why_cold: str = ""


class DriverEnded(msgspec.Struct, frozen=True):
    """The driver ended, or could not be started."""

    job_id: JobId
    attempt: int


class StopWanted(msgspec.Struct, frozen=True):
    """The JobManager asks the driver of this attempt to stop within ``grace`` seconds.

    If the attempt is not here, it will not start here later either.
    """

    job_id: JobId
    attempt: int
    grace: float


class DriverAcknowledged(msgspec.Struct, frozen=True):
    job_id: JobId
    attempt: int


class AttemptsOver(msgspec.Struct, frozen=True):
    """This attempt of the job and all older ones have ended."""

    job_id: JobId
    attempt: int


class JobsEnded(msgspec.Struct, frozen=True):
    """These jobs have ended: forget those that hold nothing here."""

    job_ids: tuple[JobId, ...]


class StopLapsed(msgspec.Struct, frozen=True):
    """A process did not end within its time limit."""

    job_id: JobId
    attempt: int
    allocation_id: AllocationId | None  # None: the driver


class Drain(msgspec.Struct, frozen=True):
    """The task manager will stop: accept nothing new, let running work continue.

    ``moves``: True if running work moves elsewhere.
    """

    moves: bool


class Close(msgspec.Struct, frozen=True):
    """The task manager stops: accept nothing new, and give drivers ``grace`` seconds.

    Release at once the slots of attempts whose driver does not run here.
    """

    grace: float


class Tick(msgspec.Struct, frozen=True):
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


class SlotBegun(msgspec.Struct, frozen=True):
    """A slot was reserved."""

    allocation: Allocation


class SlotFreed(msgspec.Struct, frozen=True):
    """The slot is free again and nothing of its executor remains.

    ``may_return``: a later executor or attempt of the job may need the local state of this slot. True if the executor
    ended by itself, the attempt has ended, or the slot was never accepted (unless its job has no use for it). False if
    a job that continues returned the slot, or no JobMaster claimed a recovered slot.
    """

    allocation: Allocation
    may_return: bool


class LaunchExecutor(msgspec.Struct, frozen=True):
    allocation_id: AllocationId
    executor_id: ExecutorId


class EndExecutor(msgspec.Struct, frozen=True):
    """Kill the executor."""

    job_id: JobId
    attempt: int
    allocation_id: AllocationId
    executor_id: ExecutorId


class DecommissionExecutor(msgspec.Struct, frozen=True):
    """Ask the executor to hand over its blocks and exit. The task manager's next instance asks again."""

    job_id: JobId
    attempt: int
    allocation_id: AllocationId
    executor_id: ExecutorId


class TellJobMaster(msgspec.Struct, frozen=True):
    """Report to the JobMaster that this slot's executor started to run or ended."""

    allocation_id: AllocationId


class LaunchDriver(msgspec.Struct, frozen=True):
    job_id: JobId
    attempt: int


class EndDriver(msgspec.Struct, frozen=True):
    job_id: JobId
    attempt: int
    grace: float


class ForgetJob(msgspec.Struct, frozen=True):
    """Delete the job's files, because it holds nothing here, and has ended or has held nothing here for a long time."""

    job_id: JobId


class ReportChanged(msgspec.Struct, frozen=True):
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
