"""The port to whatever can start task managers: processes on this machine, pods, virtual machines.

The JobManager decides how many there are to be (``slots.task_manager_supply``); a driver knows how one is started and
where. It is asked again and again what there is (``survey``), and nothing that it has said before counts: so a new
leader, which asks the same driver over the same durable records, goes on where the last one was killed. docs/adr/0017
says how one for Kubernetes would do it.

What whoever writes a driver has to keep:

- **Ids are for good.** A task manager's id names its working directory, with the processes that outlive it and its
  local state. A driver has a fixed, bounded set of ids or makes them by counting, and uses those that are free again.
- **Never two under one id.** Where a start may have happened (killed between start and record, an answer that was lost)
  the next ``survey`` lists it, or it can have no effect any more.
- **The node id is set by the start** (``taskmanager.node-id``): it is what the blocklist speaks of.
- **They outlive the JobManager** that has started them, and its machine where that is possible.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol

from emberkeep.base.errors import RetryLater
from emberkeep.base.ids import TaskManagerId
from emberkeep.slots.blocked import BlockedPlaces
from emberkeep.slots.model import ResourceProfile, RuntimeVersions


@dataclass(frozen=True)
class TaskManagerSpec:
    """What each task manager that a driver starts will have."""

    slots: int
    driver_places: int
    total: ResourceProfile
    runtime: RuntimeVersions


@dataclass(frozen=True)
class StartedTaskManager:
    """One that a driver, of this leader or an earlier one, has started and not ended. ``alive`` False: its process has
    ended by itself, or was never there; it is listed until it is ended or revived."""

    id: TaskManagerId
    node_id: str
    alive: bool = True


class NoFreeNode(RetryLater):
    """Every node is blocked or has its task manager."""


class ResourceManagerDriver(Protocol):
    """One call at a time. Each returns within a few seconds or raises RetryLater."""

    @property
    def spec(self) -> TaskManagerSpec:
        """The same for as long as this driver lives."""

    async def survey(self) -> tuple[StartedTaskManager, ...]:
        """All that it has started, by id. Raises RetryLater, Fatal."""

    async def start(self, blocked: BlockedPlaces, taken: AbstractSet[TaskManagerId]) -> StartedTaskManager:
        """Start one more, where nothing is ``blocked`` and under an id that is not ``taken``; returns once it is
        recorded, not when it serves. Raises NoFreeNode, RetryLater, Fatal (it cannot be started there)."""

    async def revive(self, task_manager: TaskManagerId) -> None:
        """Start one again whose process has ended by itself: jobs hold something there, and it takes that over. Where
        the platform does that by itself, return at once. Raises RetryLater, Fatal."""

    async def end(self, task_manager: TaskManagerId) -> None:
        """End its process at once if it lives, and forget it: it is of no use. Unknown ones: nothing. Raises
        RetryLater."""
