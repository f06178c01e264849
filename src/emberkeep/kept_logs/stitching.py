"""Reads stored pieces as one log. Bytes keep the offsets that they have in the file on the task manager.

So a reader can continue in the stored log where it stopped reading the file, and the other way round. Where pieces are
missing, the log has a gap. A note, one line that says what is missing, takes the last bytes of the gap, and readers
jump to it. The log divides into extents: each is a note, unless the log starts there, and the bytes up to the next gap.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence

import msgspec

from emberkeep.kept_logs.model import PieceHeader
from emberkeep.log_records import scan
from emberkeep.log_records.headers import LocalTime
from emberkeep.log_records.model import Record

WriteNote = Callable[[int, int, int], bytes]
"""(number of missing bytes, and between which times in Unix milliseconds they were written; 0: unknown) → one line."""
Load = Callable[[int], bytes]
"""The number of a piece → its bytes."""


class Extent(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets from ``start`` to ``end`` without a gap. ``note``: what its first bytes say about the gap before.

    ``pieces``: their offsets after the note, in order, with their numbers. Pieces may overlap: one counts from the end
    of those before it.
    """

    start: int
    end: int
    note: bytes
    offsets: tuple[int, ...]
    pieces: tuple[int, ...]


class Stitched(msgspec.Struct, frozen=True):
    """A log of extents, in order. ``headers`` are those of all pieces; a piece's number is its index there."""

    headers: Sequence[PieceHeader]
    extents: tuple[Extent, ...]

    @property
    def size(self) -> int:
        return self.extents[-1].end if self.extents else 0

    def extent_at(self, offset: int) -> Extent | None:
        """Return the extent with the byte at ``offset``, or the next one if it is in a gap; None at the end."""
        return next((extent for extent in self.extents if offset < extent.end), None)

    def extent_before(self, offset: int) -> Extent | None:
        """Return the extent with the byte before ``offset``, or the previous one if that is in a gap."""
        return next((extent for extent in reversed(self.extents) if extent.start < offset), None)

    def read(self, extent: Extent, offset: int, count: int, load: Load) -> bytes:
        """Return up to ``count`` bytes of an extent; ``offset`` is not before its start."""
        found: list[bytes] = []
        end = min(offset + max(0, count), extent.end)
        first = extent.start + len(extent.note)
        if offset < first:
            found.append(extent.note[offset - extent.start : end - extent.start])
            offset = min(first, end)
        index = bisect_right(extent.offsets, offset) - 1
        while offset < end:
            piece = extent.pieces[index]
            header, begin = self.headers[piece], extent.offsets[index]
            stop = extent.offsets[index + 1] if index + 1 < len(extent.offsets) else extent.end
            data = load(piece)[max(offset, begin) - header.offset : min(stop, end) - header.offset]
            found.append(data)
            offset, index = min(stop, end), index + 1
        return b"".join(found)


def stitch(headers: Sequence[PieceHeader], write_note: WriteNote) -> Stitched:
    """Return the log that consists of these pieces, in any order. They may overlap, and others may be missing."""
    order = sorted(range(len(headers)), key=lambda number: (headers[number].offset, -headers[number].end))
    extents: list[Extent] = []
    run: list[tuple[int, int]] = []  # offset from which a piece counts, and its number
    start = end = until_ms = 0
    note = b""
    for number in order:
        header = headers[number]
        if header.end <= end:
            continue
        if header.offset > end:
            if run:
                extents.append(_extent(start, end, note, run))
            note = _fitting(write_note(header.offset - end, until_ms, header.until_ms), header.offset - end)
            start, run = header.offset - len(note), []
        run.append((max(header.offset, end), number))
        end, until_ms = header.end, header.until_ms
    if run:
        extents.append(_extent(start, end, note, run))
    return Stitched(headers, tuple(extents))


def _extent(start: int, end: int, note: bytes, run: Iterable[tuple[int, int]]) -> Extent:
    offsets, pieces = zip(*run, strict=True)
    return Extent(start=start, end=end, note=note, offsets=offsets, pieces=pieces)


def _fitting(note: bytes, room: int) -> bytes:
    """Return the note, or its end if the gap is shorter than the note."""
    return note[-room:]


class View(msgspec.Struct, frozen=True):
    """A step of a search in a stitched log, as ``scan.search`` does it in a file.

    ``complete``: nothing more will be appended to the log.
    """

    log: Stitched
    load: Load
    complete: bool
    local_time: LocalTime

    def search(self, wanted: scan.Search) -> scan.Found:
        """Search within one extent. A step that reaches a gap counts the gap as examined."""
        log, offset = self.log, min(wanted.offset, self.log.size)
        extent = log.extent_before(offset) if wanted.backwards else log.extent_at(offset)
        if extent is None:
            end = 0 if wanted.backwards else max(wanted.offset, log.size)
            return scan.Found(records=(), start=end, end=end)
        begin = min(offset, extent.end) if wanted.backwards else max(offset, extent.start)
        contents = scan.Contents(
            read=lambda at, count: log.read(extent, extent.start + at, count, self.load),
            size=extent.end - extent.start,
            complete=self.complete or extent is not log.extents[-1],
            local_time=self.local_time,
        )
        found = scan.search(contents, msgspec.structs.replace(wanted, offset=begin - extent.start))
        start, end = found.start + extent.start, found.end + extent.start
        if wanted.backwards and start == extent.start:
            before = log.extent_before(start)
            start = 0 if before is None else before.end
        elif not wanted.backwards and end == extent.end:
            after = log.extent_at(end)
            end = end if after is None else after.start
        return scan.Found(
            records=tuple(_moved(each, extent) for each in found.records), start=start, end=end, edge_ms=found.edge_ms
        )


def _moved(record: Record, extent: Extent) -> Record:
    return msgspec.structs.replace(record, offset=record.offset + extent.start)
