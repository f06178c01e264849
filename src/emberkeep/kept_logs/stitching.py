"""Reads stored pieces as one log. Bytes keep the offsets that they have in the file on the task manager.

Where pieces are missing, the log has a gap: see ``log_records.extents``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence

import msgspec

from emberkeep.kept_logs.model import PieceHeader
from emberkeep.log_records.extents import Extent, View, extent_at, fitting
from emberkeep.log_records.headers import LocalTime

WriteNote = Callable[[int, int, int], bytes]
"""(number of missing bytes, and between which times in Unix milliseconds they were written; 0: unknown) → one line."""
Load = Callable[[int], bytes]
"""The number of a piece → its bytes."""


class StoredExtent(Extent, frozen=True, kw_only=True):
    """An extent of stored pieces.

    ``pieces``: their offsets after the note, in order, with their numbers. Pieces may overlap: one counts from the end
    of those before it.
    """

    offsets: tuple[int, ...]
    pieces: tuple[int, ...]


class Stitched(msgspec.Struct, frozen=True):
    """A log of extents, in order. ``headers`` are those of all pieces; a piece's number is its index there."""

    headers: Sequence[PieceHeader]
    extents: tuple[StoredExtent, ...]

    @property
    def size(self) -> int:
        return self.extents[-1].end if self.extents else 0

    def extent_at(self, offset: int) -> StoredExtent | None:
        """Return the extent with the byte at ``offset``, or the next one if it is in a gap; None at the end."""
        return extent_at(self.extents, offset)

    def read(self, extent: StoredExtent, offset: int, count: int, load: Load) -> bytes:
        """Return up to ``count`` bytes of an extent; ``offset`` is not before its start."""
        found: list[bytes] = []
        end = min(offset + max(0, count), extent.end)
        if offset < extent.kept_from:
            found.append(extent.note[offset - extent.start : end - extent.start])
            offset = min(extent.kept_from, end)
        index = bisect_right(extent.offsets, offset) - 1
        while offset < end:
            piece = extent.pieces[index]
            header, begin = self.headers[piece], extent.offsets[index]
            stop = extent.offsets[index + 1] if index + 1 < len(extent.offsets) else extent.end
            data = load(piece)[max(offset, begin) - header.offset : min(stop, end) - header.offset]
            found.append(data)
            offset, index = min(stop, end), index + 1
        return b"".join(found)

    def view(self, load: Load, complete: bool, local_time: LocalTime) -> View:
        """Return what searches the log. ``complete``: nothing more will be appended to it."""
        extents = {extent.start: extent for extent in self.extents}

        def read(extent: Extent, offset: int, count: int) -> bytes:
            return self.read(extents[extent.start], offset, count, load)

        return View(self.extents, read, complete, local_time)


def stitch(headers: Sequence[PieceHeader], write_note: WriteNote) -> Stitched:
    """Return the log that consists of these pieces, in any order. They may overlap, and others may be missing."""
    order = sorted(range(len(headers)), key=lambda number: (headers[number].offset, -headers[number].end))
    extents: list[StoredExtent] = []
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
            note = fitting(write_note(header.offset - end, until_ms, header.until_ms), header.offset - end)
            start, run = header.offset - len(note), []
        run.append((max(header.offset, end), number))
        end, until_ms = header.end, header.until_ms
    if run:
        extents.append(_extent(start, end, note, run))
    return Stitched(headers, tuple(extents))


def _extent(start: int, end: int, note: bytes, run: Iterable[tuple[int, int]]) -> StoredExtent:
    offsets, pieces = zip(*run, strict=True)
    return StoredExtent(start=start, end=end, note=note, offsets=offsets, pieces=pieces)
