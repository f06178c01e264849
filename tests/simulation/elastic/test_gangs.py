"""Gangs in whole clusters: jobs that need all their executors at once, of which few fit at a time, whatever fails."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.campaign import seeds
from tests.simulation.elastic.test_reclaimed_slots import (
    World,
    agent_dies,
    evacuation,
    executors_die,
    nothing,
    pool_of,
    takeover,
    two_takeovers,
    work_of,
)
from tests.support.simulator.cluster import ClusterPlan, SubmittedJob
from tests.support.simulator.properties import TICK
from tests.support.simulator.scripts import Script
from tests.support.simulator.simulation import Run, play
from tests.support.simulator.virtual_loop import seeded_random

pytestmark = [pytest.mark.campaign, pytest.mark.req("RES-4")]

SLOTS = 6
# Any two of the gangs are too large together. The others are small, and come and go beside them.
GANGS = {"first": 4, "second": 5, "third": 6}
OTHERS = {"small-1": 1, "small-2": 2}
# Seconds in which an attempt of a gang that begins may hold a part of its slots: one may come late, or be lost.
BEGINS_WITHIN = {"nothing": 5.0, "takeover": 10.0, "two_takeovers": 15.0}
USUALLY_BEGINS_WITHIN = 60.0
BOUND = 900.0  # seconds for all jobs, with what the faults cost
FAULTS = {fault.__name__: fault for fault in (nothing, takeover, two_takeovers, executors_die, agent_dies, evacuation)}


def held(run: Run, job: SubmittedJob) -> int:
    pool = pool_of(run, job)
    return 0 if pool is None or pool.stopping else pool.staying


async def watch(run: Run, gangs: dict[str, SubmittedJob], bound: float) -> None:
    """Notice gangs that hold a part of what they need, and have never had all."""
    complete: set[tuple[str, int]] = set()
    since: dict[tuple[str, int], float] = {}
    while True:
        await asyncio.sleep(TICK)
        for name, job in gangs.items():
            work = work_of(run, job)
            if work is None or (work.key[0], work.key[1]) in complete:
                continue
            key, count = (work.key[0], work.key[1]), held(run, job)
            if count == GANGS[name]:
                complete.add(key)
            elif not count:
                since.pop(key, None)
            elif run.loop.time() - since.setdefault(key, run.loop.time()) > bound:
                run.cluster.history.violate("scenario", f"gang {name} holds {count} of {GANGS[name]} slots")


async def tell(run: Run, fault: str, seed: int) -> None:
    rng = seeded_random(f"gangs-{seed}", fault)
    gangs = {
        name: run.cluster.submit(name, Script(seconds=rng.uniform(5.0, 20.0), executors=count, gang=True))
        for name, count in GANGS.items()
    }
    for name, count in OTHERS.items():
        run.cluster.submit(name, Script(seconds=rng.uniform(2.0, 10.0), executors=count))
    watching = asyncio.create_task(watch(run, gangs, BEGINS_WITHIN.get(fault, USUALLY_BEGINS_WITHIN)))
    world = World(run, gangs["first"])
    await world.until(lambda: any(_complete(run, gangs)), 120.0, "a gang has all that it needs")
    for _ in range(3):
        await asyncio.sleep(rng.uniform(0.0, 12.0))
        if any(run.cluster.machines.executors()):
            await FAULTS[fault](world, rng)
    await run.settle(BOUND)
    watching.cancel()
    await run.end_everything()


def _complete(run: Run, gangs: dict[str, SubmittedJob]) -> Iterator[bool]:
    return (held(run, job) == GANGS[name] for name, job in gangs.items())


@pytest.mark.parametrize("fault", FAULTS)
def test_each_gang_gets_its_turn_and_none_holds_what_another_one_needs(fault: str) -> None:
    for seed in seeds(3, theme=f"gangs {fault}"):
        plan = ClusterPlan(seed=f"gangs-{fault}-{seed}", task_managers=2, slots=SLOTS // 2, files=False)
        report = play(plan, lambda run, seed=seed: tell(run, fault, seed))  # type: ignore[misc]
        assert not report.violations, report.failure()
