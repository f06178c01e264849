"""Files that code other than Python writes, such as those of SQLite: what has changed is found by looking."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.crashes.recorded import Interruption, RecordedFiles
from tests.support.crashes.tree import File


class FollowedFiles(RecordedFiles):
    """Records also what other code makes of some files at the root."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._followed: tuple[Path, ...] = ()
        super().__init__(*arguments, **options)

    def follow(self, *paths: Path) -> None:
        """Take over what other code makes of these files at the root, before each step and with ``absorb``."""
        self._followed = paths

    def absorb(self) -> None:
        """Make steps of what other code has done to the files that are followed: it has written, then synced each.

        A new file's name is synced with its bytes. Files that are gone were deleted after all others were written.
        """
        with self._lock:
            followed, self._followed = self._followed, ()
            try:
                for path in followed:
                    if path.exists():
                        self._absorb(path.name, path.read_bytes())
                for path in followed:
                    if path.name in self._tree.root.names and not path.exists():
                        self._step()
                        self._tree.change((self._tree.root, path.name, None))
                        self._record(f"unlink {path.name}")
            finally:
                self._followed = followed

    def _absorb(self, name: str, content: bytes) -> None:
        node = self._tree.root.names.get(name)
        if node is None:
            self._step()
            node = File()
            self._tree.change((self._tree.root, name, node))
            self._record(f"create {name}")
        assert isinstance(node, File)
        if node.content != content:
            self._step()
            node.content = content
            self._record(f"write {name}")
            self._step()
            node.durable = content
            self._tree.synced(self._tree.root)
            self._record(f"sync {name}")

    def begin_again(self, interruption: Interruption | None) -> None:
        super().begin_again(None)
        self.absorb()  # as the process before has left it
        super().begin_again(interruption)

    def _before_step(self) -> None:
        self.absorb()
