"""A ResourceManagerDriver whose nodes are entries in a dictionary."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from emberkeep.base.errors import RetryLater
from emberkeep.base.ids import TaskManagerId
from emberkeep.slots.blocked import BlocklistView
from emberkeep.slots.model import ResourceProfile
from emberkeep.slots.resource_driver import NodeOutage, NoFreeNode, StartedTaskManager, TaskManagerSpec
from tests.unit.jobmanager.fakes import RUNTIME

SPEC = TaskManagerSpec(slots=4, driver_places=4, total=ResourceProfile(cores=4, memory_mb=16_384), runtime=RUNTIME)


async def _nothing(_: StartedTaskManager) -> None:
    pass


@dataclass
class MemoryNodes:
    """Implements ResourceManagerDriver. Each node has one task manager.

    ``refusal``: why none can be started now. ``outage``: why nothing can be read or changed now. ``on_start``: called
    with each that was started. ``unending``: the task managers that cannot be ended now, and why.
    """

    nodes: tuple[str, ...] = ("node-0", "node-1")
    refusal: RetryLater | None = None
    outage: RetryLater | None = None
    on_start: Callable[[StartedTaskManager], Awaitable[None]] = _nothing
    out: tuple[NodeOutage, ...] = ()
    listed: dict[TaskManagerId, StartedTaskManager] = field(default_factory=dict)
    revived: list[TaskManagerId] = field(default_factory=list)
    unending: dict[TaskManagerId, RetryLater] = field(default_factory=dict)

    @property
    def spec(self) -> TaskManagerSpec:
        return SPEC

    async def survey(self) -> tuple[StartedTaskManager, ...]:
        self._check()
        return tuple(self.listed[key] for key in sorted(self.listed))

    async def outages(self) -> tuple[NodeOutage, ...]:
        self._check()
        return self.out

    async def start(self, blocked: BlocklistView, taken: AbstractSet[TaskManagerId]) -> StartedTaskManager:
        self._check()
        if self.refusal is not None:
            raise self.refusal
        count = 0
        for number, node in enumerate(self.nodes):
            started = StartedTaskManager(TaskManagerId(f"tm-{number}"), node)
            if blocked.is_blocked(started.id, node):
                count += 1
            elif started.id not in taken and started.id not in self.listed:
                self.listed[started.id] = started
                await self.on_start(started)
                return started
        raise NoFreeNode(f"no node is free: {count} are blocked")

    async def revive(self, task_manager: TaskManagerId, blocked: BlocklistView) -> None:
        self._check()
        self.revived.append(task_manager)
        known = self.listed[task_manager]
        self.listed[task_manager] = StartedTaskManager(known.id, known.node_id)

    async def end(self, task_manager: TaskManagerId) -> None:
        self._check()
        if task_manager in self.unending:
            raise self.unending[task_manager]
        self.listed.pop(task_manager, None)

    def _check(self) -> None:
        if self.outage is not None:
            raise self.outage

    def dies(self, task_manager: TaskManagerId) -> None:
        """Let the task manager's process end by itself."""
        known = self.listed[task_manager]
        self.listed[task_manager] = StartedTaskManager(known.id, known.node_id, alive=False)
