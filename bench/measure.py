"""Samples, ratios and goals: what is quoted is a median with its range, because no machine is ever quiet."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Goal:
    """What the median is held against. Exactly one bound is set."""

    at_least: float | None = None
    at_most: float | None = None

    def __str__(self) -> str:
        return f"≥ {self.at_least:g}" if self.at_least is not None else f"≤ {self.at_most:g}"

    def is_met(self, value: float) -> bool:
        if self.at_least is not None:
            return value >= self.at_least
        return self.at_most is not None and value <= self.at_most


@dataclass(frozen=True)
class Figure:
    """One measured quantity: one sample per repetition."""

    name: str
    unit: str
    samples: tuple[float, ...]
    goal: Goal | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    def row(self) -> tuple[str, str, str, str]:
        """Name, median with unit, range, goal and whether it is met."""
        low, high = min(self.samples), max(self.samples)
        span = f"{short(low)} … {short(high)}" if len(self.samples) > 1 else ""
        verdict = "" if self.goal is None else f"{self.goal}: {'met' if self.goal.is_met(self.median) else 'missed'}"
        return self.name, f"{short(self.median)} {self.unit}", span, verdict

    def as_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "unit": self.unit,
            "median": self.median,
            "min": min(self.samples),
            "max": max(self.samples),
            "samples": list(self.samples),
            "goal": None if self.goal is None else str(self.goal),
            "met": None if self.goal is None else self.goal.is_met(self.median),
        }


def ratios(ours: Sequence[float], peers: Sequence[float]) -> tuple[float, ...]:
    """Pair by pair, ours over the peer's: pairs ran next to each other, so the machine's drift cancels out."""
    return tuple(a / b for a, b in zip(ours, peers, strict=True))


def percentile(samples: Sequence[float], share: float) -> float:
    """The smallest sample that ``share`` (0 < share ≤ 1) of all do not exceed."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def short(number: float) -> str:
    """Three significant digits, thousands in full."""
    return f"{number:,.0f}" if abs(number) >= 999.5 else f"{number:.3g}"
