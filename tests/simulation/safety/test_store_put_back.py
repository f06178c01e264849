"""A job store that was put back from an older copy: attempts that it does not know go on, and are never repeated."""

from __future__ import annotations

import asyncio

import pytest

from emberkeep.base.configuration.options.job_managers import HEARTBEAT_TIMEOUT
from emberkeep.base.configuration.options.jobs import DRIVER_LEASE
from emberkeep.jobmanager.views.cluster import Stranger
from tests.campaign import keep, seeds, seldom
from tests.simulation.test_cluster import STREAM, drivers, node_of, passes, running, wait_for
from tests.simulation.test_cut_off_leader import everything
from tests.support.simulator.cluster import JM_NODE
from tests.support.simulator.scripts import Script
from tests.support.simulator.simulation import Run, simulate_many

pytestmark = pytest.mark.req("SAFE-6")


def strangers(run: Run) -> tuple[Stranger, ...]:
    leader = run.cluster.jm_service
    return () if leader is None else leader.gateway.strangers()


def put_back(run: Run) -> None:
    """While its JobManager does not run."""
    cluster = run.cluster
    cluster.kill_job_manager()
    cluster.store.put_back()
    cluster.start_job_manager()


def test_the_driver_of_an_attempt_that_the_copy_does_not_know_goes_on() -> None:
    async def story(run: Run) -> None:
        cluster = run.cluster
        job = cluster.submit("stream", STREAM)
        first = await running(run, job, number=1, executors=2)
        cluster.store.take_copy()
        cluster.machines.kill(first)
        second = await running(run, job, number=2, executors=2)
        put_back(run)
        assert await running(run, job, number=2, executors=2) is second
        cluster.machines.kill(second)
        await running(run, job, number=3, executors=2)
        await run.end_everything()

    passes(story, task_managers=2, files=False)


def test_a_number_that_was_used_once_is_not_used_again() -> None:
    """Its driver is dead by then; that it ever was is known to task managers alone."""

    async def story(run: Run) -> None:
        cluster = run.cluster
        job = cluster.submit("stream", STREAM)
        first = await running(run, job, number=1, executors=2)
        cluster.store.take_copy()
        cluster.machines.kill(first)
        second = await running(run, job, number=2, executors=2)
        cluster.kill_job_manager()
        cluster.machines.kill(second)
        await wait_for(run, lambda: not drivers(run), "its driver is gone")
        put_back(run)
        await running(run, job, number=3, executors=2)
        await run.end_everything()

    passes(story, task_managers=2, files=False)


@pytest.mark.parametrize("late", [0.0, 2.0], ids=["at once", "after others"])
def test_a_job_that_the_copy_has_never_started(late: float) -> None:
    """Its task manager registers after another one that has room for it."""

    async def story(run: Run) -> None:
        cluster = run.cluster
        for node in cluster.nodes:
            assert node.agent is not None
            cluster.machines.kill(node.agent)
        job = cluster.submit("stream", STREAM)
        await wait_for(run, lambda: job.job_id is not None, "it is accepted")
        cluster.store.take_copy()
        for node in cluster.nodes:
            cluster.start_agent(node)
        first = await running(run, job, number=1, executors=2)
        home = node_of(run, first).machine.name
        cluster.network.cut(home, JM_NODE)
        put_back(run)
        await asyncio.sleep(late)
        cluster.network.mend(home, JM_NODE)
        assert await running(run, job, number=1, executors=2) is first
        await run.end_everything()

    passes(story, task_managers=2, files=False)


def test_a_leader_with_an_older_epoch_ends_nobody_and_goes_on_once_it_is_raised() -> None:
    """As when the machine's clock stood before the last start, or in ZooKeeper. One job is newer than the copy."""

    async def story(run: Run) -> None:
        cluster = run.cluster
        old = cluster.submit("old", STREAM)
        before = await running(run, old, number=1, executors=2)
        cluster.store.take_copy()
        epoch = cluster.store.disk.epoch
        new = cluster.submit("new", Script(seconds=None, executors=1))
        unknown = await running(run, new, number=1, executors=1)
        cluster.kill_job_manager()
        cluster.store.disk.crash()
        cluster.store.disk.epoch += 5
        cluster.start_job_manager()
        await asyncio.sleep(2 * cluster.configuration[HEARTBEAT_TIMEOUT])
        newest, processes = cluster.store.disk.epoch, everything(run)
        cluster.jobs.remove(new)
        put_back(run)
        cluster.store.disk.epoch = epoch
        await wait_for(run, lambda: strangers(run), "the JobManager names those who know of a later leader")
        await asyncio.sleep(2 * cluster.configuration[DRIVER_LEASE] + cluster.configuration[HEARTBEAT_TIMEOUT])
        assert all(process.alive for process in processes if process.name != "jobmanager")
        assert {unknown, before} <= set(drivers(run))
        assert all(f"epoch {newest} (the JobManager: {epoch + 1})" in stranger.lineage for stranger in strangers(run))
        cluster.kill_job_manager()
        cluster.store.disk.crash()
        cluster.store.disk.epoch = newest
        cluster.start_job_manager()
        assert await running(run, old, number=1, executors=2) is before
        await run.end_everything()

    passes(story, task_managers=2, files=False)


def test_many_stores_are_put_back() -> None:
    numbers = seeds(6, theme="older")
    batch = simulate_many([f"older-{number}" for number in numbers], stop_after=1)
    for report in batch.failures:
        keep(int(report.seed.rpartition("-")[2]), theme="older")
    assert not batch.failures, batch.failures[0].failure()
    assert not seldom(batch.counts, {"store put back": len(numbers)})
