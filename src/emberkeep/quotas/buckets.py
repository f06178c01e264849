"""Token buckets: an average rate with a burst, for each of many names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MOST_NAMES: Final = 4096  # whose use is remembered; the one whose last use is longest ago is forgotten


@dataclass
class _Level:
    """What was left for one name at the time ``at``. Negative if its last use was larger than what was left."""

    left: float
    at: float


class Buckets:
    """For each name, a bucket that gains ``rate`` units a second and holds ``burst``, 1 or more, at most.

    A use is possible while a unit is left, however large the use is: the size of an upload is not known before it has
    arrived. A large use makes the name wait until the rate has made up for it.
    """

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._levels: dict[str, _Level] = {}  # the least recently used first

    def wait(self, name: str, now: float) -> float:
        """Return in how many seconds ``name`` may use something; 0 if it may now. ``now`` is in seconds."""
        left = self._left(name, now)
        return max(1.0 - left, 0.0) / self._rate

    def use(self, name: str, amount: float, now: float) -> None:
        """Record that ``name`` has used ``amount`` units."""
        left = self._left(name, now) - amount
        self._levels.pop(name, None)
        if len(self._levels) >= MOST_NAMES:
            del self._levels[next(iter(self._levels))]
        self._levels[name] = _Level(left, now)

    def _left(self, name: str, now: float) -> float:
        level = self._levels.get(name)
        if level is None:
            return self._burst
        return min(self._burst, level.left + (now - level.at) * self._rate)
