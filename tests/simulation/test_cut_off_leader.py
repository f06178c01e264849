"""A JobManager that cannot be reached, in a cluster of real actors on virtual time: it has to suspect itself."""

import asyncio

import pytest

from emberkeep.base.configuration.options.job_managers import HEARTBEAT_TIMEOUT
from emberkeep.base.configuration.options.jobs import DRIVER_LEASE
from emberkeep.base.configuration.options.task_managers import ORPHAN_TIMEOUT
from emberkeep.jobs.model import JobStatus
from tests.simulation.test_cluster import STREAM, attempt, drivers, executors, passes, running, status, wait_for
from tests.support.simulator.machines import Process
from tests.support.simulator.scripts import Script
from tests.support.simulator.simulation import Run

ONE_EXECUTOR = Script(seconds=None, executors=1)


class Cut:
    """Nothing passes from these nodes to the JobManager's, and back unless ``one_way``."""

    def __init__(self, run: Run, *numbers: int, one_way: bool = False) -> None:
        there = run.cluster.jm_machine.name
        self._network = run.cluster.network
        self._ways = [(f"node-{number}", there) for number in numbers]
        if not one_way:
            self._ways += [(there, here) for here, _ in self._ways]
        for way in self._ways:
            self._network.cut(*way)

    def heal(self) -> None:
        for way in self._ways:
            self._network.mend(*way)


def everything(run: Run) -> list[Process]:
    return [*drivers(run), *executors(run)]


@pytest.mark.req("HA-5")
@pytest.mark.parametrize("one_way", [False, True])
def test_a_leader_that_nobody_reaches_gives_up_no_driver_however_long_that_lasts(one_way: bool) -> None:
    async def story(run: Run) -> None:
        jobs = [run.cluster.submit(f"stream-{number}", STREAM) for number in range(2)]
        for job in jobs:
            await running(run, job, number=1, executors=2)
        before = everything(run)
        cut = Cut(run, 1, 2, one_way=one_way)
        await asyncio.sleep(run.cluster.configuration[ORPHAN_TIMEOUT] * 0.9)
        assert {status(run, job) for job in jobs} == {JobStatus.RUNNING}
        cut.heal()
        await asyncio.sleep(run.cluster.configuration[DRIVER_LEASE] * 2)
        assert everything(run) == before
        assert [attempt(run, job) for job in jobs] == [1, 1]
        await run.end_everything()

    passes(story, task_managers=2)


@pytest.mark.req("HA-5")
def test_a_job_that_is_cancelled_meanwhile_ends() -> None:
    async def story(run: Run) -> None:
        job = run.cluster.submit("stream", STREAM)
        await running(run, job, number=1, executors=2)
        cut = Cut(run, 1, 2)
        await asyncio.sleep(run.cluster.configuration[HEARTBEAT_TIMEOUT] * 2)
        run.cluster.cancel(job)
        await wait_for(run, lambda: status(run, job) is JobStatus.CANCELED, "it is cancelled")
        cut.heal()
        await run.end_everything()

    passes(story, task_managers=2)


@pytest.mark.req("HA-5")
@pytest.mark.parametrize("for_long", [False, True])
def test_of_three_nodes_two_that_fall_silent_at_once_are_given_up_later(for_long: bool) -> None:
    async def story(run: Run) -> None:
        jobs = [run.cluster.submit(f"stream-{number}", ONE_EXECUTOR) for number in range(3)]
        for job in jobs:
            await running(run, job, number=1, executors=1)
        before = drivers(run)
        assert {driver.owner for driver in before} == {"tm-1", "tm-2", "tm-3"}, "drivers spread"
        configuration = run.cluster.configuration
        # One alone would be given up after its lease.
        doubt = configuration[DRIVER_LEASE] + configuration[HEARTBEAT_TIMEOUT] / 2
        cut = Cut(run, 1, 2)
        await asyncio.sleep(doubt + (2 * configuration[DRIVER_LEASE] if for_long else 0))
        assert sorted(attempt(run, job) for job in jobs) == ([1, 2, 2] if for_long else [1, 1, 1])
        cut.heal()
        await asyncio.sleep(2 * configuration[DRIVER_LEASE])
        assert (drivers(run) == before) is not for_long
        await run.end_everything()

    passes(story)
