"""Draws worlds. Each has some kinds of faults only, with weights of its own: a swarm of configurations, not one mix.

With one mix of all faults, a frequent kind hides what a rare one would show: where drivers are killed all the time, no
lease ever runs out.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from campaign.families.shared import with_namespaces, with_quotas
from campaign.families.stored import PERIODIC, with_storage
from campaign.families.upgraded import before_upgrade, jobs_before_upgrade
from campaign.world import Ask, PlannedFault, PlannedJob, World
from emberkeep.lifecycle.model import Procedure
from tests.support.simulator.cluster import DRIVER_MEMORY_MB, ClusterPlan
from tests.support.simulator.scenes import THEMES, draw_script
from tests.support.simulator.scripts import Script
from tests.support.simulator.virtual_loop import seeded_random

PROCESSES = (
    "kill executor", "kill driver", "kill agent", "crash node", "lose agent", "kill jobmanager", "freeze driver",
    "freeze agent", "freeze node", "abandon driver", "freeze jobmanager", "leave agent", "rolling restart",
)  # fmt: skip
NETWORK = ("cut off node", "cut off driver", "cut between nodes", "cut off jobmanager", "bad network", "flap link")
STORES = ("bad store", "slow store", "lose store", "sever store", "slow disk", "failing disk")
CLOCKS = ("clock jump", "drift clock")
TIMERS = "drift timers"  # came later: drawn from a number of its own, so that the other faults stay the same
OPERATORS = ("block node", "unblock node")
STORAGE = ("lose savepoints", "lose blobs", "lose storage", "empty store", "share store")
ELECTIONS = ("lose session", "suspend session", "lose quorum")
STANDBYS = ("kill standby", "freeze standby", "poison standby", "stall standby", "starve standbys", "change release")


@dataclass(frozen=True)
class Family:
    """Worlds with the same faults to choose from. ``weight``: their share of the worlds without a later family."""

    weight: int
    kinds: tuple[str, ...]
    later: float = 0.0  # share of all worlds, instead of a weight: of families that came later
    only_agents: bool = False  # nothing that works may be lost (p)
    only_standbys: bool = False  # no attempt may be lost (r)


FAMILIES = {
    "mixed": Family(60, (*PROCESSES, *NETWORK, *STORES, *CLOCKS, TIMERS, *OPERATORS, *STANDBYS)),
    # Agents and JobManagers that come back in time.
    "steady": Family(12, ("kill agent", "kill jobmanager", "slow store", *CLOCKS, TIMERS), only_agents=True),
    # Several JobManagers: sessions and the quorum are lost.
    "elections": Family(
        15,
        (
            *ELECTIONS, "kill driver", "kill executor", "kill agent", "crash node", "bad store", "cut off jobmanager",
            "slow store", "slow disk", "cut off node", "freeze driver", "clock jump", TIMERS, "leave agent",
        ),
    ),
    # A job store that is restored from older copies. Only with faults after which the copy may miss an attempt.
    "restored": Family(5, ("put back store", "kill driver", "kill executor", "kill jobmanager", "slow disk")),
    # Without standby processes that stall: they may answer after the start timeout of a driver.
    "standbys": Family(
        8, tuple(kind for kind in STANDBYS if kind != "stall standby"), only_agents=True, only_standbys=True
    ),
    # Namespaces with quotas and guarantees, and jobs that give back what they have borrowed.
    "shared": Family(
        0,
        (
            "kill executor", "kill driver", "kill agent", "crash node", "kill jobmanager", "leave agent",
            "freeze driver", "cut off node", *OPERATORS, "slow store", "rolling restart", "clock jump",
        ),
        later=0.05,
    ),
    # Places of data that are away; job stores that are emptied, or used by another cluster.
    "stored": Family(
        0,
        (*STORAGE, "kill executor", "kill driver", "kill agent", "kill jobmanager", "leave agent", "slow store"),
        later=0.05,
    ),
    # Clusters of release 0.1.0 that are upgraded while other things fail, and while nothing else does.
    "mixed versions": Family(
        0,
        (
            "rolling upgrade", "kill executor", "kill driver", "kill agent", "kill jobmanager", "crash node",
            "leave agent", "freeze driver", "cut off node", "cut off driver", "bad network", "bad store", *OPERATORS,
        ),
        later=0.04,
    ),
    "upgraded": Family(
        0,
        ("rolling upgrade", "kill agent", "kill jobmanager", "leave agent", "clock jump"),
        only_agents=True,
        later=0.02,
    ),
}  # fmt: skip
KINDS = tuple(dict.fromkeys(kind for family in FAMILIES.values() for kind in family.kinds))
# What is special to a family.
PLANS: dict[str, Callable[[ClusterPlan], ClusterPlan]] = {
    "shared": with_quotas,
    "stored": with_storage,
    "mixed versions": before_upgrade,
    "upgraded": before_upgrade,
}
JOBS: dict[str, Callable[[ClusterPlan, Iterable[PlannedJob]], list[PlannedJob]]] = {
    "shared": with_namespaces,
    "mixed versions": jobs_before_upgrade,
    "upgraded": jobs_before_upgrade,
}
_MOST_FAULTS = 60
_ASKED = (Procedure.SAVEPOINT, Procedure.SUSPEND, Procedure.DRAIN)


def draw_world(seed: str, favoured: Sequence[str] = ()) -> World:
    """Draw the world of a seed. ``favoured``: kinds of faults of which half of the worlds have one for certain."""
    rng = seeded_random(seed, "swarm")
    chosen = rng.choice(favoured) if favoured and rng.random() < 0.5 else None
    able = [name for name in FAMILIES if chosen is None or chosen in FAMILIES[name].kinds]
    name = _family(seed, able, rng)
    family = FAMILIES[name]
    plan = _plan(seed, name, family, rng)
    if name in PLANS:
        plan = PLANS[name](plan)
    kinds = _weights(family, plan, chosen, rng)
    pause = rng.choice((1.5, 3.0, 6.0, 12.0, 25.0))
    shortest, longest = rng.choice(((0.1, 4.0), (0.2, 10.0), (0.2, 45.0), (5.0, 30.0), (12.0, 30.0)))
    if family.only_agents:
        longest = min(longest, 30.0)
    chaos = rng.uniform(15.0, 50.0) if pause < 10.0 else rng.uniform(40.0, 110.0)
    jobs = _jobs(rng, plan, family, chaos)
    return World(
        family=name,
        plan=plan,
        jobs=tuple(JOBS[name](plan, jobs) if name in JOBS else jobs),
        faults=_with_later_kinds(plan, family, chosen, _faults(rng, kinds, pause, chaos), chaos),
        chaos_seconds=chaos,
        shortest=shortest,
        longest=longest,
    )


def _family(seed: str, able: Sequence[str], rng: random.Random) -> str:
    """Draw a family. Later ones have a number of their own, so that the worlds of the others stay the same."""
    weights = [FAMILIES[name].weight for name in able]
    name = rng.choices(able, weights)[0] if any(weights) else ""
    point = seeded_random(seed, "later families").random()
    later = [each for each in able if FAMILIES[each].later]
    if not name:
        point *= sum(FAMILIES[each].later for each in later)
    for each in later:
        if point < FAMILIES[each].later:
            return each
        point -= FAMILIES[each].later
    return name


def _plan(seed: str, name: str, family: Family, rng: random.Random) -> ClusterPlan:
    slots, places, managers = rng.choice((1, 2, 3, 4)), rng.choice((2, 3, 4)), rng.choice((1, 2, 2, 3, 3, 4))
    standbys = family.only_standbys or (name == "mixed" and rng.random() < 0.3)
    reserved = standbys and rng.random() < 0.5
    quota = {"security.quota.slots-per-namespace": "2", "security.quota.drivers-per-namespace": "1"}
    # Drawn from a number of its own, so that the rest of the world of a seed stays the same.
    saves = not family.only_agents and seeded_random(seed, "savepoints").random() < 0.2
    return ClusterPlan(
        seed=seed,
        task_managers=managers,
        slots=slots,
        driver_places=places,
        cores=slots * 2,
        memory_mb=slots * 2048 + places * DRIVER_MEMORY_MB,
        clinging_executors=rng.random() < 0.5,
        slow_starts=0.0 if family.only_agents else rng.choice((0.0, 0.0, 0.15)),
        slow_ends=0.0 if family.only_agents else rng.choice((0.0, 0.0, 0.8)),
        skews=rng.random() < 0.5,
        files=name == "mixed" and rng.random() < 0.3,
        only_agents=family.only_agents,
        only_standbys=family.only_standbys,
        standby_drivers=rng.choice((1, 1, 2)) if standbys else 0,
        standby_executors=rng.choice((1, 2)) if standbys else 0,
        bad_imports=0.2 if reserved and rng.random() < 0.3 else 0.0,
        gpus=slots if rng.random() < 0.2 else 0,
        options=({"execution.standby": "hot"} if reserved else {})
        | (quota if rng.random() < 0.25 else {})
        | (PERIODIC if saves else {}),
    )


def _weights(family: Family, plan: ClusterPlan, chosen: str | None, rng: random.Random) -> dict[str, int]:
    """Draw which kinds of faults the world has, and how often each."""
    share = rng.choice((0.1, 0.25, 0.5, 0.8))
    able = [kind for kind in family.kinds if kind != TIMERS and (plan.standby_drivers or kind not in STANDBYS)]
    kinds = {kind: rng.choice((1, 2, 4, 8)) for kind in able if rng.random() < share}
    if chosen in able:
        kinds[chosen] = 8
    return kinds or {rng.choice(able): 1}


def _with_later_kinds(
    plan: ClusterPlan, family: Family, chosen: str | None, faults: list[PlannedFault], chaos: float
) -> tuple[PlannedFault, ...]:
    """Add faults that are drawn from a number of their own: timers that drift, and the upgrade of an older release."""
    rng, kinds = seeded_random(plan.seed, "later kinds"), []
    if TIMERS in family.kinds and (rng.random() < 0.05 or chosen == TIMERS):
        kinds += [TIMERS] * rng.randint(1, 4)
    if plan.first_release and all(fault.kind != "rolling upgrade" for fault in faults):
        kinds.append("rolling upgrade")
    first = len(faults)
    times = [round(chaos * rng.uniform(0.05, 0.7), 3) for _ in kinds]
    more = [PlannedFault(at, kind, first + number) for number, (at, kind) in enumerate(zip(times, kinds, strict=True))]
    return tuple(sorted([*faults, *more], key=lambda fault: fault.at)) if more else tuple(faults)


def _faults(rng: random.Random, kinds: dict[str, int], pause: float, chaos: float) -> list[PlannedFault]:
    faults: list[PlannedFault] = []
    at = rng.expovariate(1.0 / pause)
    while at < chaos and len(faults) < _MOST_FAULTS:
        kind = rng.choices(list(kinds), list(kinds.values()))[0]
        faults.append(PlannedFault(round(at, 3), kind, len(faults)))
        at += rng.expovariate(1.0 / pause)
    return faults


def _jobs(rng: random.Random, plan: ClusterPlan, family: Family, chaos: float) -> list[PlannedJob]:
    theme = THEMES["agents" if family.only_agents else "any"]
    # Streams never end: they must leave a slot and a driver place for jobs that do.
    left = min(plan.task_managers * plan.slots, plan.task_managers * plan.driver_places) - 1
    is_dynamic, has_quota = rng.random() < 0.25, "security.quota.slots-per-namespace" in plan.options
    failing = seeded_random(plan.seed, "failing savepoints")
    jobs = []
    for _ in range(rng.choice((1, 1, 2, 2, 3, 4, 6))):
        script = draw_script(rng, theme, may_stream=left > 0)
        changes: dict[str, Any] = {"priority": rng.choice((0, 0, 0, -100, 100))}
        if plan.gpus:
            changes["gpus"] = rng.choice((0, 1))
        if is_dynamic and rng.random() < 0.5:
            changes |= {"dynamic": True, "executors": rng.randint(script.executors, 4)}
        # A stream in a namespace would keep its only driver, and other jobs of the namespace would never run.
        if has_quota and script.seconds is not None and rng.random() < 0.6:
            changes["namespace"] = "team"
        script = msgspec.structs.replace(script, **changes)
        left -= script.executors if script.seconds is None else 0
        if script.seconds is None and failing.random() < 0.4:
            script = msgspec.structs.replace(script, savepoints_fail=0.5)
        jobs.append(_job(rng, script, family, chaos))
    return sorted(jobs, key=lambda job: job.at)


def _job(rng: random.Random, script: Script, family: Family, chaos: float) -> PlannedJob:
    at = round(rng.uniform(0.0, chaos * 0.5), 3)
    cancel_at = round(at + rng.uniform(0.0, chaos), 3) if rng.random() < 0.2 else None
    asks = script.seconds is None and not family.only_agents and cancel_at is None and rng.random() < 0.35
    ask = Ask(round(at + rng.uniform(2.0, chaos), 3), rng.choice(_ASKED)) if asks else None
    return PlannedJob(at=at, script=script, cancel_at=cancel_at, ask=ask)
