"""What a JobManager concludes about drivers from the registration of a task manager that was restarted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from emberkeep.jobs.model import JobStatus
from tests.unit.jobmanager.cluster import SmallCluster, in_virtual_time
from tests.unit.jobmanager.fakes import FakeTaskManager, graph
from tests.unit.jobmanager.memory_store import FailingStore

JOB = graph(1).job_id
SOON = 3.0  # seconds: a few heartbeats, and much less than a driver's lease


def with_running_job(scenario: Callable[[SmallCluster, FakeTaskManager], Awaitable[None]]) -> None:
    """The job's driver runs on tm-1; another task manager has room for the next one."""

    async def run() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading():
            home = await cluster.add("tm-1")
            await cluster.run_job()
            await cluster.add("tm-2")
            await asyncio.sleep(SOON)  # its task manager has reported the driver
            await scenario(cluster, home)

    in_virtual_time(run)


async def restart(cluster: SmallCluster, before: FakeTaskManager, *, finds_processes: bool) -> FakeTaskManager:
    """Start the next instance of a task manager. With ``finds_processes`` it names the one whose work it continues."""
    cluster.silent.add(before.info.instance)
    predecessor = before.info.instance if finds_processes else None
    return await cluster.add(before.info.id, instance="2", predecessor=predecessor)


def test_a_driver_that_the_next_instance_does_not_find_is_lost_at_once() -> None:
    async def scenario(cluster: SmallCluster, home: FakeTaskManager) -> None:
        await restart(cluster, home, finds_processes=True)
        await asyncio.sleep(SOON)
        view = await cluster.view(JOB)
        assert view.status is not JobStatus.RUNNING
        assert [entry.message for entry in view.exceptions] == ["task manager tm-1 no longer lists the driver"]

    with_running_job(scenario)


def test_a_driver_that_the_next_instance_finds_continues() -> None:
    async def scenario(cluster: SmallCluster, home: FakeTaskManager) -> None:
        cluster.silent.add(home.info.instance)
        successor = FakeTaskManager(cluster.service, "tm-1", instance="2", predecessor=home.info.instance)
        successor.drivers = home.drivers
        await successor.register()
        cluster.task_managers.append(successor)
        await asyncio.sleep(SOON)
        view = await cluster.view(JOB)
        assert (view.attempt, view.status) == (1, JobStatus.RUNNING)

    with_running_job(scenario)


@pytest.mark.req("HA-5")
@pytest.mark.parametrize(("finds_processes", "status"), [(True, JobStatus.RESTARTING), (False, JobStatus.INITIALIZING)])
def test_the_next_leader_waits_for_a_recovered_driver_unless_its_home_has_looked_for_it(
    finds_processes: bool, status: JobStatus
) -> None:
    async def run() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading():
            home = await cluster.add("tm-1")
            await cluster.run_job()
            await cluster.add("tm-2")
        async with cluster.leading():
            await restart(cluster, home, finds_processes=finds_processes)
            await asyncio.sleep(SOON)
            assert (await cluster.view(JOB)).status is status

    in_virtual_time(run)
