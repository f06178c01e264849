"""The events that happen to the slots of one attempt of a job, and the effects that its JobMaster carries out."""

from __future__ import annotations

import msgspec

from emberkeep.base.ids import AllocationId, ExecutorId, InstanceId, TaskManagerId
from emberkeep.slots.blocked import BlocklistView
from emberkeep.slots.model import Allocation, ProcessStart, Reclaim, SlotRequirement, TaskManagerInfo
from emberkeep.slots.pool.held_slot import ExecutorState


class FoundExecutor(msgspec.Struct, frozen=True):
    """The executor that a task manager has in a slot.

    ``state`` is None if the executor has ended, with ``exit_code`` if known.
    """

    allocation_id: AllocationId
    executor_id: ExecutorId
    state: ExecutorState | None
    pid: int
    exit_code: int | None = None
    detail: str = ""
    start: ProcessStart | None = None  # None if unknown
    why_cold: str = ""


# --- events -----------------------------------------------------------------------------------------------------------


class ApplicationStarted(msgspec.Struct, frozen=True):
    """A SparkContext is up and requires these slots; an earlier one has ended.

    ``decommissions``: its executors can hand over what they keep to others before they end. ``idle_timeout``: Spark
    changes the number of executors, and removes those that are idle for so many seconds; None: the number is fixed.
    """

    requirement: SlotRequirement
    decommissions: bool = False
    idle_timeout: float | None = None


class ExecutorsDemanded(msgspec.Struct, frozen=True):
    """What the dynamic allocation of the application wants now.

    ``count``: number of executors. ``decommissioned``: executors that Spark has asked to hand over what they keep and
    to end. ``killed``: executors that Spark uses no more, and which nobody else ends. ``others``: number of executors
    with another resource profile.
    """

    count: int
    decommissioned: frozenset[ExecutorId] = frozenset()
    killed: frozenset[ExecutorId] = frozenset()
    others: int = 0


class ApplicationStopping(msgspec.Struct, frozen=True):
    """The SparkContext begins to stop: no further slot is needed, and an executor that ends now is not a loss."""


class ApplicationStopped(msgspec.Struct, frozen=True):
    """No SparkContext is up: no slot is needed."""


class SlotsOffered(msgspec.Struct, frozen=True):
    """A task manager offers slots. The reply is an AcceptOffer effect; without one, the task manager repeats the offer.

    A restarted task manager offers the slots that it has recovered, with the executors that are in them. A recovered
    slot that names no executor has none.
    """

    task_manager: TaskManagerInfo
    slots: tuple[Allocation, ...]
    executors: tuple[FoundExecutor, ...] = ()


class ExecutorRuns(msgspec.Struct, frozen=True):
    allocation_id: AllocationId
    executor_id: ExecutorId
    pid: int
    start: ProcessStart | None = None  # None if unknown
    why_cold: str = ""


class ExecutorExited(msgspec.Struct, frozen=True):
    """The executor's process ended by itself.

    ``exit_code`` is None if the process could not be started, or the code is unknown.
    """

    allocation_id: AllocationId
    executor_id: ExecutorId
    exit_code: int | None
    detail: str


class SlotGone(msgspec.Struct, frozen=True):
    """The task manager no longer holds this slot, or never did."""

    allocation_id: AllocationId
    executor_id: ExecutorId
    reason: str


class BeatAnswered(msgspec.Struct, frozen=True):
    """What a task manager holds for the attempt, in reply to a heartbeat that named ``asked``.

    ``instance``: the instance that replied.
    """

    task_manager: TaskManagerId
    instance: InstanceId
    asked: tuple[AllocationId, ...]
    allocations: tuple[AllocationId, ...]
    executors: tuple[FoundExecutor, ...] = ()


class TaskManagerLost(msgspec.Struct, frozen=True):
    instance: InstanceId
    reason: str


class SparkSaw(msgspec.Struct, frozen=True):
    """The executors that are registered with Spark.

    ``silent``: executors whose heartbeats have been missing for too long. ``takers``: executors that can take over
    blocks of others, given only while some leave. ``cordoned``: executors that take no new task. ``idle``: cordoned
    executors that run no task and keep nothing that others need. ``lacking_space``: executors in which tasks have
    failed since the last report because their disk is full.
    """

    executors: frozenset[ExecutorId]
    silent: frozenset[ExecutorId] = frozenset()
    takers: frozenset[ExecutorId] = frozenset()
    cordoned: frozenset[ExecutorId] = frozenset()
    idle: frozenset[ExecutorId] = frozenset()
    lacking_space: frozenset[ExecutorId] = frozenset()


class ReleaseDone(msgspec.Struct, frozen=True):
    """The task manager has taken a slot back, or the release was abandoned."""

    allocation_id: AllocationId


class ClusterLacks(msgspec.Struct, frozen=True):
    """A text that names the job's unmet needs. ``blocked``: True if unblocking nodes may meet them."""

    missing: str
    blocked: bool = False


class CeilingSet(msgspec.Struct, frozen=True):
    """What the JobManager asks the attempt to give back now; None: nothing."""

    reclaim: Reclaim | None


class PlacesBlocked(msgspec.Struct, frozen=True):
    """The blocklist or the set of ``draining`` task managers has changed.

    A draining task manager ends once its work has moved elsewhere, as far as possible.
    """

    places: BlocklistView
    draining: frozenset[TaskManagerId] = frozenset()


class Tick(msgspec.Struct, frozen=True):
    """Time has passed."""


PoolEvent = (
    ApplicationStarted
    | ExecutorsDemanded
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
    | CeilingSet
    | PlacesBlocked
    | Tick
)

# --- effects ----------------------------------------------------------------------------------------------------------


class AcceptOffer(msgspec.Struct, frozen=True):
    """The slots that are accepted.

    ``later``: slots refused because the pause before a replacement has not ended yet, or because the application stops.
    The job may need the state that is kept for them.
    """

    allocations: tuple[AllocationId, ...]
    later: tuple[AllocationId, ...] = ()


class StartExecutorIn(msgspec.Struct, frozen=True):
    """Start this slot's executor."""

    allocation_id: AllocationId


class ReleaseSlotAt(msgspec.Struct, frozen=True):
    """Return the slot to the task manager at ``address``; repeat the request until it replies.

    ``stopped``: the application stops, so the task manager keeps the job's local state.
    """

    allocation_id: AllocationId
    address: str
    stopped: bool = False


class BeatNow(msgspec.Struct, frozen=True):
    """Send heartbeats now, so that task managers learn of a change in the held slots."""


class RemoveExecutor(msgspec.Struct, frozen=True):
    """Make Spark remove this executor.

    ``orderly``: True if the executor's end is not a loss that Spark must report. For example, executors that Spark
    itself dismisses end with code 0, above all at the end of a session.
    """

    executor_id: ExecutorId
    task_manager: TaskManagerId
    reason: str
    orderly: bool = False


class FailAttempt(msgspec.Struct, frozen=True):
    message: str


class StatusChanged(msgspec.Struct, frozen=True):
    """The status that is reported to the JobManager has changed."""


PoolEffect = AcceptOffer | StartExecutorIn | ReleaseSlotAt | BeatNow | RemoveExecutor | FailAttempt | StatusChanged
