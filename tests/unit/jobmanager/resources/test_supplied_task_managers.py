"""Task managers that a JobManager starts and stops itself, through a resource driver."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from collections.abc import Set as AbstractSet

import pytest
from structlog.testing import capture_logs

from emberkeep.base.configuration import options
from emberkeep.base.errors import RetryLater
from emberkeep.base.ids import TaskManagerId
from emberkeep.jobs.model import AttemptOutcome, JobStatus
from emberkeep.slots.blocked import BlocklistView
from emberkeep.slots.model import ResourceProfile
from emberkeep.slots.resource_driver import StartedTaskManager, TaskManagerSpec
from tests.unit.jobmanager.cluster import SmallCluster, in_virtual_time
from tests.unit.jobmanager.fakes import RUNTIME, graph
from tests.unit.jobmanager.memory_store import FailingStore

pytestmark = pytest.mark.req("BLK-9")

JOB = graph(1).job_id
SETTINGS = {options.IDLE_TIMEOUT.key: "30s", options.START_RETRY_INTERVAL.key: "5s"}


class ScriptedNodes:
    """A resource driver whose task managers register at once. ``refusal``: why none can be started now."""

    def __init__(self) -> None:
        self.cluster: SmallCluster | None = None
        self.listed: dict[TaskManagerId, StartedTaskManager] = {}
        self.revived: list[TaskManagerId] = []
        self.refusal: RetryLater | None = None

    @property
    def spec(self) -> TaskManagerSpec:
        return TaskManagerSpec(
            slots=4, driver_places=4, total=ResourceProfile(cores=4, memory_mb=16_384), runtime=RUNTIME
        )

    async def survey(self) -> tuple[StartedTaskManager, ...]:
        return tuple(self.listed.values())

    async def start(self, blocked: BlocklistView, taken: AbstractSet[TaskManagerId]) -> StartedTaskManager:
        if self.refusal is not None:
            raise self.refusal
        started = StartedTaskManager(TaskManagerId(f"tm-{len(taken)}"), f"node-{len(taken)}")
        self.listed[started.id] = started
        assert self.cluster is not None
        await self.cluster.add(started.id, node_id=started.node_id)
        return started

    async def revive(self, task_manager: TaskManagerId) -> None:
        self.revived.append(task_manager)
        self.listed[task_manager] = StartedTaskManager(task_manager, "node-0")

    async def end(self, task_manager: TaskManagerId) -> None:
        self.listed.pop(task_manager, None)


def supplied(scenario: Callable[[SmallCluster, ScriptedNodes], Awaitable[None]]) -> None:
    async def run() -> None:
        nodes = ScriptedNodes()
        cluster = nodes.cluster = SmallCluster(FailingStore(), SETTINGS, resource_driver=nodes)
        async with cluster.leading():
            await scenario(cluster, nodes)

    in_virtual_time(run)


def test_one_is_started_for_a_job_and_told_to_end_when_it_has_been_idle_for_long() -> None:
    async def scenario(cluster: SmallCluster, nodes: ScriptedNodes) -> None:
        master = await cluster.run_job()
        (task_manager,) = cluster.task_managers
        await asyncio.sleep(60.0)
        assert task_manager.ending == [], "a driver runs there"
        await master.ends(AttemptOutcome(exit_code=0))
        task_manager.exits(JOB, 1, AttemptOutcome(exit_code=0))
        await cluster.reaches(JOB, JobStatus.FINISHED)
        await asyncio.sleep(25.0)
        assert task_manager.ending == []
        await asyncio.sleep(10.0)
        (order,) = task_manager.ending
        assert order.instance == task_manager.info.instance

    supplied(scenario)


def test_one_whose_process_has_ended_is_started_again_while_a_job_uses_it() -> None:
    async def scenario(cluster: SmallCluster, nodes: ScriptedNodes) -> None:
        await cluster.run_job()
        (known,) = nodes.listed.values()
        nodes.listed[known.id] = StartedTaskManager(known.id, known.node_id, alive=False)
        await asyncio.sleep(2.0)
        assert nodes.revived == [known.id]

    supplied(scenario)


def test_people_are_warned_once_of_what_cannot_be_started_and_the_job_waits() -> None:
    async def scenario(cluster: SmallCluster, nodes: ScriptedNodes) -> None:
        nodes.refusal = RetryLater("no such image")
        with capture_logs() as said:
            await cluster.service.gateway.submit(graph(1))
            await asyncio.sleep(20.0)
        warnings = [line["event"] for line in said if line["event"].startswith("cannot start")]
        assert warnings == ["cannot start a task manager: no such image"]
        nodes.refusal = None
        await cluster.next_jobmaster(JOB, 1)

    supplied(scenario)
