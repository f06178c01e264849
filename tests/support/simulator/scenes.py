"""Scenes: what a seed decides before a run, which is the cluster, the jobs and the menace.

A seed is a number, or a theme and a number ("split-17"). Themes lead to states that a random seed seldom reaches.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import msgspec

from tests.support.simulator.cluster import DRIVER_MEMORY_MB, ClusterPlan
from tests.support.simulator.faults import Menace
from tests.support.simulator.scripts import Script
from tests.support.simulator.virtual_loop import seeded_random


@dataclass(frozen=True)
class Scene:
    """Everything that a seed decides before the run."""

    plan: ClusterPlan
    scripts: tuple[Script, ...]
    chaos_seconds: float
    menace: Menace


@dataclass(frozen=True)
class Theme:
    """Ranges from which a scene is drawn.

    ``weight``: share of the theme among seeds that are plain numbers; 0: only seeds that name it. ``work``: seconds of
    the longest finite script. ``streams``: probability that a job streams.
    """

    weight: int
    menace: tuple[Menace, ...]
    task_managers: tuple[int, ...] = (1, 2, 2, 3, 3, 4)
    slots: tuple[int, ...] = (1, 2, 3, 4)
    jobs: tuple[int, ...] = (1, 1, 2, 2, 3, 3, 4, 5, 6, 8)
    work: float = 25.0
    streams: float = 0.4
    chaos: tuple[float, float] = (15.0, 50.0)
    files: bool = True  # each job has a file; False where only drivers matter, to save time
    only_agents: bool = False  # see ClusterPlan
    slow_ends: float = 0.0  # see ClusterPlan
    standbys: bool = False  # task managers keep standby processes
    reserved: bool = False  # all streams have reserved standbys
    only_standbys: bool = False  # see ClusterPlan
    dynamic: float = 0.0  # probability that half of the jobs use dynamic allocation
    guarantees: bool = False  # jobs have namespaces, some of which are guaranteed slots


_SPLIT = (
    "cut off node",
    "cut off driver",
    "freeze driver",
    "freeze node",
    "abandon driver",
    "cut between nodes",
    "bad network",
)
_AGENTS = ("kill agent", "kill jobmanager")
_NODES = ("kill agent", "crash node", "lose agent", "kill executor", "bad network")
_LATE = ("abandon driver", "freeze node", "freeze driver")
_CUT = ("kill driver", "cut off node", "cut between nodes", "kill jobmanager")
_BLOCK = (
    "block node",
    "unblock node",
    "kill jobmanager",
    "kill executor",
    "kill agent",
    "kill driver",
    "cut off node",
    "bad network",
    "bad store",
)
_STORELESS = ("lose store", "sever store", "kill jobmanager")
_HELPLESS = (*_STORELESS, "kill agent", "lose agent", "kill driver", "freeze driver", "cut off driver")
_CRASH = ("kill agent", "kill driver", "kill executor", "kill jobmanager", "crash node", "bad store", "bad network")

_OLDER = ("put back store", "put back store", "kill driver", "kill executor", "kill jobmanager")

_POISON = ("kill standby", "freeze standby", "poison standby", "starve standbys", "change release")
_STANDBYS = (
    *_POISON,
    "stall standby",
    "leave agent",
    "kill driver",
    "kill executor",
    "kill agent",
    "kill jobmanager",
    "freeze driver",
    "freeze agent",
    "cut off node",
    "cut off driver",
    "crash node",
)
_RESERVED = (
    "kill driver",
    "kill driver",
    "crash node",
    "kill standby",
    "poison standby",
    "kill agent",
    "leave agent",
    "kill jobmanager",
    "cut off node",
    "block node",
    "unblock node",
)

THEMES: dict[str, Theme] = {
    "any": Theme(35, tuple(Menace(pause, longest=longest) for pause in (2.0, 4.0, 8.0) for longest in (10.0, 45.0))),
    # Partitions and freezes about as long as the lease, on jobs long enough for a next attempt.
    "split": Theme(
        25,
        (Menace(8.0, 5.0, 40.0, _SPLIT), Menace(4.0, 12.0, 30.0, _SPLIT)),
        task_managers=(2, 3, 3),
        slots=(2, 3, 4),
        jobs=(1, 2, 2, 3),
        work=35.0,
        streams=0.5,
        chaos=(35.0, 60.0),
        files=False,
    ),
    # Drivers that wake up while their successor runs, when only they can end themselves.
    "abandoned": Theme(
        0,
        (Menace(5.0, 5.0, 20.0, ("abandon driver",)),),
        task_managers=(2, 3),
        slots=(2, 3),
        jobs=(1, 2),
        streams=1.0,
        chaos=(80.0, 110.0),
        files=False,
    ),
    # Requests that the network repeats after the processes that they started have ended.
    "repeats": Theme(
        0,
        (Menace(1.0, 8.0, 20.0, ("bad network", "kill driver")),),
        task_managers=(1, 2),
        jobs=(3, 4),
        streams=1.0,
        chaos=(40.0, 60.0),
        files=False,
    ),
    # Scripts that end while they are cut off, and report it when their successor already runs.
    "late": Theme(
        5,
        (Menace(7.0, 16.0, 25.0, _LATE),),
        task_managers=(2, 3),
        slots=(2, 3),
        jobs=(1, 2, 3),
        work=25.0,
        streams=0.0,
        chaos=(35.0, 60.0),
        files=False,
    ),
    # Drivers that die while the JobManager cannot reach the task managers with their executors.
    "cut": Theme(5, (Menace(3.0, 8.0, 40.0, _CUT),), task_managers=(2, 3, 4), jobs=(1, 2, 3), streams=0.7, files=False),
    "crash": Theme(15, (Menace(1.5, 0.2, 20.0, _CRASH), Menace(4.0, 0.2, 6.0, _CRASH))),
    "crowd": Theme(
        5,
        (Menace(4.0, longest=10.0), Menace(1000.0)),
        slots=(1, 2),
        jobs=(10, 15, 20, 30),
        work=4.0,
        streams=0.05,
        chaos=(10.0, 30.0),
    ),
    # Nodes that are blocked, evacuated and unblocked while jobs and other faults continue; only if named.
    "block": Theme(
        0,
        (Menace(1.5, 0.2, 8.0, _BLOCK), Menace(3.0, 0.2, 20.0, _BLOCK)),
        task_managers=(2, 3, 4),
        jobs=(2, 3, 4, 6),
        chaos=(25.0, 50.0),
        files=False,
    ),
    # Leaders that cannot write to the store and then die for another reason; only if named.
    "storeless": Theme(
        0,
        (Menace(2.0, 5.0, 25.0, _STORELESS), Menace(3.0, 5.0, 40.0, _HELPLESS)),
        task_managers=(1, 1, 2),
        slots=(3, 4, 6),
        jobs=(3, 4, 6),
        work=10.0,
        streams=0.2,
        chaos=(40.0, 70.0),
        files=False,
        slow_ends=0.8,
    ),
    # Job stores that are restored from older copies while drivers are lost; only if named.
    "older": Theme(
        0,
        (Menace(1.5, 0.2, 6.0, _OLDER), Menace(3.0, 0.2, 15.0, _OLDER)),
        task_managers=(2, 3, 4),
        slots=(2, 3),
        jobs=(1, 2, 3),
        work=35.0,
        streams=0.7,
        chaos=(40.0, 70.0),
        files=False,
    ),
    # Agents and JobManagers that come back in time: no driver and no executor may be affected.
    "agents": Theme(
        15,
        (
            Menace(2.0, 0.1, 10.0, _AGENTS),
            Menace(5.0, 4.0, 40.0, _AGENTS),
            Menace(1.0, 0.05, 1.0, _AGENTS),
        ),
        task_managers=(1, 2, 3),
        jobs=(1, 2, 3),
        streams=0.6,
        chaos=(30.0, 60.0),
        files=False,
        only_agents=True,
    ),
    # Agents and whole nodes that come back soon, late or too late.
    "nodes": Theme(
        10,
        (Menace(6.0, 0.2, 30.0, _NODES), Menace(15.0, 5.0, 60.0, _NODES)),
        task_managers=(2, 3),
        jobs=(1, 2, 3),
        streams=0.6,
        chaos=(60.0, 110.0),
        files=False,
    ),
    # Standby processes that fail at each step, beside other faults.
    "standbys": Theme(
        5,
        (Menace(1.0, 0.5, 12.0, _STANDBYS), Menace(2.0, 4.0, 40.0, _STANDBYS)),
        task_managers=(1, 2, 2, 3),
        jobs=(2, 3, 4, 5),
        work=15.0,
        streams=0.5,
        chaos=(40.0, 80.0),
        files=False,
        standbys=True,
    ),
    # Standby processes fail, and nothing else does: no job may notice it; only if named.
    "poisoned": Theme(
        0,
        (Menace(3.0, 0.5, 12.0, _POISON), Menace(8.0, 1.0, 20.0, _POISON)),
        task_managers=(1, 2, 3),
        jobs=(6, 8, 10, 12),
        work=6.0,
        streams=0.2,
        chaos=(60.0, 100.0),
        files=False,
        only_agents=True,
        standbys=True,
        only_standbys=True,
    ),
    # Streams that lose drivers and nodes again and again, and have reserved standbys; only if named.
    "reserved": Theme(
        0,
        (Menace(20.0, 2.0, 12.0, _RESERVED), Menace(30.0, 5.0, 30.0, _RESERVED)),
        task_managers=(2, 3, 3),
        slots=(2, 3, 4),
        jobs=(1, 2, 3),
        streams=0.9,
        chaos=(150.0, 250.0),
        files=False,
        standbys=True,
        reserved=True,
    ),
    # Jobs with dynamic allocation that compete for slots, while nodes are blocked and processes lost; only if named.
    "elastic": Theme(
        0,
        (Menace(2.0, 0.2, 8.0, _BLOCK), Menace(4.0, 0.2, 20.0, _CRASH), Menace(5.0, 1.0, 30.0, _AGENTS)),
        task_managers=(2, 3),
        slots=(2, 3),
        jobs=(2, 3, 4),
        work=40.0,
        chaos=(40.0, 70.0),
        files=False,
        dynamic=1.0,
    ),
    # The same, while nothing but agents and JobManagers is lost: no executor may be reported as lost; only if named.
    "steady": Theme(
        0,
        (Menace(4.0, 0.1, 10.0, _AGENTS),),
        task_managers=(1, 2, 3),
        jobs=(1, 2, 3),
        work=40.0,
        chaos=(40.0, 70.0),
        files=False,
        only_agents=True,
        dynamic=1.0,
    ),
    # Jobs that give slots back to namespaces below their guarantee, and to higher priorities; only if named.
    "shared": Theme(
        0,
        (Menace(2.0, 0.2, 8.0, _BLOCK), Menace(4.0, 0.2, 20.0, _CRASH), Menace(5.0, 1.0, 30.0, _AGENTS)),
        task_managers=(2, 2, 3),
        slots=(2, 3),
        jobs=(5, 6, 8),
        work=40.0,
        chaos=(40.0, 70.0),
        files=False,
        dynamic=1.0,
        guarantees=True,
    ),
    "calm": Theme(10, (Menace(1000.0),), chaos=(5.0, 15.0)),
}


def scene_of(seed: str) -> Scene:
    """Draw a cluster, jobs and a menace."""
    rng = seeded_random(seed, "scene")
    named = seed.partition("-")[0]
    names = list(THEMES)
    theme = THEMES[named] if named in THEMES else THEMES[rng.choices(names, [THEMES[n].weight for n in names])[0]]
    slots, places, managers = rng.choice(theme.slots), rng.choice((2, 3, 4)), rng.choice(theme.task_managers)
    chance = seeded_random(seed, "standbys")
    chance_of_gpus, priorities = seeded_random(seed, "GPUs"), seeded_random(seed, "priorities")
    plan = ClusterPlan(
        seed=seed,
        task_managers=managers,
        slots=slots,
        driver_places=places,
        cores=slots * 2,
        memory_mb=slots * 2048 + places * DRIVER_MEMORY_MB - rng.choice((0, 0, 1024 if slots > 1 else 0)),
        clinging_executors=rng.random() < 0.5,
        slow_starts=0.0 if theme.only_agents else rng.choice((0.0, 0.0, 0.15)),
        skews=rng.random() < 0.5,
        files=theme.files,
        only_agents=theme.only_agents,
        slow_ends=theme.slow_ends
        or (0.2 if theme.standbys and not theme.only_agents and chance.random() < 0.3 else 0.0),
        standby_drivers=chance.choice((1,) if theme.reserved else (0, 1, 1, 2)) if theme.standbys else 0,
        standby_executors=chance.choice((1, 1, 2)) if theme.standbys else 0,
        only_standbys=theme.only_standbys,
        **_reserved(seed, theme),
        **_guarantees(seed, theme),
        gpus=slots if chance_of_gpus.random() < 0.3 else 0,
    )
    dynamic = seeded_random(seed, "dynamic allocation")
    is_dynamic = dynamic.random() < theme.dynamic
    # Streams never end: they must leave a slot and a driver place for jobs that do.
    left = min(managers * slots, managers * places) - 1
    scripts = []
    for _ in range(rng.choice(theme.jobs)):
        script = draw_script(rng, theme, may_stream=left > 0)
        if plan.gpus and not plan.on_demand:
            script = msgspec.structs.replace(script, gpus=chance_of_gpus.choice((0, 1)))
        script = msgspec.structs.replace(script, priority=priorities.choice((0, 0, 0, -100, 100)))
        left -= script.executors if script.seconds is None else 0
        if theme.guarantees:
            namespace, steady = dynamic.choice(("", "a", "b")), dynamic.random() < 0.5 and script.seconds is not None
            script = msgspec.structs.replace(script, namespace=namespace, steady=steady)
        scripts.append(_elastic(dynamic, script) if is_dynamic else script)
    return Scene(plan, tuple(scripts), rng.uniform(*theme.chaos), rng.choice(theme.menace))


def _reserved(seed: str, theme: Theme) -> dict[str, Any]:
    """Draw whether streams have reserved standbys, and whether the imports of these fail."""
    chance = seeded_random(seed, "reserved standbys")
    if not theme.standbys or (chance.random() < 0.3 and not theme.reserved):
        return {}
    return {"options": {"execution.standby": "hot"}, "bad_imports": chance.choice((0.0, 0.0, 0.2))}


def _guarantees(seed: str, theme: Theme) -> dict[str, Any]:
    """Draw what namespaces are guaranteed, and who gives slots back."""
    if not theme.guarantees:
        return {}
    chance = seeded_random(seed, "guarantees")
    options = {
        "security.quota.guaranteed-slots": chance.choice(("a=2", "a=1;b=2", "a=3;b=1")),
        "slotmanager.preemption": chance.choice(("elastic", "executors")),
    }
    return {"options": options}


def draw_script(rng: random.Random, theme: Theme, *, may_stream: bool) -> Script:
    """Draw one job's behaviour."""
    if may_stream and rng.random() < theme.streams:
        return Script(seconds=None, ignores_sigterm=rng.random() < 0.2)
    drawn: dict[str, Any] = {
        "seconds": rng.choice((rng.uniform(0.5, 5.0), rng.uniform(min(5.0, theme.work), theme.work))),
        "executors": rng.randint(1, 3),
        "memory_mb": rng.choice((1024, 2048)),
        "cores": rng.choice((1, 2)),
    }
    return Script(**{**drawn, **rng.choice(_HARMLESS if theme.only_agents else _PECULIARITIES)})


def _elastic(rng: random.Random, script: Script) -> Script:
    """Give every other job dynamic allocation, with one to four executors."""
    if rng.random() < 0.5:
        return script
    return msgspec.structs.replace(script, dynamic=True, executors=rng.randint(script.executors, 4))


_HARMLESS: tuple[dict[str, Any], ...] = ({}, {"exit_code": 3}, {"stops_spark": False}, {"session_after": 8.0})

_PECULIARITIES: tuple[dict[str, Any], ...] = (
    {},
    {},
    {},
    {"exit_code": 3},
    {"raises": True},
    {"stops_spark": False},
    {"session_after": 8.0},
    {"sessions": 2},
    {"sessions": 0},
    {"ignores_sigterm": True},
    {"lost_attempts": 1},
    {"lost_attempts": 2},
    {"mute_attempts": 1},
    {"setup": "fatal"},
    {"setup": "retry"},
    {"bad_executors": True},
)
