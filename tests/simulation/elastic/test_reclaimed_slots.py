"""A namespace below its guarantee gets its slots back from a stream that has borrowed them, whatever else fails."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from emberkeep.blocklist.model import BlockAction, EvacuatedDrivers
from emberkeep.slots.pool.state import PoolState
from tests.campaign import seeds
from tests.support.simulator.cluster import ClusterPlan, SubmittedJob
from tests.support.simulator.properties import TICK
from tests.support.simulator.scripts import DriverWork, Script
from tests.support.simulator.simulation import Run, play
from tests.support.simulator.virtual_loop import seeded_random

pytestmark = [pytest.mark.campaign, pytest.mark.req("RES-6"), pytest.mark.req("RES-5")]

GUARANTEED, SLOTS = 3, 6
# The lack that is waited for, two heartbeats, the timeout of an executor that hangs, the start of another one.
BOUND = 2.0 + 2 * 1.5 + 30.0 + 10.0
FAULT_BOUND = 90.0  # for what a fault costs by itself
QUIET = 40.0  # seconds in which nothing may move any more


def work_of(run: Run, job: SubmittedJob) -> DriverWork | None:
    """Return the newest driver of the job that is alive."""
    found = [work for work in run.cluster.room.drivers.values() if work.key[0] == job.job_id and work.process.alive]
    return max(found, key=lambda work: work.key[1], default=None)


def pool_of(run: Run, job: SubmittedJob) -> PoolState | None:
    work = work_of(run, job)
    return None if work is None else work.service.master.pool.state


def registered(run: Run, job: SubmittedJob) -> int:
    pool = pool_of(run, job)
    return 0 if pool is None else sum(slot.stays and slot.executor.is_alive for slot in pool.held.values())


@dataclass
class World:
    """The stream that borrows, the one that is entitled, and how few slots the first one had."""

    run: Run
    borrower: SubmittedJob
    entitled: SubmittedJob | None = None
    fewest: int = SLOTS
    left: set[str] = field(default_factory=set)  # executors of the borrower that left for the other one

    async def until(self, condition: Callable[[], object], bound: float, what: str) -> None:
        end = self.run.loop.time() + bound
        while not condition():
            self.look()
            if self.run.loop.time() > end:
                self.run.cluster.history.violate("scenario", f"not in {bound:.0f} s: {what}")
            await asyncio.sleep(TICK)

    def look(self) -> None:
        pool = pool_of(self.run, self.borrower)
        if pool is not None and self.entitled is not None:
            self.fewest = min(self.fewest, pool.staying)
            self.left |= {slot.executor.id for slot in pool.held.values() if slot.reclaimed}


async def nothing(_: World, __: random.Random) -> None:
    """No fault."""


async def takeover(world: World, rng: random.Random) -> None:
    world.run.cluster.kill_job_manager()
    await asyncio.sleep(rng.uniform(0.1, 8.0))
    world.run.cluster.start_job_manager()


async def two_takeovers(world: World, rng: random.Random) -> None:
    for _ in range(2):
        await takeover(world, rng)
        await asyncio.sleep(rng.uniform(0.5, 4.0))


async def borrowers_driver_dies(world: World, _: random.Random) -> None:
    if (work := work_of(world.run, world.borrower)) is not None:
        world.run.cluster.machines.kill(work.process)


async def entitled_driver_dies(world: World, _: random.Random) -> None:
    assert world.entitled is not None
    if (work := work_of(world.run, world.entitled)) is not None:
        world.run.cluster.machines.kill(work.process)


async def executors_die(world: World, rng: random.Random) -> None:
    found = list(world.run.cluster.machines.executors())
    for executor in rng.sample(found, min(2, len(found))):
        world.run.cluster.machines.kill(executor)


async def agent_dies(world: World, rng: random.Random) -> None:
    node = rng.choice(world.run.cluster.nodes)
    assert node.agent is not None
    world.run.cluster.machines.kill(node.agent)
    await asyncio.sleep(rng.uniform(0.1, 4.0))
    world.run.cluster.start_agent(node)


async def evacuation(world: World, rng: random.Random) -> None:
    name = rng.choice(world.run.cluster.nodes).machine.name
    world.run.cluster.blocklist.block(name, BlockAction.MARK_BLOCKED_AND_EVACUATE_TASKS, None, EvacuatedDrivers.WAIT)
    await asyncio.sleep(rng.uniform(1.0, 20.0))
    world.run.cluster.blocklist.unblock(name)


FAULTS = {
    fault.__name__: fault
    for fault in (
        nothing,
        takeover,
        two_takeovers,
        borrowers_driver_dies,
        entitled_driver_dies,
        executors_die,
        agent_dies,
        evacuation,
    )
}
# These take no executor and no driver, so nothing may cost the borrower more than what is guaranteed.
HARMLESS = {"nothing", "takeover", "two_takeovers"}


async def tell(run: Run, fault: str, seed: int) -> None:
    rng = seeded_random(f"reclaim-{seed}", fault)
    elastic = Script(seconds=None, executors=SLOTS, dynamic=True, steady=True, namespace="a")
    world = World(run, run.cluster.submit("borrower", elastic))
    await world.until(lambda: registered(run, world.borrower) == SLOTS, 60.0, "the stream has borrowed every slot")

    entitled = Script(seconds=None, executors=GUARANTEED, namespace="b")
    world.entitled = entitled_job = run.cluster.submit("entitled", entitled)
    await asyncio.sleep(rng.uniform(0.0, 8.0))
    await FAULTS[fault](world, rng)
    bound = BOUND + (0.0 if fault == "nothing" else FAULT_BOUND)
    await world.until(lambda: registered(run, entitled_job) == GUARANTEED, bound, "the guarantee is met")
    rest = SLOTS - GUARANTEED
    await world.until(lambda: registered(run, world.borrower) == rest, FAULT_BOUND, "the others work for the borrower")
    world.look()
    if fault in HARMLESS and (world.fewest < rest or len(world.left) > GUARANTEED):
        run.cluster.history.violate("scenario", f"too much was given back: {world.fewest} left, {world.left} went")
    await check_rest(world)

    run.cluster.cancel(entitled_job)
    await world.until(lambda: registered(run, world.borrower) == SLOTS, 60.0, "it borrows again what nobody needs")
    await run.end_everything()


async def check_rest(world: World) -> None:
    """Nothing goes to and fro once all have what they are entitled to."""
    assert world.entitled is not None
    before = [_executors(world.run, job) for job in (world.borrower, world.entitled)]
    end = world.run.loop.time() + QUIET
    while world.run.loop.time() < end:
        await asyncio.sleep(1.0)
        after = [_executors(world.run, job) for job in (world.borrower, world.entitled)]
        if after != before:
            world.run.cluster.history.violate("scenario", f"slots still move: {before} became {after}")


def _executors(run: Run, job: SubmittedJob) -> set[str]:
    pool = pool_of(run, job)
    return set() if pool is None else {slot.executor.id for slot in pool.held.values() if slot.stays}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_guarantee_is_met_within_a_bound_and_nothing_more_is_taken(fault: str) -> None:
    for seed in seeds(3, theme=f"reclaim {fault}"):
        plan = ClusterPlan(
            seed=f"reclaim-{fault}-{seed}",
            task_managers=2,
            slots=SLOTS // 2,
            files=False,
            options={"security.quota.guaranteed-slots": f"b={GUARANTEED}"},
        )
        report = play(plan, lambda run, seed=seed: tell(run, fault, seed))  # type: ignore[misc]
        assert not report.violations, report.failure()
