"""Divides the bytes of a log into records: lines that start one, and those that continue it.

A line without a header continues a record that has one: stack traces stay with their message, and a level includes
them. Where no record has a header, as in what a script prints, each line is a record, together with indented lines
after it. A traceback is a record of its own, an error, unless a warning or error precedes it.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from emberkeep.log_records.headers import Header, LocalTime, parse_header
from emberkeep.log_records.model import MOST_RECORD_BYTES, Record

NO_RECORD = Record(offset=0, data=b"")  # before the first one


def split_records(data: bytes, offset: int, local_time: LocalTime, before: Record = NO_RECORD) -> Iterator[Record]:
    """Yield the records of ``data``, which begins at ``offset`` with the start of a line, or where a record was cut.

    ``before``: the record that ends at ``offset``; what ``data`` begins with may continue it.
    """
    begin = end = 0  # of the record that is being collected
    # A line that continues ``before`` becomes a record that says so.
    now = Record(offset=offset, data=b"", level=before.level, time=before.time, continues=True, headed=before.headed)
    is_new = before is NO_RECORD
    while end < len(data):
        line_end = data.find(b"\n", end, end + MOST_RECORD_BYTES) + 1 or min(len(data), end + MOST_RECORD_BYTES)
        header = parse_header(data[end:line_end], local_time)
        too_long = line_end - begin > MOST_RECORD_BYTES
        if too_long or (is_new and end == 0) or _starts(now, header, data[end : end + 1]):
            if end > begin:
                yield msgspec.structs.replace(now, data=data[begin:end])
            now = _begun(now, header, offset + end)
            begin = end
        end = line_end
    if end > begin:
        yield msgspec.structs.replace(now, data=data[begin:end])


def _starts(now: Record, header: Header | None, first: bytes) -> bool:
    """True if a line with this header and this first byte starts a record, rather than continuing ``now``."""
    if header is None:
        return not now.headed and first not in (b" ", b"\t", b"\n", b"\r")
    return not _belongs(header, now)


def _begun(now: Record, header: Header | None, offset: int) -> Record:
    """Return the record that follows ``now`` at ``offset``, still empty."""
    if header is not None and not _belongs(header, now):
        time = now.time if header.time is None else header.time
        return Record(offset=offset, data=b"", level=header.level, time=time, headed=True)
    return Record(offset=offset, data=b"", level=now.level, time=now.time, continues=now.headed, headed=now.headed)


def _belongs(header: Header, now: Record) -> bool:
    """True if the line with this header is part of ``now``: the traceback of a warning or an error."""
    return header.weak and now.level is not None and now.level.is_severe
