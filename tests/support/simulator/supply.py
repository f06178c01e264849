"""The ResourceManagerDriver of a simulated cluster: its records outlive JobManagers, like records on a disk."""

from __future__ import annotations

import asyncio
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from emberkeep.base.errors import RetryLater
from emberkeep.base.ids import TaskManagerId
from emberkeep.slots.blocked import BlocklistView
from emberkeep.slots.model import ResourceProfile
from emberkeep.slots.resource_driver import NoFreeNode, StartedTaskManager, TaskManagerSpec
from tests.support.simulator.scripts import RUNTIME
from tests.support.simulator.virtual_loop import seeded_random

if TYPE_CHECKING:
    from tests.support.simulator.cluster import SimCluster, TaskManagerNode

STEP = 0.05  # seconds that each step of a start takes; a JobManager may be killed between two steps


class SimDriver:
    """Implements ResourceManagerDriver. ``failures``: probability that a start fails."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self.listed: set[TaskManagerId] = set()
        self.starts = 0
        self.failures = 0.0
        self._rng = seeded_random(cluster.plan.seed, "starts")

    @property
    def spec(self) -> TaskManagerSpec:
        plan = self._cluster.plan
        total = ResourceProfile(cores=plan.cores, memory_mb=plan.memory_mb)
        return TaskManagerSpec(slots=plan.slots, driver_places=plan.driver_places, total=total, runtime=RUNTIME)

    async def survey(self) -> tuple[StartedTaskManager, ...]:
        await asyncio.sleep(STEP)
        return tuple(
            StartedTaskManager(node.id, node.machine.name, alive=_lives(node))
            for node in self._cluster.nodes
            if node.id in self.listed
        )

    async def outages(self) -> None:
        return None

    async def start(self, blocked: BlocklistView, taken: AbstractSet[TaskManagerId]) -> StartedTaskManager:
        for node in self._cluster.nodes:
            if node.id not in taken and not blocked.is_blocked(node.id, node.machine.name):
                await self._start(node)
                return StartedTaskManager(node.id, node.machine.name)
        raise NoFreeNode("no node is free")

    async def revive(self, task_manager: TaskManagerId, blocked: BlocklistView) -> None:
        await self._start(next(node for node in self._cluster.nodes if node.id == task_manager))

    async def _start(self, node: TaskManagerNode) -> None:
        self._cluster.supplied(f"start of {node.id}")
        self.listed.add(node.id)
        await asyncio.sleep(STEP)
        self.starts += 1
        if self._rng.random() < self.failures:
            raise RetryLater(f"{node.id} cannot be started")
        self._cluster.start_agent(node)
        await asyncio.sleep(STEP)

    async def end(self, task_manager: TaskManagerId) -> None:
        self._cluster.supplied(f"end of {task_manager}")
        for node in self._cluster.nodes:
            if node.id == task_manager and node.agent is not None:
                self._cluster.machines.kill(node.agent)
        await asyncio.sleep(STEP)
        self.listed.discard(task_manager)


def _lives(node: TaskManagerNode) -> bool:
    return node.agent is not None and node.agent.alive
