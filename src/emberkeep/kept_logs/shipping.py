"""Decides which part of a log file is stored next.

A log is stored in its order, in pieces of whole lines. A reader that has fallen far behind passes over the middle, so
that what is stored begins with the start of the log and ends with its newest lines.
"""

from __future__ import annotations

from typing import Final

import msgspec

from emberkeep.kept_logs.model import PIECE_BYTES, Position

MOST_BEHIND: Final = 16 * 1024**2  # bytes that wait to be stored; beyond that, only the newest half of this is stored


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes to read: ``count`` from ``source`` in the file, which are at ``offset`` in the log.

    ``skipped``: lines before them are passed over, so the part begins after the first end of a line in it.
    """

    source: int
    offset: int
    count: int
    skipped: bool = False


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes of a part that are stored now, and where they begin."""

    source: int
    offset: int
    data: bytes
    is_last: bool


def next_part(stored: Position, size: int, *, has_ended: bool, most_behind: int = MOST_BEHIND) -> Part | None:
    """Return what to read next of a file with ``size`` bytes; None if nothing has to be stored now.

    A file that is shorter than what was stored of it has been replaced: it is stored from its start, after that.
    """
    source = 0 if size < stored.source else stored.source
    behind = size - source
    if behind == 0:
        # an ended log is stored with the note that it has ended, even if it is empty
        is_due = has_ended and not stored.is_whole
        return Part(source=source, offset=stored.end, count=0) if is_due else None
    skipped = behind - most_behind // 2 if behind > most_behind else 0
    return Part(
        source=source + skipped,
        offset=stored.end + skipped,
        count=min(PIECE_BYTES, behind - skipped),
        skipped=skipped > 0,
    )


def moved(part: Part, start: int) -> Part:
    """Return the part that was read for ``part`` if the bytes before ``start`` are not kept in the file."""
    if start == part.source:
        return part
    return Part(source=start, offset=part.offset + start - part.source, count=part.count, skipped=True)


def cut(part: Part, data: bytes, size: int, *, has_ended: bool) -> Cut | None:
    """Return the whole lines of ``data``, which was read for ``part`` of a file with ``size`` bytes; None if none.

    A line that is longer than a piece is cut. A line that is still being written waits for its end.
    """
    start = data.find(b"\n") + 1 if part.skipped else 0
    reaches_end = part.source + len(data) >= size
    end = len(data)
    if not (has_ended and reaches_end):
        end = data.rfind(b"\n") + 1
        if end <= start and not reaches_end:
            end = len(data)  # the part is as long as parts can be
    is_last = has_ended and reaches_end
    if end <= start and not is_last:
        return None
    return Cut(source=part.source + start, offset=part.offset + start, data=data[start:end], is_last=is_last)
