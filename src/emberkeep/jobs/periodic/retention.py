"""Decides which periodic savepoints of a job are retired.

No single clock is trusted with the age of a savepoint, because a clock that jumps ahead by days would retire all but
the newest at once. The age is the sum of the times from one savepoint to the next, and from the newest to now, of which
each counts for two intervals at most. So whatever a clock shows, savepoints grow old no faster than further ones are
made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from emberkeep.jobs.checkpoints import SavepointPointer
from emberkeep.jobs.periodic.model import PeriodicSettings
from emberkeep.lifecycle.locations import is_beside

GAP_INTERVALS: Final = 2  # intervals for which the time from one savepoint to the next counts at most


def surplus(
    savepoints: Sequence[SavepointPointer],
    settings: PeriodicSettings,
    now_ms: int,
    is_needed: Callable[[str], bool],
) -> list[SavepointPointer]:
    """Return the savepoints that are kept but no longer should be, oldest first.

    ``savepoints``: the periodic ones of one job, oldest first. ``is_needed``: True for the path of a savepoint that
    another job may still read. The newest savepoint is always kept, whatever its age.
    """
    ages = _ages_ms(savepoints, settings, now_ms)
    kept = [(each, age) for each, age in zip(savepoints, ages, strict=True) if not each.retired_ms]
    most_ms = settings.max_age * 1000 if settings.max_age else math.inf
    return [
        each
        for newer, (each, age) in zip(range(len(kept) - 1, 0, -1), kept, strict=False)  # all but the newest
        if (newer >= settings.retained or age > most_ms) and not is_needed(each.path)
    ]


def _ages_ms(savepoints: Sequence[SavepointPointer], settings: PeriodicSettings, now_ms: int) -> list[float]:
    """Return how old each savepoint is, as far as the others prove it; see the module. ``savepoints``: oldest first."""
    longest = GAP_INTERVALS * settings.interval * 1000
    ages: list[float] = []
    later_ms, age = now_ms, 0.0
    for each in reversed(savepoints):
        age += min(max(0.0, later_ms - each.created_ms), longest)
        ages.append(age)
        later_ms = each.created_ms
    return ages[::-1]


def sibling_of(savepoint: SavepointPointer, candidates: Sequence[SavepointPointer]) -> SavepointPointer | None:
    """Return the newest savepoint that is kept in the same directory; None if there is none."""
    for each in reversed(candidates):
        if not each.retired_ms and each.path != savepoint.path and is_beside(each.path, savepoint.path):
            return each
    return None
