"""How many rows a source has available that a query has not read yet, from Spark's report. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from emberkeep.jobs.progress.records import BYTES, FILES

_NOTHING_IS_LEFT = ("maxOffsetsBehindLatest", FILES, BYTES)  # if one of them is 0


def backlog_rows(end: Any, latest: Any) -> int | None:
    """Return the rows between the offset that was read up to and the latest one; None if the offsets do not say.

    Both offsets are numbers, or mappings with the same keys down to numbers, such as Kafka's topics and partitions. A
    latest offset that is behind (a topic was created again) counts as no backlog.

    >>> backlog_rows({"clicks": {"0": 10, "1": 4}}, {"clicks": {"0": 12, "1": 9}})
    7
    >>> backlog_rows({"clicks": {"0": 10}}, {"clicks": {"0": 12, "1": 9}}) is None
    True
    """
    if isinstance(end, Mapping) and isinstance(latest, Mapping):
        if not end or end.keys() != latest.keys():
            return None
        parts = [backlog_rows(end[key], latest[key]) for key in end]
        known = [part for part in parts if part is not None]
        return sum(known) if len(known) == len(parts) else None
    counts = [value for value in (end, latest) if isinstance(value, int) and not isinstance(value, bool)]
    return max(0, counts[1] - counts[0]) if len(counts) == 2 else None


def reported_rows(metrics: Mapping[str, float], latest: Any) -> int | None:
    """Return the rows that a source says are left, for one whose offsets do not; None if it does not say, either.

    ``metrics``: the numbers that the source reports itself. Kafka's connector and others like it report the mean over
    the partitions: ``latest``, the latest offset, says how many there are. Sources of files report how many files and
    bytes are left: that tells the rows only if none is.

    >>> reported_rows({"avgOffsetsBehindLatest": 2.5}, {"clicks": {"0": 12, "1": 9}})
    5
    """
    if any(metrics.get(name) == 0 for name in _NOTHING_IS_LEFT):
        return 0
    mean, parts = metrics.get("avgOffsetsBehindLatest"), _partitions(latest)
    return max(0, round(mean * parts)) if mean is not None and parts else None


def _partitions(offset: Any) -> int:
    """Return how many partitions an offset has: the numbers in it; 0 if there is something else in it."""
    if not isinstance(offset, Mapping):
        return int(isinstance(offset, int) and not isinstance(offset, bool))
    parts = [_partitions(part) for part in offset.values()]
    return sum(parts) if all(parts) else 0
