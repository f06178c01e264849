"""A clock for deadlines that stops while this process is frozen.

A JobManager that was frozen (SIGSTOP, a paused machine, a long stall) wakes up with all heartbeats overdue, although
the silence was its own. So the clock advances by at most LONGEST_STEP between two readings. A loop reads the clock
often enough that only real stalls are cut. The clock also stops while it is held, because this JobManager may decide
nothing in that time.
"""

from __future__ import annotations

from emberkeep.base.clock import Clock

LONGEST_STEP = 2.0  # seconds


class SteadyClock:
    """Monotonic seconds without this process's stalls and without the time for which the clock was held."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = clock.monotonic()
        self._stalled = 0.0
        self._held = False

    def now(self) -> float:
        reading = self._clock.monotonic()
        gap = reading - self._last
        if self._held:
            self._stalled += gap
        elif gap > LONGEST_STEP:
            self._stalled += gap - LONGEST_STEP
        self._last = reading
        return reading - self._stalled

    def hold(self) -> None:
        """Stop the clock until ``release``."""
        self.now()
        self._held = True

    def release(self) -> None:
        """Let the clock run again."""
        self.now()
        self._held = False

    def now_ms(self) -> int:
        return self._clock.now_ms()
