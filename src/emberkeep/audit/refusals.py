"""Bounds what refused requests can add to the audit log: the first of a minute are entries, the others are counted.

A stranger can send refused requests without end. Without a bound, they would push all other entries out of the rotated
files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from emberkeep.audit.entry import Entry
from emberkeep.base.connections import network_of

INTERVAL: Final = 60.0  # seconds
FIRST: Final = 3  # refusals of one kind in an interval that are entries of their own
MOST_KINDS: Final = 64  # kinds that are told apart in an interval
SEVERAL: Final = "*"  # stands for several addresses or actions

_Kind = tuple[str, str, str, int]  # network, identity, action, status


@dataclass
class _Tally:
    """Refusals of one kind. ``last`` is the newest one that was counted."""

    entered: int = 0
    counted: int = 0
    last: Entry | None = None


class Refusals:
    """The refused requests of the current interval.

    The kind of a refusal is its network, identity and status; with a login, also its action. All kinds beyond
    MOST_KINDS count as one.
    """

    def __init__(self) -> None:
        self._tallies: dict[_Kind, _Tally] = {}
        self._until: float | None = None

    def admit(self, entry: Entry, now: float) -> Entry | None:
        """Return the entry if it belongs in the log as it is; None if it is only counted. ``now`` is in seconds."""
        if self._until is None:
            self._until = now + INTERVAL
        kind: _Kind = (network_of(entry.address), entry.identity, entry.action if entry.identity else "", entry.status)
        if kind not in self._tallies and len(self._tallies) >= MOST_KINDS:
            kind = (SEVERAL, SEVERAL, SEVERAL, 0)
        tally = self._tallies.setdefault(kind, _Tally())
        if kind[0] != SEVERAL and tally.entered < FIRST:
            tally.entered += 1
            return entry
        tally.counted += 1
        tally.last = entry if tally.last is None else _both(tally.last, entry)
        return None

    def due(self, now: float, *, closing: bool = False) -> list[Entry]:
        """Return an entry for each kind that was counted, if the interval is over or the log closes."""
        if self._until is None or (now < self._until and not closing):
            return []
        tallies, self._tallies, self._until = self._tallies, {}, None
        return [
            msgspec.structs.replace(tally.last, count=tally.counted)
            for tally in tallies.values()
            if tally.last is not None
        ]


def _both(one: Entry, other: Entry) -> Entry:
    """Return an entry for both: a text in which they differ becomes SEVERAL."""
    texts = {
        name: getattr(one, name) if getattr(one, name) == getattr(other, name) else SEVERAL
        for name in ("identity", "role", "login", "address", "action", "reason")
    }
    status = one.status if one.status == other.status else 0
    return msgspec.structs.replace(other, **texts, status=status, target={}, parameters={})
