"""Reserved standbys of streams in whole clusters on virtual time: the next attempt of a job takes its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from emberkeep.daemons.taskmanager import standby_starts
from emberkeep.slots.standbys.events import StandbyKind
from tests.simulation.test_cluster import attempt, drivers, node_of, passes, running, wait_for
from tests.support.simulator.cluster import SubmittedJob
from tests.support.simulator.scripts import Script
from tests.support.simulator.simulation import Report, Run
from tests.support.simulator.standbys import SimStandby

STREAM = Script(seconds=None, executors=1)
HOT = {"execution.standby": "hot"}
HEARTBEAT = 1.5  # seconds

# Task managers that keep standby drivers only, so that each of them could keep the reserved one.
in_cluster = partial(passes, task_managers=3, standby_drivers=1)


def reserved(run: Run, job: SubmittedJob) -> list[SimStandby]:
    """The living standbys that have imported what a job needs."""
    return [each for each in run.cluster.room.standbys.waiting() if each.reserved_for == job.job_id]


def is_ready(run: Run, job: SubmittedJob) -> bool:
    """True if a task manager has the job's reserved standby ready."""
    launchers = [node.launcher for node in run.cluster.nodes if node.launcher is not None]
    return any((job.job_id, "") in launcher.pool.reserved().items() for launcher in launchers)


async def with_standby(run: Run, number: int = 1) -> tuple[SubmittedJob, SimStandby]:
    """A stream whose reserved standby is ready, on another node than the driver."""
    job = run.cluster.submit(f"stream-{number}", STREAM, HOT)
    driver = await running(run, job, number=1, executors=1)
    await wait_for(run, lambda: reserved(run, job) and is_ready(run, job), "its reserved standby is ready")
    (standby,) = reserved(run, job)
    assert standby.process.owner != driver.owner
    await known()
    return job, standby


async def known() -> None:
    """Wait until the leader has a report of all task managers."""
    await asyncio.sleep(2 * HEARTBEAT)


def story_of(steps: Callable[[Run], Awaitable[None]], monkeypatch: pytest.MonkeyPatch, **plan: object) -> Report:
    """Play the steps while the files of jobs can always be fetched."""
    monkeypatch.setattr("tests.support.simulator.standbys.UNFETCHED", 0.0)
    return in_cluster(steps, **plan)


def test_the_next_driver_takes_it_and_another_one_is_reserved_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(run: Run) -> None:
        job, standby = await with_standby(run)
        run.cluster.machines.kill(drivers(run)[0])
        driver = await running(run, job, number=2, executors=1)
        assert driver is standby.process
        await wait_for(run, lambda: reserved(run, job) and is_ready(run, job), "there is another one")
        assert reserved(run, job)[0].process.owner != driver.owner
        await run.end_everything()

    assert story_of(story, monkeypatch).counts["reserved standby began"] == 1


def test_a_driver_that_is_lost_with_its_node_goes_on_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(run: Run) -> None:
        job, standby = await with_standby(run)
        lost = node_of(run, drivers(run)[0])
        run.cluster.machines.crash(lost.machine)
        assert await running(run, job, number=2, executors=1) is standby.process
        run.cluster.machines.power_on(lost.machine)
        run.cluster.start_agent(lost)
        await run.end_everything()

    assert story_of(story, monkeypatch).counts["reserved standby began"] == 1


def test_another_job_does_not_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another stream loses its driver, and the only warm process that fits is the first one's."""

    async def story(run: Run) -> None:
        _, standby = await with_standby(run)
        other = run.cluster.submit("other", STREAM)
        await running(run, other, number=1, executors=1)
        for process in run.cluster.room.standbys.waiting():
            if process is not standby:
                run.cluster.machines.kill(process.process)
        theirs = next(each for each in drivers(run) if each.key is not None and each.key.job_id == other.job_id)
        run.cluster.machines.kill(theirs)
        assert await running(run, other, number=2, executors=1) is not standby.process
        assert standby.process.alive
        await run.end_everything()

    story_of(story, monkeypatch)


