"""Holes in files: ranges of bytes that take no disk space, and that are read as zeros."""

from __future__ import annotations

import ctypes
import errno
import os
from typing import Final

_KEEP_SIZE, _PUNCH_HOLE = 0x01, 0x02
_MOST_RANGES: Final = 64  # anybody who may write the file can make as many holes as it has blocks
NO_HOLES: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS})
"""Errors of ``punch`` where the file system, or this system, cannot make holes."""


def punch(descriptor: int, start: int, end: int) -> None:
    """Free the disk space of the bytes from ``start`` to ``end``. All other bytes keep their offsets.

    Of a block that is only partly in the range, the bytes are set to zero. Raises OSError.
    """
    if _fallocate is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    while _fallocate(descriptor, _PUNCH_HOLE | _KEEP_SIZE, start, end - start) != 0:
        code = ctypes.get_errno()
        if code != errno.EINTR:
            raise OSError(code, os.strerror(code))


def data_ranges(descriptor: int, size: int) -> list[tuple[int, int]]:
    """Return which of the first ``size`` bytes are not in holes, as pairs of first byte and end.

    Where the file system knows no holes, all bytes are data. After the 63rd hole, all that follows counts as data.
    Moves the descriptor's offset. Raises OSError.
    """
    status = os.fstat(descriptor)
    if status.st_blocks * 512 >= status.st_size:
        return [(0, size)] if size else []
    found: list[tuple[int, int]] = []
    start = _seek(descriptor, 0, os.SEEK_DATA, size)
    while start < size and len(found) < _MOST_RANGES - 1:
        end = _seek(descriptor, start, os.SEEK_HOLE, size)
        found.append((start, end))
        start = _seek(descriptor, end, os.SEEK_DATA, size)
    return [*found, (start, size)] if start < size else found


def has_hole(descriptor: int, start: int, end: int) -> bool:
    """True if a byte from ``start`` to ``end`` is in a hole. Moves the descriptor's offset. Raises OSError."""
    return _seek(descriptor, start, os.SEEK_HOLE, end) < end


def _seek(descriptor: int, offset: int, whence: int, most: int) -> int:
    """Return the next offset of data or of a hole; ``most`` if that is later or there is none."""
    if offset >= most:
        return most
    try:
        return min(os.lseek(descriptor, offset, whence), most)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return most


def _load_fallocate() -> ctypes._NamedFuncPointer | None:
    function = getattr(ctypes.CDLL(None, use_errno=True), "fallocate64", None)
    if function is not None:
        function.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
        function.restype = ctypes.c_int
    return function


_fallocate = _load_fallocate()
