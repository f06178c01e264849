"""Whether this process may still commit for its attempt (HA-7, P3).

A process that is stopped (SIGSTOP, a machine that sleeps) hears nothing while its job is given to a successor, and its
threads go on where they were. So it looks at a clock that goes on meanwhile, at short intervals: a gap longer than
``freeze`` means that it was stopped, and from then on it is in doubt. In doubt nothing is committed before a
JobManager, which confirms its own leadership first, has answered a question that was asked after the gap.

A driver that only cannot reach the JobManager is not in doubt: jobs go on without it (HA-9).
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from emberkeep.base.clock import since_boot

LOOKS_PER_FREEZE = 20


class AttemptLease:
    """Used from many threads. ``freeze``: seconds; less than the silence after which a successor may run. ``clock``:
    seconds that pass also while this process is stopped."""

    def __init__(self, freeze: float, clock: Callable[[], float] = since_boot) -> None:
        self.interval = freeze / LOOKS_PER_FREEZE  # seconds between two looks, at most
        self._freeze = freeze
        self._clock = clock
        self._changed = threading.Condition()
        self._looked = clock()
        self._doubt_since: float | None = None

    def look(self) -> bool:
        """Notice that this process was stopped since the last look, by whomever; returns whether it is in doubt."""
        with self._changed:
            return self._look()

    def _look(self) -> bool:
        now = self._clock()
        if now - self._looked > self._freeze:
            self._doubt_since = now
        self._looked = now
        return self._doubt_since is not None

    def asking(self) -> float:
        """To be called right before the JobManager is asked; returns what ``confirmed`` wants to know."""
        with self._changed:
            self._look()
            return self._looked

    def confirmed(self, asked: float) -> None:
        """A JobManager that leads has confirmed the attempt; it was asked then."""
        with self._changed:
            self._look()
            if self._doubt_since is not None and asked >= self._doubt_since:
                self._doubt_since = None
                self._changed.notify_all()

    def wait(self) -> None:
        """Return when this attempt may commit. Who is superseded meanwhile never returns: its process is ended."""
        with self._changed:
            while self._look():
                self._changed.wait(self.interval)
