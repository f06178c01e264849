"""Draws what namespaces may have and are guaranteed, and which jobs of a world belong to them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import msgspec

from campaign.world import PlannedJob
from emberkeep.base.configuration.options.access import GUARANTEED_SLOTS, QUOTA_DRIVERS, QUOTA_SLOTS
from emberkeep.base.configuration.options.slots import PREEMPTION
from tests.support.simulator.cluster import ClusterPlan
from tests.support.simulator.virtual_loop import seeded_random

_NAMES = ("a", "b")
_UNLIMITED = 1_000


def with_quotas(plan: ClusterPlan) -> ClusterPlan:
    """Return the plan with quotas, guarantees, or both."""
    rng = seeded_random(plan.seed, "quotas")
    slots, drivers = rng.choice((0, 2, 3, 4)), rng.choice((0, 0, 2, 3))
    guarantees = rng.choice(("", "a=1", "a=2", "a=2;b=1"))
    if not (slots or drivers or guarantees):
        drivers = 2
    options = {key: value for key, value in plan.options.items() if key not in (QUOTA_SLOTS.key, QUOTA_DRIVERS.key)}
    options |= {QUOTA_SLOTS.key: str(slots)} if slots else {}
    options |= {QUOTA_DRIVERS.key: str(drivers)} if drivers else {}
    if guarantees:
        options |= {GUARANTEED_SLOTS.key: guarantees, PREEMPTION.key: rng.choice(("elastic", "executors"))}
    return replace(plan, options=options)


def with_namespaces(plan: ClusterPlan, jobs: Iterable[PlannedJob]) -> list[PlannedJob]:
    """Give most jobs a namespace. Streams never end: they leave a slot and a driver of it to the others."""
    rng = seeded_random(plan.seed, "namespaces")
    slots = dict.fromkeys(_NAMES, (int(plan.options.get(QUOTA_SLOTS.key, 0)) or _UNLIMITED) - 1)
    drivers = dict.fromkeys(_NAMES, (int(plan.options.get(QUOTA_DRIVERS.key, 0)) or _UNLIMITED) - 1)
    planned = list(jobs)
    streams = [job for job in planned if job.script.seconds is None]
    left = plan.task_managers * plan.slots - 1 - sum(job.script.executors for job in streams)
    drawn = []
    for job in planned:
        name, more = rng.choice(("", *_NAMES, *_NAMES)), rng.randint(0, 2)
        script = job.script
        if script.seconds is None:
            most = min(script.executors + max(0, min(more, left)), slots.get(name, _UNLIMITED))
            # The number of its executors changes, so nobody knows what it leaves of a quota.
            is_unbounded = script.dynamic and bool(name) and QUOTA_SLOTS.key in plan.options
            if name and (most < 1 or drivers[name] < 1 or is_unbounded):
                name, most = "", script.executors
            if not script.dynamic:
                left -= most - script.executors
                script = msgspec.structs.replace(script, executors=most)
            if name:
                slots[name] -= script.executors
                drivers[name] -= 1
        elif script.dynamic:
            script = msgspec.structs.replace(script, steady=rng.random() < 0.5)
        drawn.append(msgspec.structs.replace(job, script=msgspec.structs.replace(script, namespace=name)))
    return drawn
