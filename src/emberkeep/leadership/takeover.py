"""When refused connections prove that a JobManager's process is gone, so that its session need not run out. Pure.

A port that refuses has no listener, unless something on the way refuses in its name. So a refusal says something only
of a process that has accepted a connection before. Each takeover uses that up: two JobManagers that refuse each other
take over once, and then wait for sessions to end.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

REFUSALS = 3  # in a row, before a process counts as gone
FIRST_PATIENCE = 2.0  # seconds of refusals, after the first takeover from a process that turned out to live
LONGEST_PATIENCE = 300.0
MOST_LIVES = 64  # that are remembered; the oldest are forgotten


class Probe(enum.Enum):
    """How a port has answered."""

    ACCEPTED = "ACCEPTED"
    REFUSED = "REFUSED"
    SILENT = "SILENT"  # proves nothing


@dataclass
class _Seen:
    accepts: bool = False  # since the last takeover from it
    refusals: int = 0  # in a row
    refuses_since: float = 0.0
    overtaken: bool = False
    mistakes: int = 0  # takeovers after which it accepted again

    @property
    def patience(self) -> float:
        """Grows for a process whose port refuses now and then."""
        return 0.0 if self.mistakes == 0 else min(FIRST_PATIENCE * 2.0 ** (self.mistakes - 1), LONGEST_PATIENCE)


class TakeoverRule:
    """Remembers how the ports of others have answered. A *life* is one session of one JobManager."""

    def __init__(self) -> None:
        self._seen: dict[Hashable, _Seen] = {}

    def probed(self, life: Hashable, answer: Probe, now: float) -> None:
        """The port of ``life`` has answered so at ``now`` (seconds)."""
        seen = self._known(life)
        if answer is not Probe.REFUSED:
            seen.refusals = 0
        elif seen.refusals == 0:
            seen.refusals, seen.refuses_since = 1, now
        else:
            seen.refusals += 1
        if answer is Probe.ACCEPTED:
            seen.accepts = True
            if seen.overtaken:
                seen.overtaken = False
                seen.mistakes += 1

    def is_gone(self, life: Hashable, now: float) -> bool:
        """Whether nobody has to wait for the end of its session."""
        seen = self._seen.get(life)
        if seen is None or not seen.accepts or seen.refusals < REFUSALS:
            return False
        return now - seen.refuses_since >= seen.patience

    def took_over(self, lives: Iterable[Hashable]) -> None:
        """From these, because they were gone."""
        for life in lives:
            seen = self._known(life)
            seen.accepts, seen.refusals, seen.overtaken = False, 0, True

    def _known(self, life: Hashable) -> _Seen:
        if life not in self._seen and len(self._seen) >= MOST_LIVES:
            del self._seen[next(iter(self._seen))]
        return self._seen.setdefault(life, _Seen())
