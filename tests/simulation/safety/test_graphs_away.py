"""The storage with the job graphs is away when a leader takes over: nothing ends, nothing starts, until it is back."""

import asyncio

import pytest

from emberkeep.base.configuration.options.job_managers import HEARTBEAT_TIMEOUT
from emberkeep.base.configuration.options.jobs import DRIVER_LEASE
from emberkeep.jobs.model import JobStatus
from tests.simulation.test_cluster import STREAM, attempt, drivers, executors, passes, running, status, wait_for
from tests.support.simulator.cluster import SubmittedJob
from tests.support.simulator.scripts import Script
from tests.support.simulator.simulation import Run


def take_over(run: Run) -> None:
    """The JobManager dies, and the next one finds no graphs."""
    run.cluster.kill_job_manager()
    run.cluster.store.disk.away = True
    run.cluster.start_job_manager()


async def long_enough(run: Run) -> None:
    """Whoever would condemn a driver has done so."""
    configuration = run.cluster.configuration
    await asyncio.sleep(3 * (configuration[DRIVER_LEASE] + configuration[HEARTBEAT_TIMEOUT]))


def waits(run: Run, job: SubmittedJob) -> bool:
    view = next((view for view in run.jobs_shown if view.job_id == job.job_id), None)
    return view is not None and view.unreadable and "cannot be read now" in view.waiting


@pytest.mark.req("SAFE-1")
def test_healthy_drivers_go_on_and_are_re_attached() -> None:
    async def story(run: Run) -> None:
        job = run.cluster.submit("stream", STREAM)
        await running(run, job, number=1, executors=2)
        before = [*drivers(run), *executors(run)]
        take_over(run)
        await wait_for(run, lambda: waits(run, job), "it is said")
        await long_enough(run)
        assert status(run, job) is JobStatus.RUNNING
        assert [*drivers(run), *executors(run)] == before
        run.cluster.store.disk.away = False
        await wait_for(run, lambda: run.jobs_shown and not waits(run, job), "the graph is read again")
        assert await running(run, job, number=1, executors=2) is before[0]
        await run.end_everything()

    passes(story)


@pytest.mark.req("SAFE-1")
def test_executors_are_replaced_meanwhile() -> None:
    async def story(run: Run) -> None:
        job = run.cluster.submit("stream", STREAM)
        driver = await running(run, job, number=1, executors=2)
        take_over(run)
        await wait_for(run, lambda: waits(run, job), "it is said")
        run.cluster.machines.kill(executors(run)[0])
        assert await running(run, job, number=1, executors=2) is driver
        run.cluster.store.disk.away = False
        await run.end_everything()

    passes(story)


@pytest.mark.req("SAFE-1")
def test_a_driver_that_dies_meanwhile_is_restarted_afterwards() -> None:
    async def story(run: Run) -> None:
        job = run.cluster.submit("stream", STREAM)
        driver = await running(run, job, number=1, executors=2)
        take_over(run)
        await wait_for(run, lambda: waits(run, job), "it is said")
        run.cluster.machines.kill(driver)
        await long_enough(run)
        assert drivers(run) == []
        assert attempt(run, job) == 1
        run.cluster.store.disk.away = False
        await running(run, job, number=2, executors=2)
        await run.end_everything()

    passes(story)


@pytest.mark.req("SAFE-1")
def test_a_script_that_succeeds_meanwhile_has_succeeded() -> None:
    async def story(run: Run) -> None:
        job = run.cluster.submit("batch", Script(seconds=5, executors=2))
        await running(run, job, number=1, executors=2)
        take_over(run)
        await wait_for(run, lambda: not drivers(run), "the script ends")
        await long_enough(run)
        assert job.job_id not in run.cluster.store.recorded
        run.cluster.store.disk.away = False
        await run.settle()
        assert status(run, job) is JobStatus.FINISHED
        assert attempt(run, job) == 1
        await run.end_everything()

    passes(story)


@pytest.mark.req("SAFE-1")
@pytest.mark.parametrize("started", [True, False])
def test_a_person_may_cancel_such_a_job(started: bool) -> None:
    async def story(run: Run) -> None:
        job = run.cluster.submit("stream", STREAM if started else Script(seconds=None, memory_mb=1024, executors=999))
        if started:
            await running(run, job, number=1, executors=2)
        else:
            await wait_for(run, lambda: job.job_id is not None, "it is accepted")
        take_over(run)
        await wait_for(run, lambda: waits(run, job), "it is said")
        run.cluster.cancel(job)
        await wait_for(run, lambda: status(run, job) is JobStatus.CANCELED, "it is cancelled")
        await run.end_everything()

    passes(story)


@pytest.mark.req("SAFE-1")
def test_the_next_leader_finds_the_graphs_away_as_well() -> None:
    async def story(run: Run) -> None:
        job = run.cluster.submit("stream", STREAM)
        driver = await running(run, job, number=1, executors=2)
        for _ in range(3):
            take_over(run)
            await wait_for(run, lambda: waits(run, job), "it is said")
        run.cluster.store.disk.away = False
        await wait_for(run, lambda: not waits(run, job), "the graph is read again")
        assert await running(run, job, number=1, executors=2) is driver
        await run.end_everything()

    passes(story)
