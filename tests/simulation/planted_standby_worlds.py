"""Worlds in which planted bugs of standby processes are looked for, beside the themes of the simulator."""

from __future__ import annotations

import asyncio
from functools import partial

from emberkeep.jobs.model import JobStatus
from tests.simulation.test_cluster import running, status, wait_for
from tests.simulation.test_supply import QUICK
from tests.support.simulator.cluster import ClusterPlan, SubmittedJob
from tests.support.simulator.scripts import Script
from tests.support.simulator.simulation import Report, Run, play


def permanent_stop(seed: str, seconds: float) -> Report:
    """Task managers come for jobs of so many seconds and go when they are idle, whatever their pools do then."""

    async def story(run: Run) -> None:
        for number in range(2):
            job = run.cluster.submit(f"batch-{number}", Script(seconds=seconds, executors=2))
            await wait_for(run, partial(has_finished, run, job), f"{job.name} ends")
        await run.settle()
        agents = [node.agent for node in run.cluster.nodes if node.agent is not None]
        await wait_for(run, lambda: not any(agent.alive for agent in agents), "what is idle ends")
        left = run.cluster.room.standbys.waiting()
        if left:
            run.cluster.history.violate("s", f"{left[0].process.name} is left after the permanent stop")

    def has_finished(run: Run, job: SubmittedJob) -> bool:
        return status(run, job) is JobStatus.FINISHED

    plan = ClusterPlan(
        seed=seed, task_managers=2, slots=2, on_demand=True, options=QUICK, standby_drivers=1, standby_executors=2
    )
    return play(plan, story)


def stopped_for_good(number: int) -> tuple[str, ...]:
    """Task managers are stopped for good while their pools are complete, warm up or are empty."""
    return permanent_stop(f"planted {number}", 2.0 + number % 30).violations


def filled(number: int) -> tuple[str, ...]:
    """A task manager has a complete pool, and then a job that needs nearly all of its memory."""

    async def story(run: Run) -> None:
        await asyncio.sleep(20.0 + number)
        job = run.cluster.submit("wide", Script(seconds=None, executors=3, memory_mb=2048))
        await running(run, job, number=1, executors=3)
        await asyncio.sleep(60.0)
        await run.end_everything()

    plan = ClusterPlan(seed=f"filled {number}", task_managers=1, memory_mb=7200, standby_drivers=1, standby_executors=2)
    return play(plan, story).violations
