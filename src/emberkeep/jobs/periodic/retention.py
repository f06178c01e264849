"""Decides which periodic savepoints of a job are retired."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from emberkeep.jobs.checkpoints import SavepointPointer
from emberkeep.jobs.periodic.model import PeriodicSettings
from emberkeep.lifecycle.locations import is_beside


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
    kept = [each for each in savepoints if not each.retired_ms]
    oldest_ms = now_ms - round(settings.max_age * 1000) if settings.max_age else 0
    return [
        each
        for newer, each in zip(range(len(kept) - 1, 0, -1), kept, strict=False)  # all but the newest
        if (newer >= settings.retained or each.created_ms < oldest_ms) and not is_needed(each.path)
    ]


def sibling_of(savepoint: SavepointPointer, candidates: Sequence[SavepointPointer]) -> SavepointPointer | None:
    """Return the newest savepoint that is kept in the same directory; None if there is none."""
    for each in reversed(candidates):
        if not each.retired_ms and each.path != savepoint.path and is_beside(each.path, savepoint.path):
            return each
    return None
