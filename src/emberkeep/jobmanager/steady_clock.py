"""Time for deadlines that stands still while this process stands still.

A JobManager that was frozen (SIGSTOP, a paused machine, a long stall) wakes up with all heartbeats overdue, although
the silence was its own. So the gap between two readings counts for at most a step; a loop reads the clock often enough
that only real stalls are cut.
"""

from __future__ import annotations

from emberkeep.base.clock import Clock

LONGEST_STEP = 2.0  # seconds


class SteadyClock:
    """Monotonic seconds without this process's own stalls."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = clock.monotonic()
        self._stalled = 0.0

    def now(self) -> float:
        reading = self._clock.monotonic()
        gap = reading - self._last
        if gap > LONGEST_STEP:
            self._stalled += gap - LONGEST_STEP
        self._last = reading
        return reading - self._stalled

    def now_ms(self) -> int:
        return self._clock.now_ms()
