"""Copying and checking files on this node's own file systems without the JVM: a checkpoint has thousands of small ones,
and each call into the JVM takes longer than the whole copy of one of those.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from emberkeep.base.errors import Fatal
from emberkeep.lifecycle.manifest import SavepointFile

_BUFFER = 1 << 20  # bytes
_FILE_URI = re.compile(r"file:(?://)?(/(?!/).*)", re.DOTALL)


def path_on_disk(location: str, *, paths_are_local: bool) -> str | None:
    """The path that a location means, as Hadoop takes it (nothing is unescaped); None: it is elsewhere.

    ``paths_are_local``: whether a location without a scheme is on the local file system.
    """
    if location.startswith("/"):
        return location if paths_are_local else None
    found = _FILE_URI.fullmatch(location)
    return found.group(1) if found else None


def copy_on_disk(source: str, target: str, *, lasting: bool) -> SavepointFile:
    """Replace ``target``; the checksum is of the bytes that were read. ``lasting``: on the disk when this returns; the
    directory has to be synced as well. Raises OSError (reading), Fatal (writing)."""
    digest, size = hashlib.sha256(), 0
    with Path(source).open("rb", buffering=0) as reading:
        try:
            Path(target).parent.mkdir(parents=True, exist_ok=True)
            with Path(target).open("wb", buffering=0) as writing:
                while data := reading.read(_BUFFER):
                    digest.update(data)
                    size += len(data)
                    _write(writing.fileno(), data)
                if lasting:
                    os.fsync(writing.fileno())
        except OSError as error:
            raise Fatal(
                f"{target}: {error.strerror or error}", hint="check the file system: space, permissions"
            ) from error
    return SavepointFile(path=target, size=size, sha256=digest.hexdigest())


def check_on_disk(path: str) -> SavepointFile:
    """Size and checksum. Raises OSError."""
    with Path(path).open("rb", buffering=0) as reading:
        digest = hashlib.file_digest(reading, "sha256")
        return SavepointFile(path=path, size=reading.tell(), sha256=digest.hexdigest())


def _write(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]
