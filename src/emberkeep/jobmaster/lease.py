"""Decides whether this process may still commit for its attempt (HA-7, P3).

A process that is stopped (SIGSTOP, a machine that sleeps) does not notice that its job continues in a new attempt. When
the process resumes, its threads continue where they were. So the process reads, at short intervals, a clock that also
runs while it is stopped. A gap longer than ``freeze`` shows that the process was stopped, and puts the lease in doubt.
While the lease is in doubt, the process commits nothing. The doubt ends when a JobManager answers a question that was
asked after the gap. The JobManager confirms its own leadership before it answers.

A driver that merely cannot reach the JobManager is not in doubt: jobs continue without it (HA-9).
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from emberkeep.base.clock import since_boot

LOOKS_PER_FREEZE = 20


class AttemptLease:
    """The right to commit. It is in doubt from the first gap noticed until a JobManager confirms the attempt.

    Any thread may use it.

    ``freeze``: seconds, less than the silence after which a newer attempt may run. ``clock`` returns seconds, and also
    advances while this process is stopped.
    """

    def __init__(self, freeze: float, clock: Callable[[], float] = since_boot) -> None:
        self.interval = freeze / LOOKS_PER_FREEZE  # longest allowed seconds between two readings
        self._freeze = freeze
        self._clock = clock
        self._changed = threading.Condition()
        self._looked = clock()
        self._doubt_since: float | None = None

    def look(self) -> bool:
        """Read the clock; return True if the lease is in doubt."""
        with self._changed:
            return self._look()

    def _look(self) -> bool:
        now = self._clock()
        if now - self._looked > self._freeze:
            self._doubt_since = now
        self._looked = now
        return self._doubt_since is not None

    def asking(self) -> float:
        """Return the time to pass to ``confirmed``. Call this right before asking the JobManager."""
        with self._changed:
            self._look()
            return self._looked

    def confirmed(self, asked: float) -> None:
        """Note that the leader has confirmed the attempt. ``asked``: the result of ``asking``.

        This ends the doubt if the leader was asked after the gap.
        """
        with self._changed:
            self._look()
            if self._doubt_since is not None and asked >= self._doubt_since:
                self._doubt_since = None
                self._changed.notify_all()

    def wait(self) -> None:
        """Return once this attempt may commit.

        In a superseded attempt this never returns: its process is killed while it waits.
        """
        with self._changed:
            while self._look():
                self._changed.wait(self.interval)
