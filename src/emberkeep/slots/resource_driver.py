"""The port to a platform that can start task managers: processes on this machine, jobs of Slurm, pods.

The JobManager decides how many task managers to run (``slots.task_manager_supply``). A *resource driver* (Flink's
ResourceManagerDriver) knows how and where to start one. Each ``survey`` lists everything that the resource driver has
started and replaces earlier answers. So a new leader, whose resource driver reads the same durable records, continues
where the previous leader was killed.

Every resource driver must keep these rules:

- **Ids are permanent.** A task manager's id names its working directory, which holds the processes that outlive it and
  its local state. A resource driver has a fixed, bounded set of ids or numbers them, and reuses ids that have become
  free.
- **Never two task managers under one id.** If a start may have happened (the JobManager was killed between start and
  record, or a reply was lost), the next ``survey`` lists it, or it can no longer take effect.
- **The start sets the node id** (``taskmanager.node-id``): the blocklist refers to it.
- **Task managers outlive the JobManager** that started them, and also its machine where that is possible.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol

from emberkeep.base.errors import RetryLater
from emberkeep.base.ids import TaskManagerId
from emberkeep.slots.blocked import BlocklistView
from emberkeep.slots.model import ResourceProfile, RuntimeVersions


@dataclass(frozen=True)
class TaskManagerSpec:
    """The capacity and runtime of each task manager that a resource driver starts."""

    slots: int
    driver_places: int
    total: ResourceProfile
    runtime: RuntimeVersions


@dataclass(frozen=True)
class StartedTaskManager:
    """A task manager started by the resource driver of this leader or an earlier one, and not ended since.

    - ``node_id``: "" while the platform has not chosen the node.
    - ``alive`` False: its process ended by itself or never ran. The resource driver lists it until ``end`` or
      ``revive``.
    - ``queued``: the platform will start it once there is room, which may take hours. It is ``alive``, and the time
      that it may take to register has not begun.
    """

    id: TaskManagerId
    node_id: str
    alive: bool = True
    queued: bool = False


@dataclass(frozen=True)
class NodeOutage:
    """A node on which the platform starts nothing new, because its operators have taken it out of service.

    ``reason``: what the platform says. ``since_ms``: since when (Unix milliseconds), 0 if unknown.
    """

    node_id: str
    reason: str
    since_ms: int = 0


class NoFreeNode(RetryLater):
    """Every node is blocked or already has its task manager."""


class ResourceManagerDriver(Protocol):
    """Starts and stops task managers. Calls never overlap. Each returns within a few seconds or raises RetryLater."""

    @property
    def spec(self) -> TaskManagerSpec:
        """Capacity and runtime of each started task manager. Constant during this object's lifetime."""

    async def survey(self) -> tuple[StartedTaskManager, ...]:
        """Return all task managers that this resource driver has started, by id, except those that ``end`` has stopped.

        Task managers that an earlier leader's resource driver started are included. Raises RetryLater, Fatal.
        """

    async def outages(self) -> tuple[NodeOutage, ...] | None:
        """Return the nodes that are out of service. None if the platform has no such notion.

        Raises RetryLater (unknown now), Fatal.
        """

    async def start(self, blocked: BlocklistView, taken: AbstractSet[TaskManagerId]) -> StartedTaskManager:
        """Start one more task manager where nothing is ``blocked``, under an id that is not in ``taken``.

        Returns as soon as the start is recorded, not when the task manager serves. Raises NoFreeNode, RetryLater, Fatal
        (it cannot be started there).
        """

    async def revive(self, task_manager: TaskManagerId, blocked: BlocklistView) -> None:
        """Restart a task manager whose process ended by itself while jobs hold something there.

        The new process takes over what the jobs hold. If it may run on another node than before, that one is not
        ``blocked``. Return at once if the platform restarts the process itself. Raises NoFreeNode, RetryLater, Fatal.
        """

    async def end(self, task_manager: TaskManagerId) -> None:
        """Kill the processes of a task manager, if any run, and forget the task manager. Ignore an unknown id.

        Raises RetryLater.
        """
