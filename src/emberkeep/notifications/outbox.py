"""Which notification is delivered next, and when: a bounded queue with pauses that grow after failures. Pure.

Notifications are delivered one at a time, in order, so a receiver learns of an alarm before its end. One that cannot be
delivered holds up the others for a bounded time only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from emberkeep.notifications.model import Notification

FIRST_PAUSE = 1.0  # seconds before the first repetition
LONGEST_PAUSE = 60.0


@dataclass
class Counts:
    """What became of all notifications. ``failures``: tries that failed, including those that were repeated."""

    delivered: int = 0
    failures: int = 0
    dropped: int = 0


class Outbox:
    """At most ``limit`` notifications wait. Each is tried for ``patience`` seconds since its first try.

    ``first_pause``: seconds before the first repetition; each further pause is twice as long.
    """

    def __init__(self, limit: int, patience: float, first_pause: float = FIRST_PAUSE) -> None:
        self.counts = Counts()
        self._limit = limit
        self._patience = patience
        self._first_pause = first_pause
        self._waiting: deque[Notification] = deque()
        self._tried_since: float | None = None  # the first in the queue
        self._failures = 0  # of the first in the queue
        self._next_at = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, notification: Notification) -> None:
        """Add a notification. If the queue is full, drop the oldest one that is not being tried."""
        self._waiting.append(notification)
        if len(self._waiting) > self._limit:
            del self._waiting[0 if self._tried_since is None else 1]
            self.counts.dropped += 1

    def put_first(self, earlier: Sequence[Notification]) -> None:
        """Add notifications that are older than all that wait; the oldest that find no room are dropped."""
        being_tried = 0 if self._tried_since is None else 1
        room = max(0, self._limit - len(self._waiting))
        kept = earlier[len(earlier) - min(room, len(earlier)) :]
        self.counts.dropped += len(earlier) - len(kept)
        for each in reversed(kept):
            self._waiting.insert(being_tried, each)

    def waiting(self) -> tuple[Notification, ...]:
        """Return all that are not done with, in order."""
        return tuple(self._waiting)

    def due_at(self) -> float | None:
        """Return when the next try is due; None while nothing waits."""
        return self._next_at if self._waiting else None

    def begin(self, now: float) -> Notification:
        """Return the notification to try now. ``delivered``, ``failed`` or ``refused`` must follow."""
        if self._tried_since is None:
            self._tried_since = now
        return self._waiting[0]

    def delivered(self) -> None:
        self.counts.delivered += 1
        self._done()

    def refused(self) -> None:
        """Drop the notification, because the receiver refuses it and would refuse it again."""
        self.counts.failures += 1
        self.counts.dropped += 1
        self._done()

    def failed(self, now: float, chance: float) -> bool:
        """Repeat the notification later. Return False if it was tried for too long and is dropped instead.

        ``chance``: a random number in [0, 1), so that the leaders of several clusters do not return at once.
        """
        self.counts.failures += 1
        self._failures += 1
        if self._tried_since is not None and now - self._tried_since >= self._patience:
            self.counts.dropped += 1
            self._done()
            return False
        pause = min(LONGEST_PAUSE, self._first_pause * 2 ** min(self._failures - 1, 10))
        self._next_at = now + pause * (0.5 + chance / 2)
        return True

    def _done(self) -> None:
        self._waiting.popleft()
        self._tried_since, self._failures, self._next_at = None, 0, 0.0
