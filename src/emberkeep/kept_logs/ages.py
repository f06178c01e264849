"""The time by which stored logs grow old.

No single clock is trusted with that: one that jumps ahead by weeks would delete all logs at once. So this time begins
at the newest change that earlier leaders have made to what is stored, and advances at most PACE times as fast as time
passes, until it has caught up with the clock. The next leader begins again: where nothing new is stored, and leaders
change more often than that takes, logs are kept for longer.
"""

from __future__ import annotations

from typing import Final

PACE: Final = 2


class Ages:
    """Unix milliseconds, never later than the clock. ``monotonic``: seconds."""

    def __init__(self) -> None:
        self._at_ms = 0
        self._read = 0.0
        self.have_begun = False

    def begin(self, newest_ms: int, now_ms: int, monotonic: float) -> None:
        """Begin at the newest change by earlier leaders."""
        self._at_ms, self._read, self.have_begun = min(newest_ms, now_ms), monotonic, True

    def now_ms(self, now_ms: int, monotonic: float) -> int:
        """Return the time. ``now_ms``: what the clock says."""
        passed = max(0.0, monotonic - self._read)
        self._at_ms, self._read = min(now_ms, self._at_ms + round(PACE * passed * 1000)), monotonic
        return self._at_ms
