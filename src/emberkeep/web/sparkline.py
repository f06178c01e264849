"""A job's trend as a small line with a text. Pure functions."""

from __future__ import annotations

from typing import Final

import msgspec

from emberkeep.jobs.progress.trend import SAMPLES_KEPT, Trend, TrendUnit
from emberkeep.web.formats import count, span

WIDTH: Final = 120
HEIGHT: Final = 26
_UNITS: Final = {TrendUnit.ROWS_PER_SECOND: "rows/s", TrendUnit.TASKS_DONE: "tasks"}


class Sparkline(msgspec.Struct, frozen=True, kw_only=True):
    """``points``: of an SVG polyline in a box of WIDTH by HEIGHT. ``label``: the same in words."""

    points: str
    label: str
    newest: str


def sparkline(trend: Trend | None) -> Sparkline | None:
    """Return the line of a trend; None if there are fewer than two samples. The newest sample is at the right edge."""
    if trend is None or len(trend.samples) < 2:
        return None
    samples = trend.samples[-SAMPLES_KEPT:]
    highest = max(*samples, 1)
    step = WIDTH / (SAMPLES_KEPT - 1)
    left = WIDTH - step * (len(samples) - 1)
    points = " ".join(
        f"{left + index * step:.1f},{HEIGHT - 1 - sample / highest * (HEIGHT - 2):.1f}"
        for index, sample in enumerate(samples)
    )
    return Sparkline(
        points=points,
        label=f"{trend.unit.value} in the last {span(len(samples) * trend.sample_seconds * 1000)}: newest "
        f"{count(samples[-1])}, lowest {count(min(samples))}, highest {count(max(samples))}",
        newest=f"{count(samples[-1])} {_UNITS[trend.unit]}",
    )
