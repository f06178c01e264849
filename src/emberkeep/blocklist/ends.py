"""When entries end. Their ends are wall-clock times, but a clock that jumps must not end them at once."""

from __future__ import annotations

from collections.abc import Iterable

from emberkeep.blocklist.model import PERMANENT, Blocked, Place


class Ends:
    """Measures the time of each entry from when it is first seen with its end: only then the clock is read for it."""

    def __init__(self) -> None:
        self._at: dict[tuple[Place, int], float] = {}  # monotonic seconds

    def over(self, entries: Iterable[Blocked], now_ms: int, now: float) -> list[Blocked]:
        """Return those of the ``entries``, which are all that there are, whose time is over.

        ``now_ms``: Unix milliseconds. ``now``: monotonic seconds.
        """
        known, self._at = self._at, {}
        over = []
        for entry in entries:
            if entry.end_ms == PERMANENT:
                continue
            key = entry.place, entry.end_ms
            self._at[key] = at = known.get(key, now + (entry.end_ms - now_ms) / 1000)
            if now >= at:
                over.append(entry)
        return over
