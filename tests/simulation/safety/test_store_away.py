"""A leader that cannot write to its store: what it hears of ends is not lost, and it decides nothing."""

from __future__ import annotations

import asyncio
import contextvars
from dataclasses import dataclass

import pytest

from emberkeep.base.configuration.options.job_managers import HEARTBEAT_TIMEOUT
from emberkeep.base.configuration.options.jobs import DRIVER_LEASE
from emberkeep.jobs.model import JobStatus
from tests.simulation.test_cluster import attempt, drivers, passes, running, status, wait_for
from tests.simulation.test_crash_points import AWAY, check_end
from tests.simulation.test_cut_off_leader import ONE_EXECUTOR, Cut, everything
from tests.simulation.test_supply import QUICK, up
from tests.support.simulator.cluster import ClusterPlan
from tests.support.simulator.scripts import Script
from tests.support.simulator.simulation import Report, Run, play, simulate

BEYOND_THE_END = 40  # steps that a leader without its store goes through until nothing of the job is left


@dataclass
class Severed:
    """The leader loses its store when a driver tells it the end of its script, and dies ``steps`` steps later."""

    run: Run
    steps: int
    seen: int | None = None  # steps since then

    def step(self, process: str, what: str) -> None:
        leader = self.run.cluster.jm_process
        if process != "jobmanager" or leader is None:
            return
        if self.seen is None:
            if what == "receives ReportOutcome":
                self.run.cluster.store.sever(leader)
                self.seen = 0
            return
        self.seen += 1
        if self.seen == self.steps + 1:
            self.run.cluster.history.add("test", f"the leader dies at: {what}")
            self.kill()

    def kill(self) -> None:
        cluster = self.run.cluster
        cluster.kill_job_manager()
        # In a context of its own: what a dead process has scheduled never runs.
        self.run.loop.call_later(AWAY, cluster.start_job_manager, context=contextvars.Context())


def lived(steps: int) -> Report:
    """A job with several executors, all of which take long to end, succeeds while its leader cannot write."""

    async def story(run: Run) -> None:
        severed = Severed(run, steps)
        run.cluster.history.on_step.append(severed.step)
        job = run.cluster.submit("batch", Script(seconds=4.0, executors=3))
        await run.settle()
        check_end(run, job, JobStatus.FINISHED)
        await run.end_everything()

    return play(ClusterPlan(seed="severed", task_managers=1, slots=3, slow_ends=1.0, clinging_executors=True), story)


@pytest.mark.req("SAFE-9")
def test_a_job_whose_success_was_told_to_a_leader_without_its_store_is_not_run_again() -> None:
    """Whenever that leader dies, between two heartbeats as well."""
    failures = [report for steps in range(BEYOND_THE_END) if (report := lived(steps)).violations]
    assert not failures, f"{len(failures)} of {BEYOND_THE_END} deaths\n" + failures[0].failure()


class Away:
    """The leader cannot write; ``told``: it knows that at once, as its session is suspended."""

    def __init__(self, run: Run, *, told: bool) -> None:
        self._run, self._told = run, told
        run.cluster.store.lose()
        if told:
            assert run.cluster.jm_service is not None
            run.cluster.jm_service.pause()

    def end(self) -> None:
        self._run.cluster.store.away_since = None
        if self._told:
            assert self._run.cluster.jm_service is not None
            self._run.cluster.jm_service.resume()


