"""The operations that change files, behind a port, so that a test can check what a crash after each one leaves behind.

Reading needs no port. Paths are as ``os`` takes them; ``directory`` is the descriptor to which a relative path refers.
All methods raise OSError and may be called from any thread.
"""

from __future__ import annotations

import ctypes
import errno
import os
from typing import Protocol

_AT_FDCWD = -100
_RENAME_NOREPLACE = 1


class FileOps(Protocol):
    """Changes files. Data is durable after ``sync`` of the file, a name after ``sync`` of its directory."""

    def create(self, path: str, mode: int = 0o600, *, directory: int | None = None) -> int:
        """Create a file and return its descriptor for writing. Raises FileExistsError."""

    def extend(self, path: str, *, directory: int | None = None) -> int:
        """Open an existing file for appending and return its descriptor. Follows no symbolic link."""

    def write(self, file: int, data: bytes) -> None:
        """Append all bytes to the file."""

    def sync(self, descriptor: int) -> None:
        """Make a file or a directory durable."""

    def link(
        self, source: str, target: str, *, source_directory: int | None = None, target_directory: int | None = None
    ) -> None:
        """Give a file a second name. Raises FileExistsError."""

    def rename(
        self, source: str, target: str, *, source_directory: int | None = None, target_directory: int | None = None
    ) -> None:
        """Rename, replacing a file or an empty directory at ``target``."""

    def rename_new(
        self, source: str, target: str, *, source_directory: int | None = None, target_directory: int | None = None
    ) -> None:
        """Rename without replacing. Raises FileExistsError; EINVAL or ENOSYS if the file system cannot do that."""

    def unlink(self, path: str, *, directory: int | None = None) -> None: ...

    def make_directory(self, path: str, mode: int = 0o700, *, directory: int | None = None) -> None:
        """Make a directory. Raises FileExistsError."""

    def remove_directory(self, path: str, *, directory: int | None = None) -> None: ...


class SystemFiles:
    """The operating system's file operations."""

    def create(self, path: str, mode: int = 0o600, *, directory: int | None = None) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return os.open(path, flags, mode, dir_fd=directory)

    def extend(self, path: str, *, directory: int | None = None) -> int:
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)

    def write(self, file: int, data: bytes) -> None:
        written = os.write(file, data)
        if written < len(data):
            rest = memoryview(data)[written:]
            while rest:
                rest = rest[os.write(file, rest) :]

    def sync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def link(
        self, source: str, target: str, *, source_directory: int | None = None, target_directory: int | None = None
    ) -> None:
        os.link(source, target, src_dir_fd=source_directory, dst_dir_fd=target_directory, follow_symlinks=False)

    def rename(
        self, source: str, target: str, *, source_directory: int | None = None, target_directory: int | None = None
    ) -> None:
        os.rename(source, target, src_dir_fd=source_directory, dst_dir_fd=target_directory)

    def rename_new(
        self, source: str, target: str, *, source_directory: int | None = None, target_directory: int | None = None
    ) -> None:
        if _renameat2 is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        froms = _AT_FDCWD if source_directory is None else source_directory
        to = _AT_FDCWD if target_directory is None else target_directory
        if _renameat2(froms, os.fsencode(source), to, os.fsencode(target), _RENAME_NOREPLACE) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), source, None, target)

    def unlink(self, path: str, *, directory: int | None = None) -> None:
        os.unlink(path, dir_fd=directory)

    def make_directory(self, path: str, mode: int = 0o700, *, directory: int | None = None) -> None:
        os.mkdir(path, mode, dir_fd=directory)

    def remove_directory(self, path: str, *, directory: int | None = None) -> None:
        os.rmdir(path, dir_fd=directory)


def _load_renameat2() -> ctypes._NamedFuncPointer | None:
    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)  # glibc 2.28 or newer
    if function is not None:
        function.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
        function.restype = ctypes.c_int
    return function


_renameat2 = _load_renameat2()
SYSTEM_FILES = SystemFiles()
