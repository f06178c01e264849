"""What happens to the slots of one attempt of a job, and what its JobMaster has to do about it (see ``slot_pool``)."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from emberkeep.base.ids import AllocationId, ExecutorId, InstanceId, TaskManagerId
from emberkeep.slots.blocked import BlockedPlaces
from emberkeep.slots.model import Allocation, SlotRequirement, TaskManagerInfo


class ExecutorState(enum.Enum):
    STARTING = "STARTING"  # asked for; no word yet that its process runs
    RUNNING = "RUNNING"


@dataclass
class HeldSlot:
    """A slot that was accepted, and its executor."""

    allocation: Allocation
    task_manager: TaskManagerInfo
    executor_id: ExecutorId
    state: ExecutorState
    unseen_since: float  # since when Spark has not listed it; while it does: when it was last asked
    registered: bool = False  # Spark has listed it before
    lives: bool = False  # by Spark's last word: registered, and heard lately
    pid: int = 0
    takes_blocks: bool = False  # by Spark's last word: from others that leave
    outgoing: bool = False  # its place is blocked: another one is wanted for it, and then it takes no new task
    cordoned: bool = False  # by Spark's last word: it takes no new task
    leaving_since: float | None = None  # its place is evacuated: another one is wanted for it, and it is to end
    decommissioned: bool = False  # its task manager has to tell it to hand its blocks over and end

    @property
    def leaving(self) -> bool:
        return self.leaving_since is not None

    @property
    def stays(self) -> bool:
        """Whether it counts as one of those wanted."""
        return not (self.leaving or self.outgoing)


@dataclass
class TaskManagerView:
    """A task manager that holds slots of this attempt."""

    info: TaskManagerInfo
    heard_at: float


@dataclass(frozen=True)
class FoundExecutor:
    """The executor that a task manager has in a slot. ``state`` None: it has ended, with ``exit_code`` if known."""

    allocation_id: AllocationId
    executor_id: ExecutorId
    state: ExecutorState | None
    pid: int = 0
    exit_code: int | None = None
    detail: str = ""


# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ApplicationStarted:
    """A SparkContext is up and wants this. One that was up before is over. ``decommissions``: its executors can be told
    to hand over what they keep to others before they end."""

    requirement: SlotRequirement
    decommissions: bool = False


@dataclass(frozen=True)
class ApplicationStopping:
    """The SparkContext begins to stop: nothing new is wanted, and however an executor ends now, it is no loss."""


@dataclass(frozen=True)
class ApplicationStopped:
    """No SparkContext is up: no slot is needed."""


@dataclass(frozen=True)
class SlotsOffered:
    """Answered by an AcceptOffer effect; without one the offer is to be repeated.

    A task manager that was started again offers what it has recovered, with the executors that are there; in a
    recovered slot without one there is none.
    """

    task_manager: TaskManagerInfo
    slots: tuple[Allocation, ...]
    executors: tuple[FoundExecutor, ...] = ()


@dataclass(frozen=True)
class ExecutorRuns:
    allocation_id: AllocationId
    executor_id: ExecutorId
    pid: int


@dataclass(frozen=True)
class ExecutorExited:
    """Its process has ended by itself. ``exit_code`` None: it could not be started, or nobody knows how it ended."""

    allocation_id: AllocationId
    executor_id: ExecutorId
    exit_code: int | None
    detail: str


@dataclass(frozen=True)
class SlotGone:
    """The task manager does not hold this slot (any more)."""

    allocation_id: AllocationId
    executor_id: ExecutorId
    reason: str


@dataclass(frozen=True)
class BeatAnswered:
    """What a task manager holds, as an answer to a beat that named ``asked``. ``instance``: the life that answered."""

    task_manager: TaskManagerId
    instance: InstanceId
    asked: tuple[AllocationId, ...]
    allocations: tuple[AllocationId, ...]
    executors: tuple[FoundExecutor, ...] = ()


@dataclass(frozen=True)
class TaskManagerLost:
    instance: InstanceId
    reason: str


@dataclass(frozen=True)
class SparkSaw:
    """The executors that are registered with Spark. ``silent``: those of them that it has not heard for too long;
    ``takers``: those that can take over what others keep, told while some leave. ``cordoned``: those that take no new
    task; ``idle``: those of them that run none and keep nothing that others need."""

    executors: frozenset[ExecutorId]
    silent: frozenset[ExecutorId] = frozenset()
    takers: frozenset[ExecutorId] = frozenset()
    cordoned: frozenset[ExecutorId] = frozenset()
    idle: frozenset[ExecutorId] = frozenset()


@dataclass(frozen=True)
class ReleaseDone:
    """The task manager has taken a slot back, or has been given up on."""

    allocation_id: AllocationId


@dataclass(frozen=True)
class ClusterLacks:
    """What the cluster cannot give at present, in words. ``blocked``: it may, once nodes are not blocked any more."""

    missing: str
    blocked: bool = False


@dataclass(frozen=True)
class PlacesBlocked:
    """The blocklist has changed, or the task managers that are ``draining``: they end once their work has gone
    elsewhere, as far as it can."""

    places: BlockedPlaces
    draining: frozenset[TaskManagerId] = frozenset()


@dataclass(frozen=True)
class Tick:
    """Time has passed."""


PoolEvent = (
    ApplicationStarted
    | ApplicationStopping
    | ApplicationStopped
    | SlotsOffered
    | ExecutorRuns
    | ExecutorExited
    | SlotGone
    | BeatAnswered
    | TaskManagerLost
    | SparkSaw
    | ReleaseDone
    | ClusterLacks
    | PlacesBlocked
    | Tick
)

# --- effects ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AcceptOffer:
    """``later``: not taken only because the pause before a replacement is not over yet."""

    allocations: tuple[AllocationId, ...]
    later: tuple[AllocationId, ...] = ()


@dataclass(frozen=True)
class StartExecutorIn:
    """Start this executor in a slot that is held."""

    allocation_id: AllocationId


@dataclass(frozen=True)
class ReleaseSlotAt:
    """Tell the task manager at ``address``, until it answers, that the slot is given back. ``stopped``: as the
    application stops; what is kept there for the job is not dropped then."""

    allocation_id: AllocationId
    address: str
    stopped: bool = False


@dataclass(frozen=True)
class BeatNow:
    """Task managers have to be told something of the slots that are held."""


@dataclass(frozen=True)
class RemoveExecutor:
    """Spark must stop counting on this executor. ``orderly``: it ended with code 0, as Spark lets executors go that it
    has no use for, at the end of a session above all; nobody needs to be told of a loss then."""

    executor_id: ExecutorId
    task_manager: TaskManagerId
    reason: str
    orderly: bool = False


@dataclass(frozen=True)
class FailAttempt:
    message: str


@dataclass(frozen=True)
class StatusChanged:
    """What the JobManager is told has changed."""


PoolEffect = AcceptOffer | StartExecutorIn | ReleaseSlotAt | BeatNow | RemoveExecutor | FailAttempt | StatusChanged
