"""Decide when refused connections prove that a JobManager's process has ended. Pure.

The next JobManager then need not wait until the session of the ended process expires.

A port that refuses connections has no listener, unless something on the network path refuses on the process's behalf.
So a refusal is evidence only about a process that has accepted a connection before. A takeover uses that evidence up:
two JobManagers that refuse each other's connections each take over once, and then wait for sessions to end.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

REFUSALS = 3  # in a row, before a process counts as ended
FIRST_PATIENCE = 2.0  # seconds that refusals must last, after one takeover from a process that was alive after all
LONGEST_PATIENCE = 300.0  # seconds
MOST_LIVES = 64  # sessions remembered; the oldest is forgotten first


class PortProbe(enum.Enum):
    """Response of a port to a connection attempt."""

    ACCEPTED = "ACCEPTED"
    REFUSED = "REFUSED"
    SILENT = "SILENT"  # proves nothing


@dataclass
class _Seen:
    accepts: bool = False  # has accepted a connection since the last takeover from it
    refusals: int = 0  # in a row
    refuses_since: float = 0.0
    overtaken: bool = False  # was taken over, and has not accepted a connection since
    mistakes: int = 0  # takeovers after which it accepted a connection again

    @property
    def patience(self) -> float:
        """Seconds that refusals must last. Doubles with each mistaken takeover, up to LONGEST_PATIENCE."""
        return 0.0 if self.mistakes == 0 else min(FIRST_PATIENCE * 2.0 ** (self.mistakes - 1), LONGEST_PATIENCE)


class TakeoverRule:
    """Remembers how the ports of other JobManagers responded.

    A *life* is one ZooKeeper session of one JobManager.
    """

    def __init__(self) -> None:
        self._seen: dict[Hashable, _Seen] = {}

    def probed(self, life: Hashable, answer: PortProbe, now: float) -> None:
        """Note how the port of ``life`` responded at ``now`` (seconds)."""
        seen = self._known(life)
        if answer is not PortProbe.REFUSED:
            seen.refusals = 0
        elif seen.refusals == 0:
            seen.refusals, seen.refuses_since = 1, now
        else:
            seen.refusals += 1
        if answer is PortProbe.ACCEPTED:
            seen.accepts = True
            if seen.overtaken:
                seen.overtaken = False
                seen.mistakes += 1

    def is_gone(self, life: Hashable, now: float) -> bool:
        """True if the process is proven to have ended: its successor need not wait until its session expires."""
        seen = self._seen.get(life)
        if seen is None or not seen.accepts or seen.refusals < REFUSALS:
            return False
        return now - seen.refuses_since >= seen.patience

    def took_over(self, lives: Iterable[Hashable]) -> None:
        """Note a takeover from the processes of ``lives``, because they were considered ended."""
        for life in lives:
            seen = self._known(life)
            seen.accepts, seen.refusals, seen.overtaken = False, 0, True

    def _known(self, life: Hashable) -> _Seen:
        if life not in self._seen and len(self._seen) >= MOST_LIVES:
            del self._seen[next(iter(self._seen))]
        return self._seen.setdefault(life, _Seen())
