"""Directories below a root, opened part by part without following links, so that no name leads out of the root."""

from __future__ import annotations

import contextlib
import enum
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from emberkeep.base.errors import Unavailable
from emberkeep.base.files.durable import sync_directory
from emberkeep.base.files.errors import is_directory
from emberkeep.base.files.operations import FileOps

MODE = 0o700
"""Permissions of new directories. State may hold what the job has read, so only the user of the task managers, which is
the same on all nodes of a shared file system, may look into it. Existing directories stay as they are: to let a group
in, create the directory with its permissions beforehand."""
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_MOST_KNOWN = 10_000


class FirstStart(enum.Enum):
    """Which process creates a root at the first start.

    A process never creates a root that it has seen before. If such a root is missing, its file system is unavailable.
    """

    ELSEWHERE = "elsewhere"  # another process, before this one needs the root
    IN_PLACE = "in place"  # this process, in an existing parent directory
    ANYWHERE = "anywhere"  # this process, together with the directories above


class DirectoryTree:
    """Open and create directories below one root.

    Methods raise OSError. Symbolic links are not followed: a link in the path raises NotADirectoryError. Methods raise
    Unavailable if the root is missing although it must exist, which means that its file system is away.
    """

    def __init__(
        self, root: Path, files: FileOps, first_start: FirstStart, admit: Callable[[str], None] | None = None
    ) -> None:
        """``admit`` gets the real path of the root whenever it is looked for, and raises to refuse it."""
        self.root = str(root)
        self._admit = admit
        self._files = files
        self._first_start = first_start
        self._was_seen = False
        self._durable: set[tuple[int, int]] = set()  # device and inode of directories whose own names are durable

    @contextlib.contextmanager
    def opened(self, parts: Sequence[str]) -> Iterator[int]:
        """Yield the descriptor of an existing directory."""
        directory = _walked(self._root(), parts, _entered)
        try:
            yield directory
        finally:
            os.close(directory)

    @contextlib.contextmanager
    def made(self, parts: Sequence[str]) -> Iterator[int]:
        """Yield the descriptor of a directory, created if missing.

        Makes the names of the directory and of those above it durable, up to the root, even if another process created
        them.
        """
        directory = _walked(self._made_root(), parts, self._inner)
        try:
            yield directory
        finally:
            os.close(directory)

    @contextlib.contextmanager
    def made_two(self, parts: Sequence[str], others: Sequence[str]) -> Iterator[tuple[int, int]]:
        """Yield what ``made`` yields for each of two directories, looking up their common root only once."""
        root = self._made_root()
        try:
            first = _walked(os.dup(root), parts, self._inner)
        except BaseException:
            os.close(root)
            raise
        try:
            second = _walked(root, others, self._inner)
            try:
                yield first, second
            finally:
                os.close(second)
        finally:
            os.close(first)

    def _root(self) -> int:
        was_seen = self._was_seen  # read first: another thread may create the root right after this one misses it
        try:
            root = os.open(self.root, _FLAGS)
        except FileNotFoundError:
            if self._admit is not None:
                self._admit(os.path.realpath(self.root))  # a refused place is neither awaited nor created
            self._check_absence(was_seen=was_seen)
            raise
        try:
            self._check_place(root)
        except BaseException:
            os.close(root)
            raise
        self._was_seen = True
        return root

    def _made_root(self) -> int:
        with contextlib.suppress(FileNotFoundError):
            return self._root()
        missing = [Path(self.root)]
        while self._first_start is FirstStart.ANYWHERE and not missing[-1].parent.exists():
            missing.append(missing[-1].parent)
        for directory in reversed(missing):
            with contextlib.suppress(FileExistsError):
                directory.mkdir(mode=MODE)
            sync_directory(directory.parent)
        return self._root()

    def _check_place(self, root: int) -> None:
        """Check what was opened rather than its name: a job may replace a directory by a link at any time."""
        if self._admit is not None:
            try:
                opened = os.readlink(f"/proc/self/fd/{root}")  # noqa: PTH115 - at each look for the root
            except OSError:  # not Linux
                opened = os.path.realpath(self.root)
            self._admit(opened)

    def _check_absence(self, *, was_seen: bool) -> None:
        """Raise Unavailable if the root must exist or cannot be created here."""
        if was_seen or self._first_start is FirstStart.ELSEWHERE:
            reason = f"{self.root} does not exist now"
        elif self._first_start is FirstStart.IN_PLACE and not is_directory(Path(self.root).parent):
            reason = f"{Path(self.root).parent} does not exist, and {self.root} is not created without it"
        else:
            return
        raise Unavailable(reason, hint="check that its file system is mounted and that this user may read it")

    def _inner(self, parent: int, part: str) -> int:
        try:
            inner = _entered(parent, part)
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):
                self._files.make_directory(part, MODE, directory=parent)
            inner = _entered(parent, part)
        try:
            # Another process may have created it a moment ago and not yet synced its name.
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
        """Remove a file, or a directory with everything in it. Ignores what other processes remove at the same time."""
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                self._files.unlink(name, directory=parent)
                return
            inner = _entered(parent, name)
            try:
                for entry in os.listdir(inner):  # noqa: PTH208
                    self.remove(inner, entry)
            finally:
                os.close(inner)
            self._files.remove_directory(name, directory=parent)

    def remove_root(self, goes: Callable[[str], bool]) -> None:
        """Remove the entries whose names satisfy ``goes``, then the root. The root may be created again afterwards."""
        with self.opened(()) as root:
            for name in filter(goes, os.listdir(root)):  # noqa: PTH208
                self.remove(root, name)
            self._files.remove_directory(self.root)
        self._was_seen = False


def _walked(current: int, parts: Sequence[str], enter: Callable[[int, str], int]) -> int:
    """Return the descriptor of the directory to which ``parts`` lead from ``current``, which is closed."""
    try:
        for part in parts:
            inner = enter(current, part)
            os.close(current)
            current = inner
    except BaseException:
        os.close(current)
        raise
    return current


def _entered(parent: int, part: str) -> int:
    return os.open(part, _FLAGS | os.O_NOFOLLOW, dir_fd=parent)
