"""Time for deadlines that stands still while this process stands still.

A JobManager that was frozen (SIGSTOP, a paused machine, a long stall) wakes up with all heartbeats overdue, although
the silence was its own. So the gap between two readings counts for at most a step; a loop reads the clock often enough
that only real stalls are cut. It also stands still while it is held: while this JobManager may decide nothing.
"""

from __future__ import annotations

from emberkeep.base.clock import Clock

LONGEST_STEP = 2.0  # seconds


class SteadyClock:
    """Monotonic seconds without this process's own stalls, and without those for which it was held."""

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
        """Stand still until ``release``."""
        self.now()
        self._held = True

    def release(self) -> None:
        """Go on."""
        self.now()
        self._held = False

    def now_ms(self) -> int:
        return self._clock.now_ms()
