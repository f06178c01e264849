"""A log of which bytes in the middle are not kept. What is kept has the offsets that it has in the whole log.

So a reader that has stopped somewhere can continue there, wherever it reads the log. Where bytes are missing, the log
has a gap. A note, one line that says what is missing, takes the last bytes of the gap, and readers jump to it. The log
divides into extents: each is a note, unless the log starts there, and the bytes up to the next gap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from emberkeep.log_records import scan
from emberkeep.log_records.headers import LocalTime
from emberkeep.log_records.model import Record


class Extent(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets from ``start`` to ``end`` without a gap. ``note``: what its first bytes say about the gap before."""

    start: int
    end: int
    note: bytes

    @property
    def kept_from(self) -> int:
        """Offset of the first byte after the note."""
        return self.start + len(self.note)


ExtentT = TypeVar("ExtentT", bound=Extent)


def extent_at(extents: Sequence[ExtentT], offset: int) -> ExtentT | None:
    """Return the extent with the byte at ``offset``, or the next one if it is in a gap; None at the end."""
    return next((extent for extent in extents if offset < extent.end), None)


def extent_before(extents: Sequence[ExtentT], offset: int) -> ExtentT | None:
    """Return the extent with the byte before ``offset``, or the previous one if that is in a gap."""
    return next((extent for extent in reversed(extents) if extent.start < offset), None)


def extents_around(kept: Sequence[tuple[int, int]], size: int, write_note: Callable[[int, int], bytes]) -> list[Extent]:
    """Return the extents of a log with ``size`` bytes, of which those from the first to the second of each pair exist.

    ``write_note``: (first missing byte, first one that exists again) → what is said about the gap between them.
    """
    found: list[Extent] = []
    end = 0
    for start, stop in [*kept, (size, size)]:
        if start > end:
            note = fitting(write_note(end, start), start - end)
            found.append(Extent(start=start - len(note), end=max(start, stop), note=note))
        elif stop > start:
            found.append(Extent(start=start, end=stop, note=b""))
        end = max(end, stop)
    return found


def missing_note(missing: int, times: str = "") -> bytes:
    """Return the line that a reader sees in place of ``missing`` bytes. ``times``: when they were written, in words."""
    return f"--- Emberkeep: {missing} bytes of this log are not kept{times} ---\n".encode()


def fitting(note: bytes, room: int) -> bytes:
    """Return the note, or its end if the gap is shorter than the note."""
    return note[-room:]


class View(msgspec.Struct, frozen=True):
    """A step of a search in a log of extents, as ``scan.search`` does it in a file.

    ``read`` gets an extent, an offset in it and a number of bytes; it may return fewer. ``complete``: nothing more will
    be appended to the log.
    """

    extents: Sequence[Extent]
    read: Callable[[Extent, int, int], bytes]
    complete: bool
    local_time: LocalTime

    def search(self, wanted: scan.Search) -> scan.Found:
        """Search within one extent. A step that reaches a gap counts the gap as examined."""
        size = self.extents[-1].end if self.extents else 0
        offset = min(wanted.offset, size)
        extent = (extent_before if wanted.backwards else extent_at)(self.extents, offset)
        if extent is None:
            end = 0 if wanted.backwards else max(wanted.offset, size)
            return scan.Found(records=(), start=end, end=end)
        begin = min(offset, extent.end) if wanted.backwards else max(offset, extent.start)
        contents = scan.Contents(
            read=lambda at, count: self.read(extent, extent.start + at, count),
            size=extent.end - extent.start,
            complete=self.complete or extent is not self.extents[-1],
            local_time=self.local_time,
        )
        found = scan.search(contents, msgspec.structs.replace(wanted, offset=begin - extent.start))
        start, end = found.start + extent.start, found.end + extent.start
        if wanted.backwards and start == extent.start:
            before = extent_before(self.extents, start)
            start = 0 if before is None else before.end
        elif not wanted.backwards and end == extent.end:
            after = extent_at(self.extents, end)
            end = end if after is None else after.start
        return scan.Found(
            records=tuple(_moved(each, extent) for each in found.records), start=start, end=end, edge_ms=found.edge_ms
        )


def _moved(record: Record, extent: Extent) -> Record:
    return msgspec.structs.replace(record, offset=record.offset + extent.start)
