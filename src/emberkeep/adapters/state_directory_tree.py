"""Directories below a root, opened part by part without following links: no name leads out of the root."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from emberkeep.base.durable import sync_directory
from emberkeep.base.file_ops import FileOps

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_MOST_KNOWN = 10_000


class DirectoryTree:
    """Methods raise OSError: NotADirectoryError also where a part of the name is a link."""

    def __init__(self, root: Path, files: FileOps) -> None:
        self.root = str(root)
        self._files = files
        self._durable: set[tuple[int, int]] = set()  # directories whose own names are known to be

    @contextlib.contextmanager
    def opened(self, parts: Sequence[str]) -> Iterator[int]:
        """Descriptor of a directory that exists."""
        current = os.open(self.root, _FLAGS)
        try:
            for part in parts:
                inner = os.open(part, _FLAGS | os.O_NOFOLLOW, dir_fd=current)
                os.close(current)
                current = inner
            yield current
        finally:
            os.close(current)

    @contextlib.contextmanager
    def made(self, parts: Sequence[str]) -> Iterator[int]:
        """The same, made where it does not exist; its names up to the root are durable, whoever has made them."""
        current = self._root()
        try:
            for part in parts:
                inner = self._inner(current, part)
                os.close(current)
                current = inner
            yield current
        finally:
            os.close(current)

    def _root(self) -> int:
        try:
            return os.open(self.root, _FLAGS)
        except FileNotFoundError:
            missing = [Path(self.root)]
            while not missing[-1].parent.exists():
                missing.append(missing[-1].parent)
            for directory in reversed(missing):
                with contextlib.suppress(FileExistsError):
                    directory.mkdir(mode=0o777)
                sync_directory(directory.parent)
            return os.open(self.root, _FLAGS)

    def _inner(self, parent: int, part: str) -> int:
        try:
            inner = os.open(part, _FLAGS | os.O_NOFOLLOW, dir_fd=parent)
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):
                self._files.make_directory(part, 0o777, directory=parent)
            inner = os.open(part, _FLAGS | os.O_NOFOLLOW, dir_fd=parent)
        try:
            # Somebody else may have made it a moment ago, and not have synced it.
            status = os.fstat(inner)
            identity = (status.st_dev, status.st_ino)
            if identity not in self._durable:
                self._files.sync(parent)
                if len(self._durable) >= _MOST_KNOWN:
                    self._durable.clear()
                self._durable.add(identity)
        except BaseException:
            os.close(inner)
            raise
        return inner

    def remove(self, parent: int, name: str) -> None:
        """A directory with everything in it, or a file. What others remove meanwhile is fine."""
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                self._files.unlink(name, directory=parent)
                return
            inner = os.open(name, _FLAGS | os.O_NOFOLLOW, dir_fd=parent)
            try:
                for entry in os.listdir(inner):  # noqa: PTH208
                    self.remove(inner, entry)
            finally:
                os.close(inner)
            self._files.remove_directory(name, directory=parent)
