"""Decides which stored parts of a job's logs are dropped: what is too old, then the oldest in the middle."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

FILE_COST: Final = 16 * 1024  # of a segment, besides its bytes: a job that fails all the time has many small ones


class Segment(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """A file with pieces of the log ``log``, in which the first one begins at ``start``. ``stored``: its size."""

    log: str
    start: int
    epoch: int
    stored: int
    changed_ms: int

    @property
    def cost(self) -> int:
        """What counts towards the limit of a job."""
        return self.stored + FILE_COST


def surplus(segments: Iterable[Segment], most_bytes: int, oldest_ms: int) -> list[Segment]:
    """Return the segments of one job to delete, so that the others cost at most ``most_bytes``.

    Each log keeps its first and last segment for as long as that is possible. The segment that has changed last stays,
    so a single one may need more. Segments that were last changed before ``oldest_ms`` are deleted in any case.
    """
    young: list[Segment] = []
    dropped: list[Segment] = []
    for segment in sorted(segments):
        (dropped if segment.changed_ms < oldest_ms else young).append(segment)
    total = sum(segment.cost for segment in young)
    ends = _ends(young)
    newest = max(young, key=lambda segment: (segment.changed_ms, segment), default=None)
    for segment in sorted(young, key=lambda segment: (segment in ends, segment.changed_ms, segment)):
        if total <= most_bytes:
            break
        if segment != newest:
            dropped.append(segment)
            total -= segment.cost
    return dropped


def _ends(segments: list[Segment]) -> set[Segment]:
    """Return the first and the last segment of each log. ``segments`` are in order."""
    first: dict[str, Segment] = {}
    last: dict[str, Segment] = {}
    for segment in segments:
        first.setdefault(segment.log, segment)
        last[segment.log] = segment
    return {*first.values(), *last.values()}
