"""Files that code other than Python writes, such as those of SQLite: what has changed is found by looking."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from tests.support.crashes.recorded import Interruption, RecordedFiles
from tests.support.crashes.tree import Directory, File


class FollowedFiles(RecordedFiles):
    """Records also what other code makes of some files below the root."""

    def __init__(self, root: Path, *arguments: Any, **options: Any) -> None:
        self._root = root
        self._followed: tuple[Path, ...] = ()
        self._seen: dict[Path, File] = {}
        self._is_absorbing = False
        super().__init__(root, *arguments, **options)

    def follow(self, *paths: Path) -> None:
        """Take over what other code makes of these files below the root, before each step and with ``absorb``.

        A path may be a pattern as of ``Path.glob``.
        """
        self._followed = paths
        for path in self._present():
            node = self._parent(path).names.get(path.name)
            if isinstance(node, File):
                self._seen[path] = node

    def absorb(self) -> None:
        """Make steps of what other code has done to the files that are followed: it has written, then synced each.

        A new file's name is synced with its bytes. Files that are gone were deleted after all others were written.
        """
        with self._lock:
            if self._is_absorbing:  # the steps that are taken here come back here
                return
            self._is_absorbing = True
            try:
                for path in self._present():
                    self._absorb(path)
                for path, node in list(self._seen.items()):
                    if not path.exists():
                        self._forget(path, node)
            finally:
                self._is_absorbing = False

    def _present(self) -> Iterator[Path]:
        for path in self._followed:
            yield from sorted(self._root.glob(str(path.relative_to(self._root))))

    def _parent(self, path: Path) -> Directory:
        parent = self._nodes[path.parent.stat().st_ino]
        assert isinstance(parent, Directory)
        return parent

    def _absorb(self, path: Path) -> None:
        parent, content = self._parent(path), path.read_bytes()
        node = parent.names.get(path.name)
        if node is None:
            self._step()
            node = File()
            self._tree.change((parent, path.name, node))
            self._record(f"create {path.name}")
        assert isinstance(node, File)
        self._nodes[path.stat().st_ino] = node
        self._seen[path] = node
        if node.content != content:
            self._step()
            node.content = content
            self._record(f"write {path.name}")
            self._step()
            node.durable = content
            self._tree.synced(parent)
            self._record(f"sync {path.name}")

    def _forget(self, path: Path, node: File) -> None:
        """Record that a file is gone, unless a step has taken it or given it another name."""
        if path.parent.is_dir() and self._parent(path).names.get(path.name) is node:
            self._step()
            self._tree.change((self._parent(path), path.name, None))
            self._nodes = {inode: each for inode, each in self._nodes.items() if each is not node}
            self._record(f"unlink {path.name}")
        del self._seen[path]

    def begin_again(self, interruption: Interruption | None) -> None:
        super().begin_again(None)
        self.absorb()  # as the process before has left it
        super().begin_again(interruption)

    def _before_step(self) -> None:
        self.absorb()


@contextlib.contextmanager
def after_each_statement(files: FollowedFiles) -> Iterator[None]:
    """Take over what SQLite has done to the files that are followed after each statement, and after each commit."""

    class Connection(sqlite3.Connection):
        def execute(self, *arguments: Any) -> sqlite3.Cursor:
            cursor = super().execute(*arguments)
            files.absorb()
            return cursor

        def __exit__(self, *error: Any) -> Any:
            result = super().__exit__(*error)
            files.absorb()
            return result

    connect = sqlite3.connect

    def connected(*arguments: Any, **options: Any) -> sqlite3.Connection:
        return connect(*arguments, **options, factory=Connection)

    with mock.patch.object(sqlite3, "connect", connected):
        yield
