"""Records what this process does to disks through ``os``, for code that does not take its file layer as an argument.

While ``observed`` is active, calls of ``os`` and ``open`` that change something below a recorded directory become steps
of its ``RecordedFiles``. What is written around them, as by C code, is noticed: see ``differences``.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from emberkeep.base.files.operations import SystemFiles
from tests.support.crashes.recorded import Loss, RecordedFiles

_WRITES = os.O_WRONLY | os.O_RDWR


@contextlib.contextmanager
def observed(*disks: RecordedFiles) -> Iterator[None]:
    """Make steps of what happens below the roots of ``disks``, in any thread."""
    observer = _Observer(disks)
    with contextlib.ExitStack() as stack:
        for name in _CALLS:
            stack.enter_context(mock.patch.object(os, name, getattr(observer, name)))
        stack.enter_context(mock.patch.object(io, "open", observer.open_file))
        stack.enter_context(mock.patch.object(builtins, "open", observer.open_file))
        stack.enter_context(mock.patch.object(SystemFiles, "rename_new", observer.rename_new))
        yield


def differences(disk: RecordedFiles, root: Path, scratch: Path) -> list[str]:
    """Return the files whose content differs from what was recorded: something has changed them unseen."""
    disk.build(scratch, Loss.CLEAN)
    contents = [
        {str(path.relative_to(top)): path.read_bytes() if path.is_file() else None for path in top.rglob("*")}
        for top in (root, scratch)
    ]
    return sorted({name for name, _ in contents[0].items() ^ contents[1].items()})


_CALLS = (
    "open",
    "write",
    "writev",
    "pwrite",
    "ftruncate",
    "fsync",
    "fdatasync",
    "rename",
    "replace",
    "link",
    "unlink",
    "remove",
    "mkdir",
    "rmdir",
    "copy_file_range",
)
_SYSTEM: dict[str, Callable[..., Any]] = {name: getattr(os, name) for name in _CALLS}
_OPEN_FILE = io.open
_RENAME_NEW = SystemFiles.rename_new


class _Observer:
    """Has a method for each call of ``os`` that it replaces, so it has many."""

    def __init__(self, disks: Sequence[RecordedFiles]) -> None:
        self._disks = disks
        self._local = threading.local()  # ``depth``: above 0 while a step is carried out

    # --- files --------------------------------------------------------------------------------------------------------

    def open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if not flags & os.O_CREAT or self._exists(path, dir_fd):
            descriptor: int = _SYSTEM["open"](path, flags & ~os.O_TRUNC, mode, dir_fd=dir_fd)
            if flags & os.O_TRUNC:
                self.ftruncate(descriptor, 0)
            return descriptor
        disk = self._of_path(path, dir_fd)
        if disk is None:
            return int(_SYSTEM["open"](path, flags, mode, dir_fd=dir_fd))
        opened: int = self._step(lambda: disk.open_new(os.fspath(path), flags, mode, directory=dir_fd))
        return opened

    def write(self, fd: int, data: Any) -> int:
        return self._write(fd, bytes(data), None) if self._of_file(fd) else int(_SYSTEM["write"](fd, data))

    def writev(self, fd: int, pieces: Any) -> int:
        if self._of_file(fd) is None:
            return int(_SYSTEM["writev"](fd, pieces))
        return self._write(fd, b"".join(map(bytes, pieces)), None)

    def pwrite(self, fd: int, data: Any, offset: int) -> int:
        if self._of_file(fd) is None:
            return int(_SYSTEM["pwrite"](fd, data, offset))
        return self._write(fd, bytes(data), offset)

    def copy_file_range(self, source: int, target: int, count: int, *places: Any) -> int:
        if self._of_file(target) is None:
            return int(_SYSTEM["copy_file_range"](source, target, count, *places))
        return self._write(target, os.read(source, count), None)

    def _write(self, fd: int, data: bytes, offset: int | None) -> int:
        disk = self._of_file(fd)
        assert disk is not None
        if data:
            self._step(lambda: disk.write_at(fd, data, offset))
        return len(data)

    def ftruncate(self, fd: int, length: int) -> None:
        disk = self._of_file(fd)
        if disk is None:
            _SYSTEM["ftruncate"](fd, length)
        else:
            self._step(lambda: disk.truncate(fd, length))

    def fsync(self, fd: Any) -> None:
        descriptor = fd if isinstance(fd, int) else fd.fileno()
        disk = self._of_file(descriptor)
        if disk is None:
            _SYSTEM["fsync"](fd)
        else:
            self._step(lambda: disk.sync(descriptor))

    def fdatasync(self, fd: Any) -> None:
        self.fsync(fd)

    def open_file(self, file: Any, mode: str = "r", buffering: int = -1, *more: Any, **options: Any) -> Any:
        """Replace ``open``: a file that is written to is written through ``os``."""
        disk = self._of_file(file) if isinstance(file, int) else self._of_path(file, None)
        if disk is None or not set(mode) & set("wax+") or "opener" in options:
            return _OPEN_FILE(file, mode, buffering, *more, **options)
        assert set(mode) <= set("wbax"), "text, and reading beside writing, is not recorded"
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
        flags |= {"w": os.O_TRUNC, "a": os.O_APPEND, "x": os.O_EXCL}[mode[0]]
        raw = _Written(file if isinstance(file, int) else self.open(file, flags, 0o666), self.write)
        return raw if buffering == 0 else io.BufferedWriter(raw)

    # --- names --------------------------------------------------------------------------------------------------------

    def rename(self, src: Any, dst: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        disk = self._of_path(src, src_dir_fd)
        if disk is None:
            _SYSTEM["rename"](src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
            return
        source, target = os.fspath(src), os.fspath(dst)
        self._step(lambda: disk.rename(source, target, source_directory=src_dir_fd, target_directory=dst_dir_fd))

    def replace(self, src: Any, dst: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        self.rename(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    def rename_new(
        self, source: str, target: str, *, source_directory: int | None = None, target_directory: int | None = None
    ) -> None:
        directories = {"source_directory": source_directory, "target_directory": target_directory}
        disk = self._of_path(source, source_directory)
        if disk is None:
            _RENAME_NEW(SystemFiles(), source, target, **directories)
        else:
            self._step(lambda: disk.rename_new(source, target, **directories))

    def link(
        self,
        src: Any,
        dst: Any,
        *,
        src_dir_fd: int | None = None,
        dst_dir_fd: int | None = None,
        follow_symlinks: bool = True,
    ) -> None:
        disk = self._of_path(src, src_dir_fd)
        directories = {"source_directory": src_dir_fd, "target_directory": dst_dir_fd}
        if disk is None:
            _SYSTEM["link"](src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd, follow_symlinks=follow_symlinks)
        else:
            self._step(lambda: disk.link(os.fspath(src), os.fspath(dst), **directories))

    def unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        disk = self._of_path(path, dir_fd)
        if disk is None:
            _SYSTEM["unlink"](path, dir_fd=dir_fd)
        else:
            self._step(lambda: disk.unlink(os.fspath(path), directory=dir_fd))

    def remove(self, path: Any, *, dir_fd: int | None = None) -> None:
        self.unlink(path, dir_fd=dir_fd)

    def mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        disk = self._of_path(path, dir_fd)
        if disk is None or self._exists(path, dir_fd):
            _SYSTEM["mkdir"](path, mode, dir_fd=dir_fd)
        else:
            self._step(lambda: disk.make_directory(os.fspath(path), mode, directory=dir_fd))

    def rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        disk = self._of_path(path, dir_fd)
        if disk is None:
            _SYSTEM["rmdir"](path, dir_fd=dir_fd)
        else:
            self._step(lambda: disk.remove_directory(os.fspath(path), directory=dir_fd))

    # --- whose it is --------------------------------------------------------------------------------------------------

    def _of_file(self, fd: int) -> RecordedFiles | None:
        return self._of(os.fstat(fd))

    def _of_path(self, path: Any, directory: int | None) -> RecordedFiles | None:
        """Return the disk of the directory that has this name; None if it is none of ours, or does not exist."""
        parent = os.path.dirname(os.fspath(path))  # noqa: PTH120
        try:
            return self._of(
                os.fstat(directory)
                if directory is not None and not parent
                else os.stat(parent or ".", dir_fd=directory)
            )
        except OSError:
            return None

    def _of(self, status: os.stat_result) -> RecordedFiles | None:
        if getattr(self._local, "depth", 0):
            return None  # part of a step
        return next((disk for disk in self._disks if disk.has(status)), None)

    @staticmethod
    def _exists(path: Any, directory: int | None) -> bool:
        try:
            os.stat(path, dir_fd=directory, follow_symlinks=False)
        except OSError:
            return False
        return True

    def _step(self, work: Callable[[], Any]) -> Any:
        self._local.depth = 1
        try:
            return work()
        finally:
            self._local.depth = 0


class _Written(io.RawIOBase):
    """A file that is written to through ``os``, at its end."""

    def __init__(self, descriptor: int, write: Callable[[int, bytes], int]) -> None:
        self._descriptor = descriptor
        self._write = write

    def fileno(self) -> int:
        return self._descriptor

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        assert (offset, whence) == (0, os.SEEK_CUR), "what is written elsewhere than at the end is not recorded"
        return os.lseek(self._descriptor, 0, os.SEEK_CUR)

    def write(self, data: Any) -> int:
        return self._write(self._descriptor, bytes(data))

    def close(self) -> None:
        if not self.closed:
            super().close()
            os.close(self._descriptor)
