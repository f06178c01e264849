"""Two JobManagers over one store: one becomes the leader before the other knows that it is no longer the leader.

The effects of an election are drawn from the seed. The deposed leader continues for a while as if nothing had happened,
or is frozen for that time and then continues; for a while others may even still find it at the leader's address. It
ends when the store refuses its write, or when it learns that it is no longer the leader. The properties are those of
all simulations: no two live attempts (P1), a deposed leader changes nothing (P3), a result is written once (P4).
"""

from __future__ import annotations

import asyncio
import random

from tests.support.simulator.cluster import ClusterPlan
from tests.support.simulator.faults import Menace, Nemesis
from tests.support.simulator.infrastructure.contended_cluster import LONGEST_LATENESS, ContendedCluster
from tests.support.simulator.scenes import Scene, Theme, draw_script
from tests.support.simulator.simulation import Report, Run, Story, clients_of, play
from tests.support.simulator.virtual_loop import seeded_random

_KINDS = ("kill driver", "kill executor", "kill agent", "crash node", "bad store", "cut off jobmanager")
_THEME = Theme(0, (Menace(3.0, 0.2, 10.0, _KINDS), Menace(8.0, 0.2, 15.0, _KINDS), Menace(1000.0)), streams=0.4)


def contended_scene(seed: str) -> Scene:
    """Draw a cluster without files, since only drivers matter here, with jobs and a menace."""
    rng = seeded_random(seed, "scene")
    plan = ClusterPlan(seed=seed, task_managers=rng.choice((1, 2, 3)), slots=rng.choice((2, 3)), files=False)
    may_stream = True
    scripts = []
    for _ in range(rng.choice((1, 2, 3, 4))):
        scripts.append(draw_script(rng, _THEME, may_stream=may_stream))
        may_stream = may_stream and scripts[-1].seconds is not None
    return Scene(plan, tuple(scripts), rng.uniform(40.0, 80.0), rng.choice(_THEME.menace))


def contended_story(scene: Scene) -> Story:
    """Return a story: submissions, cancels, faults and elections; then one leader stays, and all jobs must settle."""

    async def story(run: Run) -> None:
        cluster = run.cluster
        assert isinstance(cluster, ContendedCluster)
        rng: random.Random = seeded_random(scene.plan.seed, "clients' plans")
        nemesis = Nemesis(cluster, seeded_random(scene.plan.seed, "nemesis"), scene.menace)
        harm = asyncio.create_task(nemesis.run(), name="nemesis")
        elections = asyncio.create_task(cluster.contend(), name="elections")
        clients = asyncio.create_task(clients_of(cluster, scene, rng), name="clients")
        await asyncio.sleep(scene.chaos_seconds)
        harm.cancel()
        elections.cancel()
        await asyncio.sleep(LONGEST_LATENESS)
        cluster.heal()
        nemesis.heal()
        await clients
        await run.settle()
        await run.end_everything()

    return story


def simulate_contended(seed: int | str) -> Report:
    """Run one seed."""
    scene = contended_scene(str(seed))
    return play(scene.plan, contended_story(scene), make_cluster=ContendedCluster)
