"""What a streaming query has not read yet, as its sources count it: in rows, files, bytes or time. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite, nan

import msgspec

from emberkeep.jobs.progress.records import BYTES, FILES, TIME_MS, SourceProgress


class Outstanding(msgspec.Struct, frozen=True, kw_only=True):
    """What is left to read; a field is None if no source counts so.

    A source that counts rows is in ``rows`` only. ``behind_ms``: of the source that is farthest behind. ``unknown``:
    sources that do not say what is left.
    """

    rows: int | None = None
    files: int | None = None
    size: int | None = None  # bytes
    behind_ms: int | None = None
    unknown: int = 0

    @property
    def is_known(self) -> bool:
        """True if at least one source says what is left."""
        return any(each is not None for each in (self.rows, self.files, self.size, self.behind_ms))


def outstanding(sources: Sequence[SourceProgress], rows: int | None = None) -> Outstanding:
    """Return what is left of these sources. ``rows``: of all of them, if that is known."""
    if rows is not None:
        return Outstanding(rows=rows)
    others = [source.metrics for source in sources if source.backlog_rows is None]
    rows = _sum(source.backlog_rows for source in sources)
    unknown = sum(metrics.keys().isdisjoint((FILES, BYTES, TIME_MS)) for metrics in others)
    return msgspec.structs.replace(_said_by(others), rows=rows, unknown=unknown)


def unread(sources: Sequence[SourceProgress]) -> Outstanding:
    """Return the same, to be compared over time: a source without anything left has 0 files or bytes, and 0 rows.

    ``rows``: of the sources that count them, even if others do not.
    """
    found = _said_by([source.metrics for source in sources if not source.backlog_rows])
    return msgspec.structs.replace(found, rows=_sum(source.backlog_rows for source in sources))


def _said_by(metrics: Sequence[Mapping[str, float]]) -> Outstanding:
    behind = [each[TIME_MS] for each in metrics if isfinite(each.get(TIME_MS, nan))]
    return Outstanding(
        files=_sum(each.get(FILES) for each in metrics),
        size=_sum(each.get(BYTES) for each in metrics),
        behind_ms=max(0, round(max(behind))) if behind else None,
    )


def together(parts: Iterable[Outstanding]) -> Outstanding:
    """Return what is left of several queries that work side by side. Those that say nothing are left out."""
    known = [part for part in parts if part.is_known]
    behind = [part.behind_ms for part in known if part.behind_ms is not None]
    return Outstanding(
        rows=_sum(part.rows for part in known),
        files=_sum(part.files for part in known),
        size=_sum(part.size for part in known),
        behind_ms=max(behind, default=None),
        unknown=sum(part.unknown for part in known),
    )


def _sum(amounts: Iterable[float | None]) -> int | None:
    known = [max(0, round(amount)) for amount in amounts if amount is not None and isfinite(amount)]
    return sum(known) if known else None
