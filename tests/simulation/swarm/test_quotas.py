"""What namespaces use is watched in every world: their quotas hold, and their guarantees are met once it is quiet."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from campaign.playing import play_world
from campaign.swarm import draw_world
from emberkeep.slots.namespace_quotas import NamespaceRoom
from emberkeep.slots.reclaim.above_quota import AboveQuota
from emberkeep.slots.reclaim.reclaimer import Reclaimer
from tests.simulation.plants import Plant, check, returning
from tests.simulation.test_cluster import executors, running, wait_for
from tests.support.simulator.cluster import ClusterPlan
from tests.support.simulator.scripts import Script
from tests.support.simulator.simulation import Report, Run, play
from tests.support.simulator.virtual_loop import seeded_random

pytestmark = pytest.mark.req("RES-6")

SILENCE = 5.0  # seconds, after which a killed executor on a silent task manager counts as lost
SETTLED = 15.0  # seconds, after which a leader knows what namespaces have


def within_a_quota(number: int) -> Report:
    """Two jobs of one namespace want more slots than it may have, and a third one finds no driver; leaders change."""
    rng = seeded_random(number, "within a quota")

    async def story(run: Run) -> None:
        cluster = run.cluster
        for name in ("one", "two"):
            cluster.submit(name, Script(seconds=None, executors=rng.randint(2, 4), namespace="team"))
        short = [cluster.submit(f"short-{each}", Script(seconds=2.0, namespace="team")) for each in range(2)]
        await wait_for(run, lambda: len(executors(run)) >= 3, "they have all that their namespace may have")
        for _ in range(2):
            await asyncio.sleep(rng.uniform(0.5, 5.0))
            cluster.kill_job_manager()
            await asyncio.sleep(rng.uniform(0.1, 3.0))
            cluster.start_job_manager()
        await asyncio.sleep(10.0)
        cluster.cancel(cluster.jobs[0])
        cluster.cancel(cluster.jobs[1])
        await wait_for(run, lambda: all(job.job_id in run.properties.results for job in short), "the others have run")
        await run.settle()
        await run.end_everything()

    options = {"security.quota.slots-per-namespace": "3", "security.quota.drivers-per-namespace": "2"}
    return play(ClusterPlan(seed=f"quota {number}", slots=4, cores=8, files=False, options=options), story)


def borrowed(number: int) -> Report:
    """A job has borrowed most of what is guaranteed to a namespace whose job has one slot, and wants three."""

    async def story(run: Run) -> None:
        cluster = run.cluster
        borrower = Script(seconds=None, executors=5, dynamic=True, steady=True)
        await running(run, cluster.submit("borrower", borrower), number=1, executors=5)
        cluster.submit("entitled", Script(seconds=None, executors=3, namespace="team"))
        await run.settle()
        await run.end_everything()

    options = {"security.quota.guaranteed-slots": "team=3"}
    return play(ClusterPlan(seed=f"borrowed {number}", task_managers=2, files=False, options=options), story)


def come_back(number: int) -> Report:
    """A task manager comes back with a slot that its job has replaced at once, on a node that was away before."""

    async def story(run: Run) -> None:
        cluster = run.cluster
        first, second = cluster.nodes
        job = cluster.submit("wants-more", Script(seconds=None, executors=3, namespace="team"))
        cluster.leave_agent(second)
        await running(run, job, number=1, executors=2)
        await asyncio.sleep(SETTLED)
        cluster.leave_agent(first)
        await asyncio.sleep(SILENCE)
        cluster.start_agent(second)
        cluster.machines.kill(executors(run)[-1])
        await wait_for(run, lambda: len(executors(run)) == 2, "the slot is replaced on the other node")
        cluster.start_agent(first)
        await run.settle()
        await run.end_everything()

    options = {"security.quota.slots-per-namespace": "2"}
    return play(ClusterPlan(seed=f"back {number}", task_managers=2, files=False, options=options), story)


PLANTS = {
    "a namespace always has room": Plant(
        NamespaceRoom,
        "left",
        lambda _: lambda _self, _job, wanted=1: wanted,
        ("w",),
        lambda number: within_a_quota(number).violations,
    ),
    "nobody gives back what he has borrowed": Plant(
        Reclaimer, "review", returning(None), ("x",), lambda number: borrowed(number).violations
    ),
    "nobody gives back what is above his quota": Plant(
        AboveQuota, "review", returning({}), ("w",), lambda number: come_back(number).violations
    ),
}


@pytest.mark.parametrize("world", [within_a_quota, borrowed, come_back])
def test_a_cluster_that_shares_its_slots_breaks_no_rule(world: Any) -> None:
    for number in range(1, 4):
        report = world(number)
        assert not report.violations, report.failure()


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_bug_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(name, PLANTS[name], monkeypatch)


def test_worlds_of_the_swarm_share_their_slots() -> None:
    shared = [world for number in range(200) if (world := draw_world(f"unit-{number}")).family == "shared"]
    assert 4 <= len(shared) <= 20
    judged = set()
    for world in shared[:3]:
        played = play_world(world)
        assert not played.report.violations, played.report.failure()
        judged |= {rule for rule, _, _ in played.triples}
    assert {"w", "x"} <= judged
