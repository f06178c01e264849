"""Makes a failing world smaller: leaves out what it does not need to break the same rule."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import msgspec

from campaign.world import World
from tests.support.simulator.scripts import Script

Fails = Callable[[World], bool]
PLAYS_AT_MOST = 300
SECONDS_AT_MOST = 120.0
_PLAIN: dict[str, Any] = {
    "clinging_executors": False,
    "slow_starts": 0.0,
    "slow_ends": 0.0,
    "skews": False,
    "files": False,
    "gpus": 0,
    "bad_imports": 0.0,
    "owned_storage": False,
    "first_release": (),
    "standby_drivers": 0,
    "standby_executors": 0,
    "options": {},
}


def shrink(world: World, fails: Fails, *, plays: int = PLAYS_AT_MOST, seconds: float = SECONDS_AT_MOST) -> World:
    """Return a world that still fails, and from which nothing more can be left out, or the best within the bounds.

    ``fails``: True if a world breaks the rule.
    """
    until = time.monotonic() + seconds
    smaller = True
    while smaller:
        smaller = False
        for candidate in _candidates(world):
            if plays <= 0 or time.monotonic() > until:
                return world
            plays -= 1
            if fails(candidate):
                world, smaller = candidate, True
                break
    return world


def _candidates(world: World) -> Iterator[World]:
    """Yield worlds that are smaller, those that leave out most first."""
    yield from _without_parts(world, "faults", world.faults)
    yield from _without_parts(world, "jobs", world.jobs)
    for number, job in enumerate(world.jobs):
        plain = Script(seconds=job.script.seconds, executors=job.script.executors)
        for less in (
            msgspec.structs.replace(job, cancel_at=None, ask=None),
            msgspec.structs.replace(job, script=plain),
            msgspec.structs.replace(job, script=msgspec.structs.replace(job.script, executors=1)),
        ):
            if less != job:
                jobs = (*world.jobs[:number], less, *world.jobs[number + 1 :])
                yield msgspec.structs.replace(world, jobs=jobs)
    for name, plain_value in _PLAIN.items():
        if getattr(world.plan, name) != plain_value:
            yield msgspec.structs.replace(world, plan=replace(world.plan, **{name: plain_value}))
    if world.plan.task_managers > 1:
        yield msgspec.structs.replace(world, plan=replace(world.plan, task_managers=world.plan.task_managers - 1))
    last = max((fault.at for fault in world.faults), default=0.0)
    for shorter in (last + 1.0, last + (world.chaos_seconds - last) / 2):
        if shorter < world.chaos_seconds - 1.0:
            yield msgspec.structs.replace(world, chaos_seconds=round(shorter, 3))


def _without_parts(world: World, name: str, parts: tuple[Any, ...]) -> Iterator[World]:
    """Yield the world without halves of the parts, then without quarters, at last without single ones."""
    size = len(parts)
    while size > 0:
        size = (size + 1) // 2 if size > 1 else 1
        for start in range(0, len(parts), size):
            left = (*parts[:start], *parts[start + size :])
            if left or name != "jobs":
                yield msgspec.structs.replace(world, **{name: left})
        if size == 1:
            return