def test_each_of_two_streams_gets_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(run: Run) -> None:
        jobs = [await with_standby(run, number) for number in (1, 2)]
        for driver in drivers(run):
            run.cluster.machines.kill(driver)
        for job, standby in jobs:
            assert await running(run, job, number=2, executors=1) is standby.process
        await run.end_everything()

    assert story_of(story, monkeypatch).counts["reserved standby began"] == 2


def test_it_ends_with_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(run: Run) -> None:
        job, standby = await with_standby(run)
        run.cluster.cancel(job)
        await wait_for(run, lambda: not standby.process.alive, "it has ended")
        await run.end_everything()

    story_of(story, monkeypatch)


def test_it_survives_a_change_of_the_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(run: Run) -> None:
        job, standby = await with_standby(run)
        run.cluster.kill_job_manager()
        run.cluster.machines.kill(drivers(run)[0])
        run.cluster.start_job_manager()
        assert await running(run, job, number=2, executors=1) is standby.process
        await run.end_everything()

    assert story_of(story, monkeypatch).counts["reserved standby began"] == 1


def test_it_follows_when_its_task_manager_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(run: Run) -> None:
        job, standby = await with_standby(run)
        node = node_of(run, standby.process)
        run.cluster.machines.crash(node.machine)
        await wait_for(run, lambda: reserved(run, job) and is_ready(run, job), "it is on the third node")
        (moved,) = reserved(run, job)
        assert moved.process.owner not in {node.id, drivers(run)[0].owner}
        run.cluster.machines.power_on(node.machine)
        run.cluster.start_agent(node)
        await run.end_everything()
        assert attempt(run, job) == 1

    story_of(story, monkeypatch)


@pytest.mark.parametrize("what", ["dies", "hangs"])
def test_imports_that_end_or_stop_it_cost_no_warm_process_for_long(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job's next reserved standby imports nothing, and is taken all the same."""
    monkeypatch.setattr(standby_starts, "_IMPORT_SECONDS", 20.0)

    async def imports(self: SimStandby) -> None:
        if what == "dies":
            self.room.machines.exit(self.process, 1)
        else:
            self.process.party.scope.freeze()

    async def story(run: Run) -> None:
        monkeypatch.setattr(SimStandby, "_import", imports)
        job = run.cluster.submit("stream", STREAM, HOT)
        await running(run, job, number=1, executors=1)
        started = run.cluster.room.standbys.standbys
        await wait_for(run, lambda: any(each.reserved_for for each in started.values()), "it imports")
        (bad,) = [each for each in started.values() if each.reserved_for]
        await wait_for(run, lambda: not bad.process.alive, "it has ended")
        await wait_for(run, lambda: is_ready(run, job), "the next one is ready")
        await known()
        run.cluster.machines.kill(drivers(run)[0])
        await running(run, job, number=2, executors=1)
        await run.end_everything()

    counts = story_of(story, monkeypatch).counts
    assert counts["driver started hot"] >= 1


def test_without_files_it_is_warm_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.support.simulator.standbys.UNFETCHED", 1.0)

    async def story(run: Run) -> None:
        job = run.cluster.submit("stream", STREAM, HOT)
        await running(run, job, number=1, executors=1)
        await wait_for(run, lambda: is_ready(run, job), "its reserved standby is ready")
        await known()
        run.cluster.machines.kill(drivers(run)[0])
        await running(run, job, number=2, executors=1)
        await run.end_everything()

    assert in_cluster(story).counts["driver started hot"] >= 1


def test_a_job_that_does_not_ask_for_one_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(run: Run) -> None:
        job = run.cluster.submit("stream", STREAM)
        await running(run, job, number=1, executors=1)
        pools = [node.launcher.pool for node in run.cluster.nodes if node.launcher is not None]

        def is_complete() -> bool:
            return all(pool.count_ready()[StandbyKind.DRIVER] == 1 for pool in pools)

        await wait_for(run, is_complete, "all pools are complete")
        assert not any(pool.reserved() for pool in pools)
        await run.end_everything()

    story_of(story, monkeypatch)
