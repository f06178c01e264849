"""How long each start of a job took, as bars to one scale, with a text. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from emberkeep.chronicle.timeline import Recovery
from emberkeep.web.formats import span

WIDTH: Final = 160


class RecoveryBar(msgspec.Struct, frozen=True, kw_only=True):
    """``starting`` and ``working``: widths of the two parts, in a box that is WIDTH wide. ``label``: both in words."""

    starting: float
    working: float
    label: str


def recovery_bars(recoveries: Sequence[Recovery]) -> dict[int, RecoveryBar]:
    """Return the bar of each attempt whose start is complete enough to be drawn; the longest one fills the box."""
    longest = max((each.took_ms or 0 for each in recoveries), default=0)
    return {each.attempt: _bar(each, WIDTH / longest) for each in recoveries if each.took_ms and longest}


def _bar(recovery: Recovery, scale: float) -> RecoveryBar:
    took = recovery.took_ms or 0
    if recovery.registered_ms is None:  # only the end is known
        return RecoveryBar(starting=0.0, working=took * scale, label=f"{span(took)} until the first result")
    starting = min(took, max(0, recovery.registered_ms - recovery.began_ms))
    parts = [f"{span(starting)} until the script began"]
    if recovery.working_ms is not None:
        parts.append(f"{span(took - starting)} from there to the first result")
    return RecoveryBar(starting=starting * scale, working=(took - starting) * scale, label=", ".join(parts))
