"""Messages between TaskManagers and JobMasters: slots and executors."""

from __future__ import annotations

import msgspec

from emberkeep.base.ids import AllocationId, ExecutorId, InstanceId, JobId, TaskManagerId
from emberkeep.jobs.model import Artefact
from emberkeep.local_state.model import Holding
from emberkeep.protocol.messages.root import Message
from emberkeep.protocol.messages.task_manager_reports import ExecutorReport
from emberkeep.slots.custom.addresses import ResourceAddresses
from emberkeep.slots.model import Allocation, TaskManagerInfo


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
