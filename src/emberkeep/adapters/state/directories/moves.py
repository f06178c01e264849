"""Renames below a shared directory. Without ``overwrite``, a rename never replaces an existing file or directory.

This holds on every file system. Where the file system has no exclusive rename (NFS), a file gets its new name by a hard
link before it loses the old one, and a directory claims its new name by mkdir.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import NamedTuple

from emberkeep.adapters.state.directories.tree import MODE
from emberkeep.base.errors import Fatal
from emberkeep.base.files.operations import FileOps

_NO_EXCLUSIVE_RENAME = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}
_NO_LINK = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS}


class Spot(NamedTuple):
    """A name in an open directory. ``name`` is the full name below the root, for messages."""

    directory: int
    leaf: str
    name: str

    def stat(self) -> os.stat_result:
        return os.stat(self.leaf, dir_fd=self.directory, follow_symlinks=False)


class Moves:
    """Rename files and directories. Methods raise OSError, above all FileExistsError."""

    def __init__(self, files: FileOps) -> None:
        self._files = files
        self._exclusive = True  # false once the file system has refused an exclusive rename as unsupported

    def file(self, source: Spot, target: Spot, *, overwrite: bool) -> None:
        """Rename a file.

        With ``overwrite``, raises IsADirectoryError if the target is a directory. Without it, raises Fatal if the file
        system has neither an exclusive rename nor hard links.
        """
        if overwrite:
            self._rename(source, target)
        elif self._renamed_new(source, target):
            return
        else:
            self._link(source, target)
        # rename() between two names of one file does nothing, and a link keeps the old name: remove the old name.
        if not overwrite or same(source, target):
            # The disk may lose the old name first, and after a power loss the file would have neither.
            self._files.sync(target.directory)
            with contextlib.suppress(FileNotFoundError):
                self._files.unlink(source.leaf, directory=source.directory)

    def directory(self, source: Spot, target: Spot, *, overwrite: bool) -> None:
        """Rename a directory. ``overwrite`` replaces an empty directory only; a file raises NotADirectoryError."""
        if not overwrite:
            if self._renamed_new(source, target):
                return
            self._files.make_directory(target.leaf, MODE, directory=target.directory)
        try:
            self._rename(source, target)
        except OSError as error:
            if not overwrite:
                with contextlib.suppress(OSError):
                    self._files.remove_directory(target.leaf, directory=target.directory)
            if error.errno == errno.ENOTEMPTY:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target.leaf) from None
            raise

    def _renamed_new(self, source: Spot, target: Spot) -> bool:
        if not self._exclusive:
            return False
        try:
            self._files.rename_new(
                source.leaf, target.leaf, source_directory=source.directory, target_directory=target.directory
            )
        except FileExistsError:
            # Both are names of one file: a move by hard link was interrupted. The caller finishes it.
            if not same(source, target):
                raise
            return False
        except OSError as error:
            if error.errno not in _NO_EXCLUSIVE_RENAME:
                raise
            self._exclusive = False
            return False
        return True

    def _rename(self, source: Spot, target: Spot) -> None:
        self._files.rename(
            source.leaf, target.leaf, source_directory=source.directory, target_directory=target.directory
        )

    def _link(self, source: Spot, target: Spot) -> None:
        try:
            self._files.link(
                source.leaf, target.leaf, source_directory=source.directory, target_directory=target.directory
            )
        except FileExistsError:
            # The reply to a first link request was lost: the repeated request finds the link already made.
            if not same(source, target):
                raise
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
            raise Fatal(
                f"cannot rename a file to {target.name} without the risk of replacing another one: this file system "
                "has neither an exclusive rename nor hard links",
                hint="keep checkpoints on another file system",
            ) from error


def same(one: Spot, other: Spot) -> bool:
    """True if both are names of one file."""
    try:
        return os.path.samestat(one.stat(), other.stat())
    except FileNotFoundError:
        return False