@pytest.mark.req("SAFE-10")
@pytest.mark.parametrize("told", [True, False], ids=["session suspended", "disk full"])
def test_a_leader_without_its_store_gives_no_driver_up_and_counts_silence_anew_afterwards(told: bool) -> None:
    """One of three nodes is silent meanwhile, the others are heard: its silence would count."""

    async def story(run: Run) -> None:
        jobs = [run.cluster.submit(f"stream-{number}", ONE_EXECUTOR) for number in range(3)]
        for job in jobs:
            await running(run, job, number=1, executors=1)
        before = everything(run)
        configuration = run.cluster.configuration
        away, cut = Away(run, told=told), Cut(run, 1)
        await asyncio.sleep(3 * configuration[DRIVER_LEASE])
        away.end()
        await asyncio.sleep(configuration[HEARTBEAT_TIMEOUT] * 0.9)  # silent on, but not for long since then
        cut.heal()
        await asyncio.sleep(2 * configuration[DRIVER_LEASE])
        assert everything(run) == before
        assert [attempt(run, job) for job in jobs] == [1, 1, 1]
        await run.end_everything()

    passes(story)


@pytest.mark.req("SAFE-10")
@pytest.mark.parametrize("told", [True, False], ids=["session suspended", "disk full"])
def test_a_leader_without_its_store_starts_no_task_manager_again_and_ends_none(told: bool) -> None:
    async def story(run: Run) -> None:
        job = run.cluster.submit("stream", ONE_EXECUTOR)
        process = await running(run, job, number=1, executors=1)
        (node,) = up(run)
        assert node.agent is not None
        assert run.cluster.supply is not None
        away, starts = Away(run, told=told), run.cluster.supply.starts
        await asyncio.sleep(5.0)
        run.cluster.machines.kill(node.agent)
        await asyncio.sleep(30.0)
        assert (run.cluster.supply.listed, run.cluster.supply.starts) == ({node.id}, starts)
        away.end()
        await wait_for(run, lambda: up(run) == [node], "it is started again")
        assert await running(run, job, number=1, executors=1) is process
        run.cluster.cancel(job)
        await wait_for(run, lambda: not up(run), "nothing is left")

    passes(story, on_demand=True, options=QUICK)


@pytest.mark.req("SAFE-10")
def test_a_driver_that_stays_silent_is_given_up_once_the_store_is_back() -> None:
    async def story(run: Run) -> None:
        jobs = [run.cluster.submit(f"stream-{number}", ONE_EXECUTOR) for number in range(3)]
        for job in jobs:
            await running(run, job, number=1, executors=1)
        away, cut = Away(run, told=False), Cut(run, 1)
        await asyncio.sleep(2 * run.cluster.configuration[DRIVER_LEASE])
        assert [attempt(run, job) for job in jobs] == [1, 1, 1]
        away.end()
        await wait_for(run, lambda: sorted(attempt(run, job) for job in jobs) == [1, 1, 2], "one is given up")
        cut.heal()
        await run.end_everything()

    passes(story)


@pytest.mark.req("SAFE-10")
@pytest.mark.parametrize("told", [True, False], ids=["session suspended", "disk full"])
def test_a_script_that_ends_meanwhile_is_told_again_when_the_store_is_back(told: bool) -> None:
    """Its driver is not answered, and has ended long before; its task manager was started again."""

    async def story(run: Run) -> None:
        job = run.cluster.submit("batch", Script(seconds=4.0))
        await running(run, job, number=1, executors=1)
        away = Away(run, told=told)
        await wait_for(run, lambda: not drivers(run), "its driver ends")
        node = next(node for node in run.cluster.nodes if node.agent is not None)
        assert node.agent is not None
        run.cluster.machines.kill(node.agent)
        run.cluster.start_agent(node)
        await asyncio.sleep(2 * run.cluster.configuration[DRIVER_LEASE])
        assert status(run, job) is JobStatus.RUNNING
        away.end()
        await run.settle()
        check_end(run, job, JobStatus.FINISHED)
        await run.end_everything()

    passes(story, task_managers=1)


@pytest.mark.req("SAFE-9")
def test_the_success_of_an_attempt_that_was_given_up_is_not_acknowledged() -> None:
    """Found by a campaign: a driver that was frozen for longer than its lease reported, and its job ran again."""
    report = simulate("7771668")
    assert not report.violations, report.failure()
