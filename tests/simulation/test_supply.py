"""Task managers that the JobManager starts and ends itself, in a cluster of real actors on virtual time."""

from __future__ import annotations

import asyncio

import pytest

from emberkeep.blocklist.model import BlockAction
from emberkeep.jobs.model import JobStatus
from tests.campaign import keep, seeds
from tests.simulation.test_blocklist import blocked
from tests.simulation.test_cluster import STREAM, executors, passes, running, status, wait_for
from tests.support.simulator.cluster import ClusterPlan, TaskManagerNode
from tests.support.simulator.scripts import Script
from tests.support.simulator.simulation import Run, play
from tests.support.simulator.supply import SimDriver
from tests.support.simulator.virtual_loop import seeded_random

SEEDS = seeds(13, theme="supply")
QUICK = {"resourcemanager.taskmanager-timeout": "8s", "resourcemanager.taskmanager-registration.timeout": "20s"}


def up(run: Run) -> list[TaskManagerNode]:
    return [node for node in run.cluster.nodes if node.agent is not None and node.agent.alive]


def driver(run: Run) -> SimDriver:
    assert run.cluster.supply is not None
    return run.cluster.supply


def kill_leader(run: Run) -> None:
    run.cluster.kill_job_manager()
    run.cluster.start_job_manager()


@pytest.mark.req("BLK-9")
def test_they_come_when_needed_avoid_blocked_nodes_and_go_when_idle() -> None:
    async def story(run: Run) -> None:
        await asyncio.sleep(20.0)
        assert not up(run), "nobody needs any"
        await blocked(run, "node-1", BlockAction.MARK_BLOCKED)
        job = run.cluster.submit("stream", Script(seconds=None, executors=3))
        process = await running(run, job, number=1, executors=3)
        assert {node.machine.name for node in up(run)} == {"node-2", "node-3"}, "3 executors need two of them"
        assert driver(run).starts == 2
        run.cluster.blocklist.unblock("node-1")
        short = run.cluster.submit("batch", Script(seconds=5, executors=3))
        await wait_for(run, lambda: len(up(run)) > 2, "more are started")
        await wait_for(run, lambda: status(run, short) is JobStatus.FINISHED, "it ends")
        await wait_for(run, lambda: len(up(run)) == 2, "what is idle ends")
        assert await running(run, job, number=1, executors=3) is process
        run.cluster.cancel(job)
        await wait_for(run, lambda: not up(run), "nothing is left")
        await wait_for(run, lambda: not driver(run).listed, "and forgotten")

    passes(story, task_managers=4, slots=2, on_demand=True, options=QUICK)


@pytest.mark.req("BLK-9")
def test_the_minimum_is_there_before_any_job() -> None:
    async def story(run: Run) -> None:
        await wait_for(run, lambda: len(up(run)) == 2, "three slots are kept")
        await asyncio.sleep(30.0)
        assert len(up(run)) == 2
        await blocked(run, "node-1", BlockAction.MARK_BLOCKED)
        await wait_for(run, lambda: "node-1" not in {node.machine.name for node in up(run)}, "it is of no use there")
        assert len(up(run)) == 2

    passes(story, task_managers=3, slots=2, on_demand=True, options={**QUICK, "slotmanager.number-of-slots.min": "3"})


@pytest.mark.req("BLK-9")
def test_a_killed_leader_starts_no_doubles_and_a_dead_task_manager_is_started_again() -> None:
    async def story(run: Run) -> None:
        job = run.cluster.submit("stream", STREAM)
        await wait_for(run, lambda: driver(run).listed, "a start begins")
        kill_leader(run)
        process = await running(run, job, number=1, executors=2)
        assert len(up(run)) == 1
        (node,) = up(run)
        assert node.agent is not None
        before = set(executors(run))
        run.cluster.machines.kill(node.agent)
        await wait_for(run, lambda: bool(up(run)), "it is started again")
        await run.settle()
        assert up(run) == [node]
        assert set(executors(run)) == before, "what ran there goes on"
        assert await running(run, job, number=1, executors=2) is process
        run.cluster.cancel(job)
        await wait_for(run, lambda: not up(run), "nothing is left")

    passes(story, task_managers=3, slots=2, on_demand=True, options=QUICK)


@pytest.mark.campaign
@pytest.mark.req("BLK-9")
def test_whatever_is_killed_jobs_end_and_nothing_stays() -> None:
    for seed in SEEDS:

        async def story(run: Run, seed: int = seed) -> None:
            rng = seeded_random(seed, "kills")
            driver(run).failures = rng.choice((0.0, 0.2))
            for number in range(3):
                run.cluster.submit(f"job-{number}", Script(seconds=rng.uniform(3.0, 15.0), executors=rng.randint(1, 3)))
                await asyncio.sleep(rng.uniform(0.0, 10.0))
                if rng.random() < 0.6:
                    kill_leader(run)
                elif up(run):
                    agent = rng.choice(up(run)).agent
                    assert agent is not None
                    run.cluster.machines.kill(agent)
                assert len(driver(run).listed) <= 4
            driver(run).failures = 0.0
            await run.settle()
            await wait_for(run, lambda: not up(run) and not driver(run).listed, "nothing stays")
            assert not list(run.cluster.machines.drivers())
            assert not executors(run)

        plan = ClusterPlan(seed=f"supply-{seed}", task_managers=4, slots=2, on_demand=True, options=QUICK)
        report = play(plan, story)
        if report.violations:
            keep(seed, theme="supply")
        assert not report.violations, report.failure()
