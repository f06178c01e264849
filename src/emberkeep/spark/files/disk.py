"""Copy and check files on this node's own file systems without the JVM.

A checkpoint has thousands of small files, and one call into the JVM takes longer than copying such a file.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from emberkeep.base.errors import Fatal
from emberkeep.lifecycle.manifest import SavepointFile

_BUFFER = 1 << 20  # bytes
_FILE_URI = re.compile(r"file:(?://)?(/(?!/).*)", re.DOTALL)


def path_on_disk(location: str, *, paths_are_local: bool) -> str | None:
    """Return the local path of a location, read as Hadoop reads it (nothing is unescaped); None if it is not local.

    ``paths_are_local``: true if a location without a scheme is on the local file system.
    """
    if location.startswith("/"):
        return location if paths_are_local else None
    found = _FILE_URI.fullmatch(location)
    return found.group(1) if found else None


def copy_on_disk(source: str, target: str, *, lasting: bool) -> SavepointFile:
    """Copy a file, replacing ``target``. The checksum covers the bytes that were read.

    ``lasting``: sync the file before this returns; the caller must sync the directory. Raises OSError if ``source``
    cannot be opened, Fatal if reading or writing fails later.
    """
    digest, size = hashlib.sha256(), 0
    with Path(source).open("rb", buffering=0) as reading, _errors_of(target):
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        with Path(target).open("wb", buffering=0) as writing:
            while data := _read(reading, source):
                digest.update(data)
                size += len(data)
                _write(writing.fileno(), data)
            if lasting:
                os.fsync(writing.fileno())
    return SavepointFile(path=target, size=size, sha256=digest.hexdigest())


def check_on_disk(path: str) -> SavepointFile:
    """Return size and checksum of a file. Raises OSError."""
    with Path(path).open("rb", buffering=0) as reading:
        digest = hashlib.file_digest(reading, "sha256")
        return SavepointFile(path=path, size=reading.tell(), sha256=digest.hexdigest())


@contextmanager
def _errors_of(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Fatal(f"{path}: {error.strerror or error}", hint="check the file system: space, permissions") from error


def _read(file: FileIO, path: str) -> bytes:
    with _errors_of(path):
        return file.read(_BUFFER)


def _write(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]
