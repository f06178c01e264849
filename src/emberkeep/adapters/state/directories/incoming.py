"""Files of a shared directory before they get their names, and the sweep of those that crashed processes left."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import structlog

from emberkeep.adapters.state.directories.tree import DirectoryTree
from emberkeep.adapters.state.names import INCOMING
from emberkeep.adapters.state.source import opened_source
from emberkeep.base.errors import EmberkeepError
from emberkeep.base.files.operations import FileOps

_COPY_BYTES = 1024**2
_MILLISECOND = 1_000_000  # ns
_LEFTOVER_SECONDS = 3600.0  # without a change; no process is still writing the file then

log = structlog.get_logger(__name__)


class IncomingDirectory:
    """The directory for incoming files below one root. Methods raise OSError in addition to what they document."""

    def __init__(self, tree: DirectoryTree, files: FileOps) -> None:
        self._tree = tree
        self._files = files
        self._swept = False

    @contextlib.contextmanager
    def opened(self) -> Iterator[int]:
        with self._tree.made((INCOMING,)) as directory:
            self._sweep_once(directory)
            yield directory

    @contextlib.contextmanager
    def opened_beside(self, parts: Sequence[str]) -> Iterator[tuple[int, int]]:
        """Yield the directory with these parts, created if missing, and the one for incoming files."""
        with self._tree.made_two(parts, (INCOMING,)) as (target, directory):
            self._sweep_once(directory)
            yield target, directory

    def write(self, directory: int, source: Path) -> tuple[str, os.stat_result]:
        """Write a complete, synced copy of ``source`` under a new name. Raises Fatal if ``source`` cannot be read."""
        with opened_source(source) as reader:
            name = secrets.token_hex(12)
            file = self._files.create(name, 0o666, directory=directory)
            try:
                while data := reader.read(_COPY_BYTES):
                    self._files.write(file, data)
                modified = os.fstat(file).st_mtime_ns
                # Two files of one size, written in one clock tick, could get the same inode one after the other.
                modified += secrets.randbelow(_MILLISECOND) - modified % _MILLISECOND
                os.utime(file, ns=(modified, modified))
                self._files.sync(file)
                return name, os.fstat(file)
            except BaseException:
                self.discard(directory, name)
                raise
            finally:
                os.close(file)

    def discard(self, directory: int, name: str) -> None:
        """Delete a file, ignoring OSError: a later sweep removes what stays."""
        with contextlib.suppress(OSError):
            self._files.unlink(name, directory=directory)

    def remove(self) -> None:
        """Remove the directory if it exists and is empty. Ignores errors."""
        with contextlib.suppress(OSError, EmberkeepError), self._tree.opened(()) as root:
            self._files.remove_directory(INCOMING, directory=root)

    def _sweep_once(self, directory: int) -> None:
        if not self._swept:
            self._swept = True
            self._sweep(directory)

    def _sweep(self, directory: int) -> None:
        """Remove the files that crashed processes left in ``directory``, and all directories in it.

        Directories are moved there only to be deleted."""
        try:
            os.utime(directory)
            now = os.fstat(directory).st_mtime  # the file server's clock
            with os.scandir(directory) as entries:
                for entry in list(entries):
                    with contextlib.suppress(FileNotFoundError):
                        found = entry.stat(follow_symlinks=False)
                        if stat.S_ISDIR(found.st_mode) or found.st_mtime < now - _LEFTOVER_SECONDS:
                            self._tree.remove(directory, entry.name)
        except OSError as error:
            log.debug("cannot remove leftovers", store=self._tree.root, reason=error.strerror)
