"""A driver succeeds while neither its task manager nor the JobManager lives: its job is not run again (SAFE-9)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from emberkeep.jobs.model import JobStatus
from tests.simulation.test_cluster import attempt, node_of, passes, running, status, wait_for
from tests.support.simulator.cluster import SimCluster, TaskManagerNode
from tests.support.simulator.scripts import Script
from tests.support.simulator.simulation import Run


def as_before(cluster: SimCluster, node: TaskManagerNode) -> None:
    del cluster, node


def without_driver_places(cluster: SimCluster, node: TaskManagerNode) -> None:
    del node
    cluster.plan = replace(cluster.plan, driver_places=0)


def without_memory(cluster: SimCluster, node: TaskManagerNode) -> None:
    del node
    cluster.plan = replace(cluster.plan, memory_mb=256)


def without_a_record(cluster: SimCluster, node: TaskManagerNode) -> None:
    del cluster
    node.record.data = None


def with_a_damaged_record(cluster: SimCluster, node: TaskManagerNode) -> None:
    del cluster
    node.record.data = b"{"


@pytest.mark.req("SAFE-9")
@pytest.mark.parametrize(
    "comes_back", [as_before, without_driver_places, without_memory, without_a_record, with_a_damaged_record]
)
def test_however_its_task_manager_comes_back(comes_back: Callable[[SimCluster, TaskManagerNode], None]) -> None:
    async def story(run: Run) -> None:
        cluster = run.cluster
        job = cluster.submit("batch", Script(seconds=5.0, executors=1))
        driver = await running(run, job, number=1, executors=1)
        node = node_of(run, driver)
        assert node.agent is not None
        cluster.kill_job_manager()
        cluster.machines.kill(node.agent)
        await wait_for(run, lambda: driver.outcome is not None, "the script has ended")
        cluster.machines.kill(driver)
        comes_back(cluster, node)
        cluster.start_agent(node)
        cluster.start_job_manager()
        await run.settle()
        assert (status(run, job), attempt(run, job)) == (JobStatus.FINISHED, 1)
        await run.end_everything()

    passes(story, task_managers=2, files=False)
