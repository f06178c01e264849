"""One bounded step of a search through a log: a window of its bytes, forwards or backwards, and what is found there.

A step examines at most WINDOW bytes, however large the log is. It says which bytes it has examined, so that the next
step continues there; a step that finds nothing is not the end of the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice, pairwise
from typing import Final

import msgspec

from emberkeep.base.compatible import Compatible
from emberkeep.log_records.headers import LocalTime, parse_header
from emberkeep.log_records.model import MOST_RECORD_BYTES, MOST_TEXT_CHARACTERS, MOST_TEXTS, Record, Selection
from emberkeep.log_records.records import NO_RECORD, split_records

WINDOW: Final = 2 * 1024**2  # bytes that one step examines
MOST_LINES: Final = 40_000  # that one step examines; of very short lines, it examines less than a window
MOST_RECORDS: Final = 1000  # in the result of one step
MOST_FOUND_BYTES: Final = 1024**2  # of the records of one step; the first one may exceed it

_LOOK_BACK: Final = 2 * MOST_RECORD_BYTES
_PROBE: Final = 64 * 1024  # bytes in which a search by time looks for a record with a time
_SLACK_MS: Final = 60_000  # threads write records a little out of order, and clocks are corrected


class Contents(msgspec.Struct, frozen=True):
    """The bytes of a log. ``read`` gets an offset and a number of bytes. ``complete``: nothing more will be written."""

    read: Callable[[int, int], bytes]
    size: int
    complete: bool
    local_time: LocalTime


class Search(Compatible, frozen=True, kw_only=True):
    """What one step looks for, and where.

    ``backwards``: the step ends at ``offset``, and its records are the last ones before it; otherwise it begins there.
    ``limit``: the largest number of records; ``most_bytes``: of these records.
    """

    selection: Selection
    offset: int
    limit: int
    most_bytes: int
    backwards: bool = False

    @property
    def is_bounded(self) -> bool:
        """True if the numbers are within the limits of one step."""
        selection = self.selection
        return (
            self.offset >= 0
            and 1 <= self.limit <= MOST_RECORDS
            and 1 <= self.most_bytes <= MOST_FOUND_BYTES
            and len(selection.texts) <= MOST_TEXTS
            and all(0 < len(text) <= MOST_TEXT_CHARACTERS for text in selection.texts)
        )


class Found(Compatible, frozen=True, kw_only=True):
    """Records in the order of the log, and the bytes that were examined: from ``start`` to ``end``.

    ``edge_ms``: time of the examined record that is farthest in the direction of the search, as ``Record.time``.
    """

    records: tuple[Record, ...]
    start: int
    end: int
    edge_ms: int | None = None


def search(contents: Contents, wanted: Search) -> Found:
    """Carry out one step. ``wanted.offset`` is within the log."""
    return _backwards(contents, wanted) if wanted.backwards else _forwards(contents, wanted)


def _forwards(contents: Contents, wanted: Search) -> Found:
    selection, start = wanted.selection, wanted.offset
    if selection.since_ms > _SLACK_MS:
        start = _seek(contents, start, selection.since_ms - _SLACK_MS)
    data = _few_lines(contents.read(start, min(WINDOW, contents.size - start)), last=False)
    reaches_end = start + len(data) >= contents.size
    data = _settled(contents, data, start)
    stop = start + len(data)
    before = _record_before(contents, start)
    if not selection.may_match_within(data, before) and len(data) > _LOOK_BACK:
        data = _from_line(data, len(data) - _LOOK_BACK)
        before = _record_before(contents, stop - len(data))
    last = before
    records = split_records(data, stop - len(data), contents.local_time, before)
    found: list[Record] = []
    budget, end = wanted.most_bytes, stop - len(data)
    for record in records if reaches_end else _but_last(records):
        if selection.matches(record):
            budget -= len(record.data)
            if len(found) == wanted.limit or (found and budget < 0):
                break
            found.append(record)
        last, end = record, record.end
        if selection.ends_before(record, _SLACK_MS):
            end = contents.size  # all that follows is later
            break
    return Found(records=tuple(found), start=start, end=end, edge_ms=last.time)


def _backwards(contents: Contents, wanted: Search) -> Found:
    selection = wanted.selection
    low = max(0, wanted.offset - WINDOW)
    data = _settled(contents, contents.read(low, wanted.offset - low), low)
    stop = low + len(data)
    data = _few_lines(data, last=True)
    low = stop - len(data)
    if low > 0:
        data = _from_line(data, 0) or data  # a line longer than the window is searched in pieces
        low = stop - len(data)
    before = _record_before(contents, low)
    if not selection.may_match_within(data, before):
        data = data[:_LOOK_BACK]
    examined = list(split_records(data, low, contents.local_time, before))
    if low > 0 and len(examined) > 1 and examined[0].continues:
        del examined[0]  # it belongs to the records before, with its beginning
    start = examined[0].offset if examined else low
    edge = examined[0].time if examined else None
    found: list[Record] = []
    budget = wanted.most_bytes
    for record in reversed(examined):
        if selection.matches(record):
            budget -= len(record.data)
            if len(found) == wanted.limit or (found and budget < 0):
                start, edge = found[-1].offset, found[-1].time
                break
            found.append(record)
        if record.time is not None and record.time < selection.since_ms - _SLACK_MS:
            start, edge = 0, record.time  # all that precedes is earlier
            break
    return Found(records=tuple(reversed(found)), start=start, end=stop, edge_ms=edge)


def _few_lines(data: bytes, *, last: bool) -> bytes:
    """Return the first or last part of ``data`` that has at most MOST_LINES lines, or a little less."""
    while data.count(b"\n") > MOST_LINES:
        half = len(data) // 2
        data = data[half:] if last else data[:half]
    return data


def _settled(contents: Contents, data: bytes, offset: int) -> bytes:
    """Return ``data`` without a last line whose end has not been written yet, unless that line is too long to wait."""
    if contents.complete or offset + len(data) < contents.size:
        return data
    whole = data.rfind(b"\n") + 1
    return data[:whole] if len(data) - whole < MOST_RECORD_BYTES else data


def _but_last(records: Iterator[Record]) -> Iterator[Record]:
    """Yield the first record, and all others but the last, whose other lines may follow."""
    yield from islice(records, 1)
    yield from (record for record, _ in pairwise(records))


def _record_before(contents: Contents, offset: int) -> Record:
    """Return the record that ends at ``offset``, or the end of it; NO_RECORD at the start of the log."""
    low = max(0, offset - _LOOK_BACK)
    data = contents.read(low, offset - low)
    if low > 0:
        data = _from_line(data, 0)
    line = len(data)
    while line > 0:  # the last record with a header is usually near
        end, line = line, data.rfind(b"\n", 0, line - 1) + 1
        header = parse_header(data[line:end], contents.local_time)
        if header is not None and not header.weak:
            break
    records = split_records(data[line:], offset - len(data) + line, contents.local_time)
    return next(iter(deque(records, maxlen=1)), NO_RECORD)


def _from_line(data: bytes, offset: int) -> bytes:
    """Return what follows the first end of a line at or after ``offset``; all if no line ends there."""
    return data[data.find(b"\n", offset) + 1 :]


def _seek(contents: Contents, low: int, moment_ms: int) -> int:
    """Return ``low``, or the start of a later line: all records in between are older than ``moment_ms``.

    Reads a logarithmic number of pieces, and assumes that records are about in the order of their times.
    """
    high = contents.size
    while high - low > 4 * _PROBE:
        middle = (low + high) // 2
        timed = _first_timed(contents, middle)
        if timed is None or timed[1] >= moment_ms:
            high = middle
        else:
            low = timed[0]
    return low


def _first_timed(contents: Contents, offset: int) -> tuple[int, int] | None:
    """Return offset and time of a record with a time soon after ``offset``; None if there is none."""
    data = contents.read(offset, _PROBE)
    lines = _from_line(data, 0)
    for record in split_records(lines, offset + len(data) - len(lines), contents.local_time):
        if record.time is not None:
            return record.offset, record.time
    return None
