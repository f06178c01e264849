"""Durable state in a directory that all nodes share: local, NFS or another network file system.

Files and directories are byte for byte those that Spark would have written there with file://, so that local recovery
can be switched on and off. Hadoop keeps checksums in ``.name.crc`` beside the files that it writes with file://. Before
a file is replaced, moved or deleted here, its checksum file is deleted. Listings do not show checksum files.

A file appears under its name complete and synced. Its generation is its inode, its size and its modification time. The
digits of that time below a millisecond are random.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path

from emberkeep.adapters.state.directories.entries import entries_of, is_ours, status_of
from emberkeep.adapters.state.directories.errors import NO_ENTRY, changing, refusal, unknown
from emberkeep.adapters.state.directories.incoming import IncomingDirectory
from emberkeep.adapters.state.directories.moves import Moves, Spot
from emberkeep.adapters.state.directories.tree import DirectoryTree, FirstStart
from emberkeep.adapters.state.names import INCOMING, is_side_file, is_temporary, parts_of, side_file
from emberkeep.adapters.state.root import StateRoot
from emberkeep.base.errors import Absent, Conflict, RetryLater
from emberkeep.base.files.operations import SYSTEM_FILES, FileOps
from emberkeep.local_state.errors import Exists, NotADirectory, NotEmpty
from emberkeep.local_state.model import FileKind, FileStatus

_DELETIONS = 3  # tries to delete a directory
_PIECE_BYTES = 256 * 1024


class DirectoryState:
    """The durable state below one directory; implements ``local_state.ports.DurableState``.

    Creates nothing below the root before the first file or directory.
    """

    def __init__(
        self,
        root: Path,
        files: FileOps = SYSTEM_FILES,
        *,
        first_start: FirstStart = FirstStart.ANYWHERE,
        admit: Callable[[str], None] | None = None,
    ) -> None:
        """``root`` is an absolute path. ``admit``: see DirectoryTree."""
        self._root = StateRoot(str(root))
        self._files = files
        self._tree = DirectoryTree(root, files, first_start, admit)
        self._incoming = IncomingDirectory(self._tree, files)
        self._moves = Moves(files)

    @property
    def location(self) -> str:
        return self._root.location

    # --- reading ------------------------------------------------------------------------------------------------------

    def status(self, name: str) -> FileStatus:
        parts = parts_of(name)
        with self._errors("look at", name):
            if not parts:
                with self._opened(parts, name) as root:
                    return status_of(name, os.fstat(root))
            with self._spot(name) as spot:
                return status_of(name, self._stat(spot))

    def listing(self, name: str) -> tuple[FileStatus, ...]:
        parts = parts_of(name)
        with (
            contextlib.suppress(NotADirectory),
            self._errors("list", name),
            self._opened(parts, name, strict=True) as directory,
        ):
            return tuple(entries_of(directory, parts))
        status = self.status(name)
        if status.kind is not FileKind.FILE:
            raise RetryLater(f"{self._root.at(name)} was replaced while it was listed")
        return (status,)

    def read(self, name: str, offset: int, length: int | None) -> tuple[FileStatus, Iterator[bytes]]:
        if not parts_of(name):
            raise self._root.is_a_directory(name)
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # opening a named pipe must not block
        with self._errors("read", name), self._spot(name) as spot:
            if stat.S_ISDIR(self._stat(spot).st_mode):
                raise self._root.is_a_directory(name)
            try:
                file = os.open(spot.leaf, flags, dir_fd=spot.directory)
            except FileNotFoundError:
                raise self._root.absent(name) from None
        pieces = self._pieces(file, name, offset, length)
        next(pieces)  # enters the "try", so that the file is closed even if the iterator is never used
        with self._errors("read", name):
            found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise RetryLater(f"{self._root.at(name)} was replaced while it was opened")
        return status_of(name, found), pieces

    def _pieces(self, file: int, name: str, offset: int, length: int | None) -> Generator[bytes]:
        try:
            yield b""
            with self._errors("read", name):
                end = os.fstat(file).st_size
            end = end if length is None else min(end, offset + length)
            while offset < end:
                with self._errors("read", name):
                    data = os.pread(file, min(_PIECE_BYTES, end - offset), offset)
                if not data:
                    raise RetryLater(f"{self._root.at(name)} was cut short while it was read")
                offset += len(data)
                yield data
        finally:
            os.close(file)

    # --- making and moving --------------------------------------------------------------------------------------------

    def make_directory(self, name: str) -> None:
        with self._errors("make", name), self._tree.made(parts_of(name)):
            pass

    def create(self, name: str, source: Path, *, overwrite: bool) -> FileStatus:
        parts = parts_of(name)
        if not parts:
            raise self._root.is_a_directory(name)
        with self._errors("store", name), self._incoming.opened_beside(parts[:-1]) as (parent, incoming):
            target = Spot(parent, parts[-1], name)
            temporary, found = self._incoming.write(incoming, source)
            try:
                self._check_free(target, found, overwrite=overwrite)
                self._drop_side_file(target)
                received = Spot(incoming, temporary, name)
                with self._moving(received, target):
                    self._moves.file(received, target, overwrite=overwrite)
            except BaseException:
                self._incoming.discard(incoming, temporary)
                raise
            if not is_temporary(target.leaf):
                self._sync(target)
        return status_of(name, found)

    def rename(self, source: str, target: str, *, overwrite: bool) -> FileStatus:
        froms, to = parts_of(source), parts_of(target)
        if froms != to and to[: len(froms)] == froms:
            raise Conflict(f"{self._root.at(source)} cannot be moved into itself")
        if not to:
            raise Exists(f"{self._root.location} exists")
        with self._errors("rename", source), self._spot(source) as old:
            found = self._stat(old)
            with self._second_spot(old, target) as new:
                if froms != to and stat.S_ISDIR(found.st_mode):
                    with self._moving(old, new):
                        self._moves.directory(old, new, overwrite=overwrite)
                elif froms != to:
                    self._check_free(new, found, overwrite=overwrite)
                    for spot in (old, new):
                        self._drop_side_file(spot)
                    with self._moving(old, new):
                        self._moves.file(old, new, overwrite=overwrite)
                elif not overwrite:
                    raise self._root.exists(target)
                self._sync(new)
                if froms[:-1] != to[:-1]:
                    self._sync(old)
        return status_of(target, found)

    @contextlib.contextmanager
    def _moving(self, old: Spot, new: Spot) -> Iterator[None]:
        """Translate the errors of a move."""
        try:
            with changing(self._root.at(new.name)):
                yield
        except FileNotFoundError:
            raise self._root.absent(old.name) from None
        except FileExistsError:
            raise self._root.exists(new.name) from None
        except IsADirectoryError:  # a file must not replace a directory
            raise self._root.is_a_directory(new.name) from None

    def _check_free(self, spot: Spot, moved: os.stat_result, *, overwrite: bool) -> None:
        """Raise IsADirectory or Exists if the file ``moved`` must not get this name. It may have the name already."""
        with contextlib.suppress(FileNotFoundError):
            found = spot.stat()
            if os.path.samestat(found, moved):
                return
            if stat.S_ISDIR(found.st_mode):
                raise self._root.is_a_directory(spot.name) if overwrite else self._root.exists(spot.name)
            if not overwrite:
                raise self._root.exists(spot.name)

    def _drop_side_file(self, spot: Spot) -> None:
        """Delete the checksums of an older file:// file: Hadoop would check new bytes against them and reject them."""
        try:
            self._files.unlink(side_file(spot.leaf), directory=spot.directory)
        except OSError as error:
            if error.errno not in {*NO_ENTRY, errno.EISDIR}:
                raise

    def _sync(self, spot: Spot) -> None:
        try:
            self._files.sync(spot.directory)
        except OSError as error:
            raise unknown(self._root.at(spot.name), error) from error

    # --- deleting -----------------------------------------------------------------------------------------------------

    def delete(self, name: str, *, recursive: bool) -> bool:
        if not parts_of(name):
            return self._delete_root(recursive=recursive)
        with self._errors("delete", name):
            try:
                with self._spot(name) as spot:
                    if stat.S_ISDIR(self._stat(spot).st_mode):
                        self._delete_directory(spot, recursive=recursive)
                        self._sync(spot)
                    else:
                        self._drop_side_file(spot)
                        self._files.unlink(spot.leaf, directory=spot.directory)
            except (Absent, FileNotFoundError):
                return False
        return True

    def _delete_directory(self, spot: Spot, *, recursive: bool) -> None:
        if not recursive:
            self._delete_empty(spot)
            return
        for _ in range(_DELETIONS):
            try:
                self._set_aside(spot)
            except FileNotFoundError:  # another process may have removed the empty incoming directory as it left
                spot.stat()
            else:
                return
        raise RetryLater(f"{self._root.at(spot.name)} cannot be deleted now: other processes use this place")

    def _set_aside(self, spot: Spot) -> None:
        """Delete a directory. One rename makes the whole of it disappear for all readers."""
        going = secrets.token_hex(12)
        with self._incoming.opened() as incoming:
            with changing(self._root.at(spot.name)):
                self._files.rename(spot.leaf, going, source_directory=spot.directory, target_directory=incoming)
            with contextlib.suppress(OSError):  # a later sweep of the incoming directory removes the rest
                self._tree.remove(incoming, going)

    def _delete_empty(self, spot: Spot) -> None:
        if self.listing(spot.name):
            raise NotEmpty(f"{self._root.at(spot.name)} is not empty")
        with self._opened(parts_of(spot.name), spot.name) as directory:
            for name in filter(is_side_file, os.listdir(directory)):  # noqa: PTH208
                self._files.unlink(name, directory=directory)
        try:
            self._files.remove_directory(spot.leaf, directory=spot.directory)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            raise NotEmpty(f"{self._root.at(spot.name)} is not empty") from None

    def _delete_root(self, *, recursive: bool) -> bool:
        try:
            entries = self.listing("")
        except Absent:
            return False
        if entries and not recursive:
            raise NotEmpty(f"{self._root.location} is not empty")
        with self._errors("delete", ""):
            try:
                self._tree.remove_root(lambda name: recursive or is_side_file(name) or name == INCOMING)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                raise NotEmpty(f"{self._root.location} is not empty") from None
        return True

    def close(self) -> None:
        self._incoming.remove()

    # --- names and errors ---------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _opened(self, parts: Sequence[str], name: str, *, strict: bool = False) -> Iterator[int]:
        """Yield the descriptor of the directory with these parts.

        Raises Absent if it does not exist. With ``strict``, a part that is a file raises NotADirectoryError instead.
        """
        with contextlib.ExitStack() as stack:
            try:
                directory = stack.enter_context(self._tree.opened(parts))
            except OSError as error:
                if error.errno not in NO_ENTRY or (strict and error.errno == errno.ENOTDIR):
                    raise
                raise self._root.absent(name) from None
            yield directory

    @contextlib.contextmanager
    def _spot(self, name: str, *, strict: bool = False) -> Iterator[Spot]:
        parts = parts_of(name)
        if not parts:
            raise Conflict(f"{self._root.location} cannot be moved")
        with self._opened(parts[:-1], name, strict=strict) as parent:
            yield Spot(parent, parts[-1], name)

    @contextlib.contextmanager
    def _second_spot(self, first: Spot, name: str) -> Iterator[Spot]:
        """Yield the spot of a name to which ``first`` is moved. In the same directory, that is not opened again."""
        *directory, leaf = parts_of(name)
        if tuple(directory) == parts_of(first.name)[:-1]:
            yield Spot(first.directory, leaf, name)
        else:
            with self._spot(name, strict=True) as spot:
                yield spot

    def _stat(self, spot: Spot) -> os.stat_result:
        try:
            found = spot.stat()
        except OSError as error:
            if error.errno in NO_ENTRY:
                raise self._root.absent(spot.name) from None
            raise
        if not is_ours(found):
            raise self._root.absent(spot.name)
        return found

    @contextlib.contextmanager
    def _errors(self, verb: str, name: str) -> Iterator[None]:
        try:
            yield
        except NotADirectoryError:
            raise NotADirectory(f"a part of the name {self._root.at(name)} is a file or a link") from None
        except OSError as error:
            raise refusal(f"{verb} {self._root.at(name)}", error) from error
