"""A JobManager comes up with another job store, emptied or lying elsewhere, while jobs run (SAFE-6)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from emberkeep.base.configuration.options.job_managers import HEARTBEAT_TIMEOUT
from emberkeep.base.configuration.options.jobs import DRIVER_LEASE
from tests.simulation.test_cluster import STREAM, attempt, drivers, passes, running, wait_for
from tests.simulation.test_cut_off_leader import everything
from tests.support.fakes import MemoryDisk
from tests.support.simulator.cluster import AGENT_PORT
from tests.support.simulator.scripts import Script
from tests.support.simulator.simulation import Run


def lead_with(run: Run, disk: MemoryDisk) -> None:
    """The JobManager is started again, over this store."""
    cluster = run.cluster
    cluster.kill_job_manager()
    cluster.store.disk.crash()
    cluster.store.disk = disk
    cluster.store.leader = None
    cluster.start_job_manager()


def strangers(run: Run) -> Callable[[], bool]:
    """Whether both are named, each with its address, also where it had no reason to register."""
    expected = [(node.id, f"{node.machine.host}:{AGENT_PORT}", MemoryDisk().lineage) for node in run.cluster.nodes]

    def named() -> bool:
        leader = run.cluster.jm_service
        return (
            leader is not None
            and [(one.id, one.address, one.lineage) for one in leader.gateway.strangers()] == expected
        )

    return named


@pytest.mark.req("SAFE-6")
@pytest.mark.parametrize("epoch", [0, 50], ids=["lower epoch", "higher epoch"])
def test_what_runs_goes_on_until_the_job_store_is_given_back(epoch: int) -> None:
    async def story(run: Run) -> None:
        cluster = run.cluster
        job = cluster.submit("stream", STREAM)
        await running(run, job, number=1, executors=2)
        batch = cluster.submit("batch", Script(seconds=30.0, executors=1))
        await running(run, batch, number=1, executors=1)
        before, own, jobs = everything(run), cluster.store.disk, list(cluster.jobs)
        cluster.jobs.clear()  # this JobManager knows none of them
        lead_with(run, MemoryDisk(epoch=epoch, lineage="another"))
        await wait_for(run, strangers(run), "the JobManager names those who follow another store")
        await asyncio.sleep(2 * cluster.configuration[DRIVER_LEASE] + cluster.configuration[HEARTBEAT_TIMEOUT])
        lost = [process for process in before if not process.alive and "stream" in process.name]
        assert not lost
        cluster.jobs.extend(jobs)
        lead_with(run, own)
        await wait_for(run, lambda: not strangers(run)(), "they follow again")
        await run.settle()
        assert [attempt(run, each) for each in (job, batch)] == [1, 1]
        assert [driver for driver in before if driver in drivers(run)]
        await run.end_everything()

    passes(story, task_managers=2, files=False)


@pytest.mark.req("SAFE-6")
def test_a_driver_that_starts_meanwhile_waits_for_the_store_of_its_job() -> None:
    """The leader that ordered its start is gone before the driver has ever spoken to it."""

    async def story(run: Run) -> None:
        cluster, starts = run.cluster, asyncio.Event()
        cluster.machines.on_start.append(lambda process: starts.set() if "driver" in process.name else None)
        job = cluster.submit("batch", Script(seconds=5.0))
        await starts.wait()
        own, jobs = cluster.store.disk, list(cluster.jobs)
        assert not run.properties.scripts_run
        cluster.jobs.clear()  # this JobManager does not know it
        lead_with(run, MemoryDisk(epoch=50, lineage="another"))
        await wait_for(run, strangers(run), "its task manager is named")
        await asyncio.sleep(cluster.configuration[HEARTBEAT_TIMEOUT])
        assert not run.properties.scripts_run
        assert drivers(run), "it waits"
        cluster.jobs.extend(jobs)
        lead_with(run, own)
        await run.settle()
        assert attempt(run, job) == 1
        await run.end_everything()

    passes(story, task_managers=1, files=False)


@pytest.mark.req("SAFE-6")
def test_a_task_manager_that_holds_nothing_follows_any_store() -> None:
    async def story(run: Run) -> None:
        cluster = run.cluster
        first = cluster.submit("first", Script(seconds=2.0))
        await run.settle()
        assert attempt(run, first) == 1
        cluster.jobs.clear()
        lead_with(run, MemoryDisk(lineage="another"))
        second = cluster.submit("second", Script(seconds=2.0))
        await run.settle()
        assert attempt(run, second) == 1
        await run.end_everything()

    passes(story, task_managers=2, files=False)


@pytest.mark.req("SAFE-6")
def test_a_person_can_have_a_task_manager_follow_another_store() -> None:
    """What runs there belongs to nobody, and is ended."""

    async def story(run: Run) -> None:
        cluster = run.cluster
        job = cluster.submit("stream", STREAM)
        await running(run, job, number=1, executors=2)
        before = everything(run)
        cluster.jobs.clear()
        lead_with(run, MemoryDisk(lineage="another"))
        await wait_for(
            run, lambda: cluster.jm_service is not None and cluster.jm_service.gateway.strangers(), "one is named"
        )
        cluster.configuration = cluster.configuration.with_texts({"taskmanager.adopt-leader": "true"}, "test")
        for node in cluster.nodes:
            assert node.agent is not None
            cluster.machines.kill(node.agent)
            cluster.start_agent(node)
        await wait_for(run, lambda: not any(process.alive for process in before), "what ran there has ended")
        after = cluster.submit("after", Script(seconds=2.0))
        await run.settle()
        assert attempt(run, after) == 1
        await run.end_everything()

    passes(story, task_managers=2, files=False)
