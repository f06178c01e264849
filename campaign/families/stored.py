"""Draws what is stored in a world, and by which rules it is deleted."""

from __future__ import annotations

from dataclasses import replace

from tests.support.simulator.cluster import ClusterPlan
from tests.support.simulator.virtual_loop import seeded_random

PERIODIC = {"execution.savepoint.interval": "10s", "execution.savepoint.retained": "2"}


def with_storage(plan: ClusterPlan) -> ClusterPlan:
    """Return the plan with files and ownership records, and mostly with periodic savepoints."""
    periodic = PERIODIC if seeded_random(plan.seed, "stored").random() < 0.7 else {}
    return replace(plan, files=True, owned_storage=True, options=plan.options | periodic)
