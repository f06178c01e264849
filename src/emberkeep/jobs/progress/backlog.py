"""How many rows a source has available that a query has not read yet, from the offsets in Spark's report. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


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
