"""A planted bug: which method is spoiled, how, and in which world it must be noticed as the violation of which rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest

from tests.simulation.planted_worlds import World
from tests.support.simulator.properties import Properties
from tests.support.simulator.simulation import simulate_many

SEEDS_AT_MOST = 200

Method = Callable[..., Any]
Spoil = Callable[[Method], Method]


@dataclass(frozen=True)
class Plant:
    """``target.method`` is replaced by ``replacement(original)``; in ``world`` one of ``rules`` must break.

    ``world``: a theme of the simulator, or another world. A theme's first violation must be one of ``rules``. Another
    world tells a story, which notices many bugs by itself: there one of the violations must be one of ``rules``.
    """

    target: type | ModuleType
    method: str
    replacement: Spoil
    rules: tuple[str, ...]
    world: str | World


def returning(value: Any) -> Spoil:
    return lambda _: lambda *__, **___: value


def answering(value: Any) -> Spoil:
    async def answer(*_: Any, **__: Any) -> Any:
        return value

    return lambda _: answer


def broken(violations: tuple[str, ...], rules: tuple[str, ...]) -> list[str]:
    """Return the violations of these rules."""
    return [violation for violation in violations if violation.partition(":")[0] in rules]


def first_failure(plant: Plant) -> tuple[str, tuple[str, ...]] | None:
    """Return the first seed that notices the bug, with its violations."""
    numbers = range(1, SEEDS_AT_MOST + 1)
    if isinstance(plant.world, str):
        batch = simulate_many([f"{plant.world}-{number}" for number in numbers], stop_after=1)
        return next(((report.seed, report.violations) for report in batch.failures), None)
    for number in numbers:
        violations = plant.world(number)
        if broken(violations, plant.rules):
            return str(number), violations
    return None


def check(name: str, plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plant the bug and assert that its world notices it."""
    # The machines' own checks would notice some of these bugs; here the view from outside has to.
    monkeypatch.setattr(Properties, "_check_invariants", lambda _: None)
    monkeypatch.setattr(plant.target, plant.method, plant.replacement(getattr(plant.target, plant.method)))
    failure = first_failure(plant)
    assert failure is not None, f"not caught within {SEEDS_AT_MOST} seeds: {name}"
    seed, violations = failure
    caught = broken(violations, plant.rules)
    print(f"{name}: seed {seed}: {caught}")
    if isinstance(plant.world, str):
        assert tuple(caught[:1]) == violations[:1], violations[0]
