"""The pauses before the replacements of executors that ended by themselves. Part of the SlotPool.

The first executor that ends in the failure window is replaced at once, because most losses are single events.
"""

from __future__ import annotations

from collections import deque

from emberkeep.slots.pool.limits import PoolLimits

DOUBLINGS = 32  # more doublings than the initial pause needs to reach the longest one


class Replacements:
    """The current pauses. Each holds back one replacement. Its length doubles with each further end in the window.

    Times are in seconds.
    """

    def __init__(self, limits: PoolLimits) -> None:
        self._limits = limits
        self.pauses: list[float] = []  # when each pause ends
        self.ends: deque[float] = deque(maxlen=DOUBLINGS)  # when executors ended by themselves; sets the next pause
        self.failures: deque[float] = deque(maxlen=limits.max_failures + 1)  # which of these ends count as failures

    def executor_ended(self, now: float, *, failure: bool) -> None:
        """Begin a pause, unless it is the first end in the window. The end may count as a failure."""
        self.ends.append(now)
        if failure:
            self.failures.append(now)
        earlier = self._recent(self.ends, now) - 1
        if earlier > 0:
            pause = self._limits.backoff_initial * 2.0 ** (earlier - 1)
            self.pauses.append(now + min(pause, self._limits.backoff_max))

    def recent_failures(self, now: float) -> int:
        """Return the number of failures in the failure window."""
        return self._recent(self.failures, now)

    def _recent(self, times: deque[float], now: float) -> int:
        return sum(1 for time in times if now - time <= self._limits.failure_window)

    def expire(self, now: float) -> bool:
        """End the pauses that are over. Return True if there were any."""
        before = len(self.pauses)
        self.pauses = [until for until in self.pauses if until > now]
        return len(self.pauses) < before

    def keep(self, most: int) -> None:
        """Keep only the ``most`` longest pauses, because no more executors are missing."""
        if len(self.pauses) > most:
            self.pauses = sorted(self.pauses, reverse=True)[:most]

    def clear(self) -> None:
        """Forget what happened to an application that has stopped."""
        self.pauses.clear()
        self.ends.clear()
        self.failures.clear()
