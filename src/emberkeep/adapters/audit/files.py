"""The files of an audit log: appended to, rotated by size, and read from the newest line to the oldest.

``audit.log`` is the current file, ``audit.log.1`` the one before it, and so on. Only their owner can read them.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Final

from emberkeep.base.files.private import make_private

NAME: Final = "audit.log"
_ROTATED = re.compile(r"audit\.log\.([1-9][0-9]{0,3})")
_BLOCK: Final = 256 * 1024  # bytes that are read at once
_MOST_LINE: Final = 64 * 1024  # bytes; a longer line is damaged
_APPEND: Final = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
_READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class AuditFiles:
    """The files in one directory, with one writer. Any thread may read."""

    def __init__(self, directory: Path, max_size: int, rotated: int) -> None:
        """``max_size``: bytes of a file. ``rotated``: the number of rotated files that are kept."""
        self._directory = directory
        self._max_size = max_size
        self._rotated = rotated
        self._descriptor: int | None = None
        self._size = 0
        self._renaming = threading.Lock()

    def open(self) -> None:
        """Open the current file. Idempotent. Raises OSError."""
        if self._descriptor is not None:
            return
        make_private(self._directory)
        descriptor = os.open(self._directory / NAME, _APPEND, 0o600)
        try:
            self._size = os.fstat(descriptor).st_size
            if self._size and os.pread(descriptor, 1, self._size - 1) != b"\n":
                self._size += os.write(descriptor, b"\n")  # ends a line that a crash has torn
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def append(self, lines: bytes) -> None:
        """Append whole lines, in a new file if the current one is full. After an error, the files have none of them.

        Raises OSError.
        """
        if self._descriptor is not None and self._size and self._size + len(lines) > self._max_size:
            self._rotate()
        self.open()
        assert self._descriptor is not None, "it is open"  # noqa: S101
        try:
            rest = memoryview(lines)
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
            self.close()
            raise
        self._size += len(lines)

    def close(self) -> None:
        """Close the current file. Idempotent."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def lines(self, skips: Callable[[bytes], bool] = lambda _: False) -> Generator[bytes]:
        """Yield all lines, the newest first. Skip files for whose first line ``skips`` returns True. Raises OSError."""
        opened = self._open_all()
        try:
            for descriptor in opened:
                if not skips(os.pread(descriptor, _MOST_LINE, 0).partition(b"\n")[0]):
                    yield from _lines_backwards(descriptor)
        finally:
            for descriptor in opened:
                os.close(descriptor)

    def _open_all(self) -> list[int]:
        """Open all files, the newest first, so that a rotation in the meantime neither hides nor repeats one."""
        opened: list[int] = []
        with self._renaming:
            try:
                for name in (NAME, *(f"{NAME}.{number}" for number in self._numbers())):
                    with contextlib.suppress(FileNotFoundError):
                        opened.append(os.open(self._directory / name, _READ))
            except BaseException:
                for descriptor in opened:
                    os.close(descriptor)
                raise
        return opened

    def _numbers(self) -> list[int]:
        names = [path.name for path in self._directory.iterdir()]
        return sorted(int(match[1]) for match in map(_ROTATED.fullmatch, names) if match)

    def _rotate(self) -> None:
        self.close()
        with self._renaming:
            for number in reversed(self._numbers()):
                path = self._directory / f"{NAME}.{number}"
                if number >= self._rotated:
                    path.unlink(missing_ok=True)
                else:
                    path.rename(self._directory / f"{NAME}.{number + 1}")
            (self._directory / NAME).rename(self._directory / f"{NAME}.1")


def _lines_backwards(descriptor: int) -> Iterator[bytes]:
    """Yield the lines of a file from the last to the first, without their newlines."""
    end, rest = os.fstat(descriptor).st_size, b""
    while end:
        start = max(0, end - _BLOCK)
        first, *lines = (os.pread(descriptor, end - start, start) + rest).split(b"\n")
        yield from filter(None, reversed(lines))
        rest, end = (first if len(first) <= _MOST_LINE else b""), start
    if rest:
        yield rest
