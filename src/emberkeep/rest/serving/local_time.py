"""Times that processes on this machine have written without a time zone."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

_QUARTER_MS = 15 * 60 * 1000  # zones change at these times only


def unix_from_local(local_ms: int) -> int:
    """Convert a local time of this machine to Unix milliseconds. ``local_ms`` counts the local time as if it were UTC.

    A local time that occurs twice, because the clock was put back, counts as the earlier one.
    """
    return local_ms - _ahead_ms(local_ms // _QUARTER_MS)


@lru_cache(maxsize=256)
def _ahead_ms(quarter: int) -> int:
    """Return by how much local time is ahead of UTC in a quarter of an hour of local time."""
    local_ms = quarter * _QUARTER_MS
    try:
        naive = datetime.fromtimestamp(local_ms / 1000, UTC).replace(tzinfo=None)
        return local_ms - round(naive.timestamp() * 1000)
    except (OverflowError, OSError, ValueError):
        return 0
