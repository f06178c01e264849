"""Draws clusters of release 0.1.0, without what only this release has."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import msgspec

from campaign.world import PlannedJob
from tests.support.simulator.cluster import JM_NODE, ClusterPlan
from tests.support.simulator.virtual_loop import seeded_random


def before_upgrade(plan: ClusterPlan) -> ClusterPlan:
    """Return the plan of a cluster of release 0.1.0, in part or as a whole."""
    rng = seeded_random(plan.seed, "releases")
    nodes = [f"node-{number}" for number in range(1, plan.task_managers + 1)]
    old = nodes if rng.random() < 0.7 else rng.sample(nodes, rng.randint(1, len(nodes)))
    machines = (*old, JM_NODE) if rng.random() < 0.8 else tuple(old)
    return replace(plan, options={}, gpus=0, first_release=machines)


def jobs_before_upgrade(_: ClusterPlan, jobs: Iterable[PlannedJob]) -> list[PlannedJob]:
    """Return the jobs without dynamic allocation and priorities.

    A job with a fixed number of executors keeps all of them, so it has one: streams must leave slots to others.
    """
    planned = []
    for job in jobs:
        executors = 1 if job.script.dynamic else job.script.executors
        script = msgspec.structs.replace(job.script, dynamic=False, executors=executors, priority=0)
        planned.append(msgspec.structs.replace(job, script=script))
    return planned
