"""Plays a world, and watches what it shows."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass

from campaign.coverage import Coverage, Triple
from campaign.outages import Outages
from campaign.swarm import ELECTIONS
from campaign.world import PlannedJob, World
from tests.support.simulator.cluster import SimCluster, SubmittedJob
from tests.support.simulator.faults import Menace, Nemesis
from tests.support.simulator.infrastructure.contended_cluster import LONGEST_LATENESS, ContendedCluster
from tests.support.simulator.simulation import Report, Run, play

LONGEST_VIOLATION = 250  # characters
STEP_LIMIT = 2_000_000  # callbacks; more than ten times those of the longest world, so a world that needs more spins


@dataclass
class Played:
    """Result of one world. ``report`` has the violations."""

    report: Report
    faults: Counter[str]  # that were applied, by kind
    triples: set[Triple]
    outages: Counter[tuple[str, float]]
    cpu_seconds: float

    @property
    def violation(self) -> str:
        """Return the first violation, shortened; "" if there is none."""
        return shortened(next(iter(self.report.violations), ""))

    @property
    def rules(self) -> list[str]:
        """Return the rules that were violated, the first one first."""
        return list(dict.fromkeys(violation.partition(":")[0] for violation in self.report.violations))


def shortened(violation: str) -> str:
    """Return a violation in a length that a table can show."""
    return violation if len(violation) <= LONGEST_VIOLATION else f"{violation[:LONGEST_VIOLATION]}…"


class _Telling:
    """The story of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.faults: Counter[str] = Counter()
        self.coverage: Coverage | None = None
        self.outages: Outages | None = None

    async def tell(self, run: Run) -> None:
        world, cluster = self._world, run.cluster
        coverage = self.coverage = Coverage(run)
        outages = self.outages = Outages(run)
        chance = random.Random()
        kinds = tuple(dict.fromkeys(fault.kind for fault in world.faults))
        # A menace without kinds means all kinds.
        menace = Menace(shortest=world.shortest, longest=world.longest, kinds=kinds or ("kill executor",))
        nemesis = Nemesis(cluster, chance, menace)
        harm = asyncio.create_task(self._harm(run, nemesis, chance, coverage, outages), name="harm")
        watching = asyncio.create_task(outages.watch(), name="outages")
        clients = [asyncio.create_task(_client(cluster, number, job)) for number, job in enumerate(world.jobs)]
        await asyncio.sleep(world.chaos_seconds)
        harm.cancel()
        if isinstance(cluster, ContendedCluster):
            await asyncio.sleep(LONGEST_LATENESS)
            cluster.heal()
        nemesis.heal()
        outages.look()
        outages.close()
        watching.cancel()
        await asyncio.gather(*clients)
        await run.settle()
        await run.end_everything()
        coverage.ended()

    async def _harm(
        self, run: Run, nemesis: Nemesis, chance: random.Random, coverage: Coverage, outages: Outages
    ) -> None:
        for fault in self._world.faults:
            await asyncio.sleep(max(0.0, fault.at - run.loop.time()))
            # Each fault draws from a number of its own, so that leaving one out does not change the others.
            chance.seed(f"{self._world.plan.seed}/fault/{fault.number}")
            coverage.fault(fault.kind)
            outages.look()
            if nemesis.do(fault.kind):
                self.faults[fault.kind] += 1
                outages.fault(fault.kind)
            else:
                coverage.withdraw(fault.kind)


async def _client(cluster: SimCluster, number: int, planned: PlannedJob) -> None:
    """Submit a job, and ask of it what its client asks."""
    await asyncio.sleep(max(0.0, planned.at - cluster.loop.time()))
    job: SubmittedJob = cluster.submit(f"job-{number}", planned.script)
    if planned.cancel_at is not None:
        await asyncio.sleep(max(0.0, planned.cancel_at - cluster.loop.time()))
        cluster.cancel(job)
    elif planned.ask is not None:
        await asyncio.sleep(max(0.0, planned.ask.at - cluster.loop.time()))
        cluster.ask(job, planned.ask.procedure)


def play_world(world: World) -> Played:
    """Play a world to its end, or until a rule is violated."""
    began = time.process_time()
    telling = _Telling(world)
    contends = world.family == "elections" or any(fault.kind in ELECTIONS for fault in world.faults)
    cluster = ContendedCluster if contends else SimCluster
    report = play(world.plan, telling.tell, step_limit=STEP_LIMIT, make_cluster=cluster)
    assert telling.coverage is not None, "the story has begun"
    assert telling.outages is not None, "the story has begun"
    cpu_seconds = time.process_time() - began
    return Played(report, telling.faults, telling.coverage.triples, telling.outages.seconds, cpu_seconds)
