"""The port to a platform that can start task managers: processes on this machine, pods, virtual machines.

The JobManager decides how many task managers to run (``slots.task_manager_supply``). A driver knows how and where to
start one. Each ``survey`` lists everything that the driver has started; earlier answers do not count. So a new leader,
which asks the same driver over the same durable records, continues where the previous leader was killed. docs/adr/0017
describes a driver for Kubernetes.

Every driver must keep these rules:

- **Ids are permanent.** A task manager's id names its working directory, which holds the processes that outlive it and
  its local state. A driver has a fixed, bounded set of ids or numbers them, and reuses ids that have become free.
- **Never two task managers under one id.** If a start may have happened (the driver was killed between start and
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
    """The capacity and runtime of each task manager that a driver starts."""

    slots: int
    driver_places: int
    total: ResourceProfile
    runtime: RuntimeVersions


@dataclass(frozen=True)
class StartedTaskManager:
    """A task manager that a driver of this leader or an earlier one has started and not ended.

    ``alive`` False: its process ended by itself or never ran. The driver lists it until it is ended or revived.
    """

    id: TaskManagerId
    node_id: str
    alive: bool = True


class NoFreeNode(RetryLater):
    """Every node is blocked or already has its task manager."""


class ResourceManagerDriver(Protocol):
    """Starts and ends task managers. Calls never overlap. Each returns within a few seconds or raises RetryLater."""

    @property
    def spec(self) -> TaskManagerSpec:
        """Capacity and runtime of each started task manager. Constant during the driver's lifetime."""

    async def survey(self) -> tuple[StartedTaskManager, ...]:
        """Return all task managers that the driver has started and not ended, by id. Raises RetryLater, Fatal."""

    async def start(self, blocked: BlocklistView, taken: AbstractSet[TaskManagerId]) -> StartedTaskManager:
        """Start one more task manager where nothing is ``blocked``, under an id that is not in ``taken``.

        Returns as soon as the start is recorded, not when the task manager serves. Raises NoFreeNode, RetryLater, Fatal
        (it cannot be started there).
        """

    async def revive(self, task_manager: TaskManagerId) -> None:
        """Start a task manager again whose process ended by itself while jobs hold something there.

        The new process takes over what the jobs hold. Return at once if the platform restarts the process itself.
        Raises RetryLater, Fatal.
        """

    async def end(self, task_manager: TaskManagerId) -> None:
        """End a task manager's process at once if it runs, and forget it. Ignore an unknown id. Raises RetryLater."""
