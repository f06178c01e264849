"""Links or copies files, as cheaply as the file system allows."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from emberkeep.base.errors import Unavailable
from emberkeep.base.files.errors import shortage
from emberkeep.blobs.errors import CannotStore

_PIECE_BYTES = 16 * 1024**2
_HASHED_BYTES = 1024**2
# No hard links on this file system, too many for this file, or the paths are on different file systems.
_NO_LINK = {errno.EMLINK, errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS}
_NO_KERNEL_COPY = {errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM, errno.EBADF}


def link_or_copy(source: Path, destination: Path) -> bool:
    """Make ``destination`` a hard link to ``source``, or a durable copy if linking is impossible.

    Return True if it is the same file. Raises OSError.
    """
    try:
        os.link(source, destination, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
    else:
        return True
    copy_file(source, destination)
    return False


def copy_file(source: Path, destination: Path, pause: Callable[[], None] = lambda: None) -> int:
    """Copy to a durable file and return its size in bytes. File systems that can share blocks between files do so.

    ``pause`` is called between pieces; an error that it raises ends the copy. Raises OSError. After an error
    ``destination`` is removed.
    """
    with source.open("rb", buffering=0) as reader:
        writer = os.open(destination, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            try:
                size = _copy(reader.fileno(), writer, pause)
                os.fsync(writer)
            finally:
                os.close(writer)
        except BaseException:
            destination.unlink(missing_ok=True)
            raise
    return size


def copy_hashed(source: Path, destination: Path, pause: Callable[[], None] = lambda: None) -> str:
    """Copy as ``copy_file`` does, but through memory, and return the SHA-256 of what was written. Raises OSError."""
    digest, size = hashlib.sha256(), 0
    with source.open("rb", buffering=0) as reader:
        writer = os.open(destination, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            try:
                while data := reader.read(_HASHED_BYTES):
                    pause()
                    digest.update(data)
                    size += len(data)
                    view = memoryview(data)
                    while view:
                        view = view[os.write(writer, view) :]
                os.fsync(writer)
                if os.fstat(writer).st_size != size:
                    raise OSError(errno.EIO, "the size of the file differs from what was written")
            finally:
                os.close(writer)
        except BaseException:
            destination.unlink(missing_ok=True)
            raise
    return digest.hexdigest()


def _copy(reader: int, writer: int, pause: Callable[[], None]) -> int:
    size, in_kernel = 0, True
    while True:
        pause()
        try:
            copied = os.copy_file_range(reader, writer, _PIECE_BYTES) if in_kernel else _through_memory(reader, writer)
        except OSError as error:
            if not in_kernel or error.errno not in _NO_KERNEL_COPY:
                raise
            in_kernel = False
            continue
        if copied == 0 and in_kernel:
            in_kernel = False  # some file systems report the end if they cannot copy: read to find out
            continue
        if copied == 0:
            return size
        size += copied


def _through_memory(reader: int, writer: int) -> int:
    data = os.read(reader, 1024**2)
    view = memoryview(data)
    while view:
        view = view[os.write(writer, view) :]
    return len(data)


def cannot_store(path: Path, error: OSError) -> CannotStore | Unavailable:
    """Return the error for a local disk that refuses bytes, or for a process that cannot use the disk now."""
    problem = f"cannot store {path}: {error.strerror or error}"
    if hint := shortage(error):
        return Unavailable(problem, hint=hint)
    return CannotStore(problem, hint="check free space and permissions of that directory")
