"""The bytes of a log file, part of which may have been freed while its process runs.

The task manager frees bytes at any time. So each piece is looked at again once it has been read: zeros that have taken
the place of freed bytes are never returned.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

from emberkeep.base.errors import Unavailable
from emberkeep.base.files.holes import data_ranges, has_hole
from emberkeep.log_records.extents import Extent, View, extent_at, extents_around, missing_note
from emberkeep.log_records.scan import Found, Search
from emberkeep.rest.serving.local_time import unix_from_local

_ATTEMPTS = 5  # bytes are freed at most once a second

ResultT = TypeVar("ResultT")


class _JustFreedError(Exception):
    """Bytes were freed while they were read."""


def read_noted(descriptor: int, start: int, limit: int) -> tuple[int, bytes]:
    """Return up to ``limit`` bytes from ``start`` on, and their offset: at freed bytes, a note about them.

    Raises OSError, Unavailable.
    """

    def read() -> tuple[int, bytes]:
        extent = extent_at(_extents(descriptor, os.fstat(descriptor).st_size), start)
        if extent is None:
            return start, b""
        offset = max(start, extent.start)
        return offset, _read(descriptor, extent, offset, limit)

    return _undisturbed(read)


def read_kept(descriptor: int, start: int, count: int) -> tuple[int, bytes]:
    """Return up to ``count`` bytes from ``start`` on that were not freed, and their offset.

    Raises OSError, Unavailable.
    """

    def read() -> tuple[int, bytes]:
        size = os.fstat(descriptor).st_size
        for begin, end in data_ranges(descriptor, size):
            if start < end:
                offset = max(start, begin)
                return offset, _checked(descriptor, offset, min(count, end - offset))
        return max(start, size), b""

    return _undisturbed(read)


def search_noted(descriptor: int, size: int, search: Search, *, complete: bool) -> Found:
    """Carry out one step of a search in the first ``size`` bytes. ``complete``: nothing more will be written.

    Raises OSError, Unavailable.
    """

    def step() -> Found:
        def read(extent: Extent, offset: int, count: int) -> bytes:
            return _read(descriptor, extent, offset, count)

        return View(_extents(descriptor, size), read, complete, unix_from_local).search(search)

    return _undisturbed(step)


def _undisturbed(work: Callable[[], ResultT]) -> ResultT:
    for _ in range(_ATTEMPTS):
        try:
            return work()
        except _JustFreedError:
            continue
    raise Unavailable("the log cannot be read: its bytes are freed faster than that")


def _extents(descriptor: int, size: int) -> list[Extent]:
    def note(start: int, end: int) -> bytes:
        ends_line = start == 0 or os.pread(descriptor, 1, start - 1) == b"\n"
        return (b"" if ends_line else b"\n") + missing_note(end - start)

    return extents_around(data_ranges(descriptor, size), size, note)


def _read(descriptor: int, extent: Extent, offset: int, count: int) -> bytes:
    end = min(offset + max(0, count), extent.end)
    note = extent.note[offset - extent.start : max(0, end - extent.start)] if offset < extent.kept_from else b""
    offset = max(offset, extent.kept_from)
    return note + _checked(descriptor, offset, end - offset)


def _checked(descriptor: int, offset: int, count: int) -> bytes:
    data = os.pread(descriptor, count, offset) if count > 0 else b""
    if data and has_hole(descriptor, offset, offset + len(data)):
        raise _JustFreedError
    return data
