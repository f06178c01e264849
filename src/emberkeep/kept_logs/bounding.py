"""Decides which bytes of a log that is being written are freed, so that it takes a bounded part of the disk.

The first bytes and the newest ones stay. Nothing is freed at three quarters of the bound or below. Above, what is
stored elsewhere is freed until the log is down to half of the bound. What is not stored is freed only above seven
eighths of it, and only down to three quarters: the rest of the bound is for what is written before the next look.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

BLOCK: Final = 64 * 1024  # ranges begin and end at multiples of this, which are multiples of file systems' blocks
SMALLEST_BOUND: Final = 16 * BLOCK


def to_free(kept: Sequence[tuple[int, int]], most: int, stored: int) -> tuple[int, int] | None:
    """Return the range to free of a log with a bound of ``most`` bytes, as first byte and end; None if there is none.

    ``kept``: the ranges of the log that take disk space, in order. ``stored``: the end of what is stored elsewhere.
    """
    used = sum(end - start for start, end in kept)
    if used <= most * 3 // 4:
        return None
    start = most // 8 // BLOCK * BLOCK
    wanted = _after(kept, start, used - most // 2)
    forced = _after(kept, start, used - most * 3 // 4) if used > most * 7 // 8 else 0
    end = max(min(wanted, stored), forced) // BLOCK * BLOCK
    return (start, end) if any(begin < end and start < stop for begin, stop in kept) and end > start else None


def _after(kept: Sequence[tuple[int, int]], start: int, count: int) -> int:
    """Return the end of ``count`` kept bytes from ``start`` on."""
    end = start
    for begin, stop in kept:
        if count > 0 and stop > start:
            end = min(stop, max(begin, start) + count)
            count -= end - max(begin, start)
    return end
