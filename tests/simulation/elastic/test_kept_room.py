"""What a job keeps while it restarts: its driver's place and its slots, against jobs that wait."""

from __future__ import annotations

import pytest

from emberkeep.base.ids import JobId
from emberkeep.blocklist.model import EvacuatedDrivers
from emberkeep.jobs.model import JobStatus
from tests.simulation.test_blocklist import EVACUATE, blocked
from tests.simulation.test_cluster import attempt, drivers, executors, node_of, passes, running, status, wait_for
from tests.support.simulator.cluster import DRIVER_MEMORY_MB, SubmittedJob
from tests.support.simulator.machines import Process
from tests.support.simulator.scripts import Script
from tests.support.simulator.simulation import Run

STREAM = Script(seconds=None, executors=2)
PAUSE = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "8s"}


def alone(run: Run, job: SubmittedJob) -> bool:
    """True if all drivers and executors that run are the job's."""
    return jobs_of(drivers(run)) | jobs_of(executors(run)) <= {job.job_id}


def jobs_of(processes: list[Process]) -> set[JobId | None]:
    return {process.key.job_id for process in processes if process.key is not None}


@pytest.mark.req("RES-3", "HA-5")
@pytest.mark.parametrize("options", [{}, PAUSE], ids=["at-once", "after-a-pause"])
def test_a_waiting_job_does_not_take_the_driver_place_of_one_that_restarts(options: dict[str, str]) -> None:
    async def story(run: Run) -> None:
        first = run.cluster.submit("first", STREAM)
        driver = await running(run, first, number=1, executors=2)
        await wait_for(run, lambda: run.loop.time() > 60.0, "the first job has run for a while")
        second = run.cluster.submit("second", STREAM)
        await wait_for(run, lambda: status(run, second) is JobStatus.CREATED, "the second job waits")
        run.cluster.machines.kill(driver)
        await wait_for(run, lambda: attempt(run, first) == 2 or not alone(run, first), "a driver starts")
        await running(run, first, number=2, executors=2)
        assert alone(run, first), "the second job goes on waiting"
        run.cluster.cancel(first)
        await running(run, second, number=1, executors=2)
        await run.end_everything()

    passes(story, task_managers=1, slots=4, driver_places=1, options=options)


@pytest.mark.req("RES-3", "HA-5")
@pytest.mark.parametrize("options", [{}, PAUSE], ids=["at-once", "after-a-pause"])
def test_a_job_that_lacks_slots_does_not_take_those_of_one_that_restarts(options: dict[str, str]) -> None:
    async def story(run: Run) -> None:
        first = run.cluster.submit("first", STREAM)
        driver = await running(run, first, number=1, executors=2)
        second = run.cluster.submit("second", STREAM)
        await running(run, second, number=1, executors=0)
        await wait_for(run, lambda: run.loop.time() > 60.0, "the first job has run for a while")
        run.cluster.machines.kill(driver)
        await running(run, first, number=2, executors=2)
        assert jobs_of(executors(run)) == {first.job_id}
        run.cluster.cancel(first)
        await running(run, second, number=1, executors=2)
        await run.end_everything()

    passes(story, task_managers=1, slots=2, driver_places=2, options=options)


@pytest.mark.req("RES-3", "BLK-18")
def test_a_driver_that_leaves_its_node_gets_the_memory_of_its_own_slots() -> None:
    async def story(run: Run) -> None:
        job = run.cluster.submit("stream", Script(seconds=None, executors=3))
        driver = await running(run, job, number=1, executors=3)
        await wait_for(run, lambda: run.loop.time() > 60.0, "it has run for a while")
        began = run.loop.time()
        await blocked(
            run, f"node-{node_of(run, driver).id.removeprefix('tm-')}", EVACUATE, drivers=EvacuatedDrivers.RESTART
        )
        await running(run, job, number=2, executors=1)
        assert run.loop.time() - began < 30.0
        await run.end_everything()

    # A driver and one executor fit on a node, or two executors.
    passes(story, task_managers=2, slots=2, driver_places=1, memory_mb=2 * 1024 + DRIVER_MEMORY_MB // 2)
