"""The staged file that a durable store copies."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from emberkeep.base.files.acting_user import acting_as_itself
from emberkeep.base.files.errors import disk_fails


class StagedSource:
    """A staged file that is read once, from its beginning. Its methods raise Fatal, and Unavailable for a shortage."""

    def __init__(self, file: int, path: Path) -> None:
        self._file = file
        self._path = path

    def size(self) -> int:
        """Return the file's length in bytes."""
        with _readable(self._path):
            return os.fstat(self._file).st_size

    def read(self, most: int) -> bytes:
        """Return up to ``most`` next bytes; b"" at the end."""
        with _readable(self._path):
            return os.read(self._file, most)


@contextlib.contextmanager
def opened_source(path: Path) -> Iterator[StagedSource]:
    """Open a staged file for reading, with the rights of this process, which owns it. Raises Fatal, Unavailable."""
    with _readable(path), acting_as_itself():
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield StagedSource(file, path)
    finally:
        os.close(file)


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise disk_fails(path, error) from error
