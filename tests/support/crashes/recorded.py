"""The state in which a crash would leave a directory, after each single step that changed it.

``RecordedFiles`` replaces the file layer: it carries out each step and records what was synced. ``crashes`` creates,
for every number of steps and every kind of loss, the directory that a restart would find:

- CLEAN: the process died and the machine runs on. Every step took effect.
- LOST: a power failure. A file has its synced bytes; a directory has the names that it had when it was last synced.
- TORN: a power failure. All names exist. The unsynced part of a file has only its second half, with zeros before (the
  file has its full length). This is the most harmful kind, because the file looks complete.
- CUT: as TORN, but a file ends in the middle of its unsynced part.
- REORDERED: a power failure. The newest name that was given or taken, as by a rename, has reached the disk before
  everything else that was not synced: before earlier names, and before the bytes of the file that it names.

LOST drops unsynced names in each directory independently, which is more than journals of file systems lose. Code that
survives it does not rely on an order among directories.

A step may also be refused, or be the last of its process: see ``Interruption``.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from emberkeep.base.files.operations import SYSTEM_FILES
from tests.support.crashes.tree import Directory, File, Loss, Node, Tree

__all__ = ["Crash", "Died", "Interruption", "Loss", "RecordedFiles"]

Interruption = Callable[[int], BaseException | None]  # by the number of the step, from 0; called before each


class Died(BaseException):
    """The process is gone in the middle of whatever it did."""


@dataclass(frozen=True)
class Crash:
    """A crash after ``step`` steps. A restart finds ``directory``. ``marks``: promises given before, see ``mark``."""

    step: int
    last: str
    loss: Loss
    directory: Path
    marks: tuple[str, ...]


def refusing(at: int) -> Interruption:
    """Return what refuses a step: no descriptor is left, the disk is full, a sync fails. Of bytes, half are written."""
    return lambda step: OSError() if step == at else None


class RecordedFiles:
    """Implements ``base.files.operations.FileOps`` for files below one directory. Threads take steps one at a time."""

    def __init__(self, root: Path, interruption: Interruption | None = None, *, remembers: bool = True) -> None:
        """Record changes below ``root``, which exists. Its present content is durable.

        ``remembers``: every state, for ``crashes``; otherwise only the newest is known.
        """
        self.steps = 0
        self._interruption = interruption
        self._remembers = remembers
        self._is_dead = False
        self._tree = Tree()
        self._nodes: dict[int, Node] = {}  # by inode
        self._device = root.stat().st_dev
        self._lock = threading.RLock()
        self._states: list[tuple[str, Tree, tuple[str, ...]]] = []
        self._marks: list[str] = []
        self._scan(root, self._tree.root)
        self._record("nothing")

    @property
    def marks(self) -> tuple[str, ...]:
        """The promises that were given."""
        return tuple(self._marks)

    def mark(self, promise: str) -> None:
        """Record that ``promise`` has been given: later crashes list it in ``marks``."""
        with self._lock:
            self._marks.append(promise)
            self._record(f"promise: {promise}")

    def crashes(self, scratch: Path) -> Iterator[Crash]:
        """Yield every crash, each in a directory of its own below ``scratch``."""
        for step, (last, tree, marks) in enumerate(self._states):
            for loss in Loss:
                directory = scratch / f"{step:04d}-{loss.value}"
                tree.build(directory, loss)
                yield Crash(step, last, loss, directory, marks)

    def begin_again(self, interruption: Interruption | None) -> None:
        """Let a new process use the disk: the machine has run on, so that nothing has become durable. Count anew."""
        with self._lock:
            self.steps, self._interruption, self._is_dead = 0, interruption, False

    def states(self) -> Iterator[tuple[Crash, object]]:
        """Yield every crash, without its directory, and what a restart would find, as a value."""
        for step, (last, tree, marks) in enumerate(self._states):
            for loss in Loss:
                yield Crash(step, last, loss, Path(), marks), tree.after(loss)

    def build(self, directory: Path, loss: Loss, step: int | None = None) -> None:
        """Create the directory that a restart would find after a crash: now, or after ``step`` steps."""
        with self._lock:
            tree = self._tree if step is None else self._states[step][1]
            tree.build(directory, loss)

    # --- FileOps ------------------------------------------------------------------------------------------------------

    def create(self, path: str, mode: int = 0o600, *, directory: int | None = None) -> int:
        return self.open_new(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode, directory=directory)

    def open_new(self, path: str, flags: int, mode: int, *, directory: int | None = None) -> int:
        """Create a file with flags as of ``os.open``."""
        with self._lock:
            self._step(errno.EMFILE)
            descriptor = os.open(path, flags, mode, dir_fd=directory)
            self._add(path, directory, os.fstat(descriptor).st_ino, File(mode=mode))
            self._record(f"create {path}")
        return descriptor

    def extend(self, path: str, *, directory: int | None = None) -> int:
        return SYSTEM_FILES.extend(path, directory=directory)

    def write(self, file: int, data: bytes) -> None:
        self.write_at(file, data, None)

    def write_at(self, file: int, data: bytes, offset: int | None) -> None:
        """Write all bytes: at an offset, or at the end."""
        with self._lock:
            node = self._nodes.get(os.fstat(file).st_ino)
            if node is None:  # deleted while it was open
                return
            assert isinstance(node, File)
            at = len(node.content) if offset is None else offset
            try:
                self._step()
            except OSError:
                self._put(file, node, data[: len(data) // 2], at)
                self._record(f"write {len(data) // 2} of {len(data)} bytes")
                raise
            self._put(file, node, data, at)
            self._record(f"write {len(data)} bytes")

    def truncate(self, file: int, length: int) -> None:
        with self._lock:
            node = self._nodes.get(os.fstat(file).st_ino)
            if node is None:
                return
            assert isinstance(node, File)
            if length == len(node.content):
                return
            self._step()
            os.ftruncate(file, length)
            node.content = node.content[:length].ljust(length, b"\0")
            self._record(f"truncate to {length}")

    def sync(self, descriptor: int) -> None:
        with self._lock:
            self._step(errno.EIO)  # nothing is written through: the record alone says what is durable
            node = self._nodes.get(os.fstat(descriptor).st_ino)
            if isinstance(node, File):
                node.durable = node.content
            elif node is not None:
                self._tree.synced(node)
            self._record("sync")

    def link(
        self, source: str, target: str, *, source_directory: int | None = None, target_directory: int | None = None
    ) -> None:
        with self._lock:
            self._step()
            SYSTEM_FILES.link(source, target, source_directory=source_directory, target_directory=target_directory)
            parent, name = self._at(source, source_directory)
            to, new = self._at(target, target_directory)
            self._tree.change((to, new, parent.names[name]))
            self._record(f"link {source} {target}")

    def rename(
        self, source: str, target: str, *, source_directory: int | None = None, target_directory: int | None = None
    ) -> None:
        with self._lock:
            self._step()
            replaced = self._goes(target, target_directory)
            SYSTEM_FILES.rename(source, target, source_directory=source_directory, target_directory=target_directory)
            self._renamed(source, target, source_directory, target_directory, replaced)

    def rename_new(
        self, source: str, target: str, *, source_directory: int | None = None, target_directory: int | None = None
    ) -> None:
        with self._lock:
            self._step()
            SYSTEM_FILES.rename_new(
                source, target, source_directory=source_directory, target_directory=target_directory
            )
            self._renamed(source, target, source_directory, target_directory, None)

    def unlink(self, path: str, *, directory: int | None = None) -> None:
        with self._lock:
            self._step()
            gone = self._goes(path, directory)
            SYSTEM_FILES.unlink(path, directory=directory)
            self._remove(path, directory, "unlink", gone)

    def make_directory(self, path: str, mode: int = 0o700, *, directory: int | None = None) -> None:
        with self._lock:
            self._step()
            SYSTEM_FILES.make_directory(path, mode, directory=directory)
            status = os.stat(path, dir_fd=directory)
            self._add(path, directory, status.st_ino, Directory(mode=status.st_mode & 0o777))
            self._record(f"mkdir {path}")

    def remove_directory(self, path: str, *, directory: int | None = None) -> None:
        with self._lock:
            self._step()
            gone = self._goes(path, directory)
            SYSTEM_FILES.remove_directory(path, directory=directory)
            self._remove(path, directory, "rmdir", gone)

    # --- records ------------------------------------------------------------------------------------------------------

    def has(self, status: os.stat_result) -> bool:
        """True if a file or directory is below the root."""
        return status.st_dev == self._device and status.st_ino in self._nodes

    def _step(self, refusal: int = errno.ENOSPC) -> None:
        """Begin the next step. Raises what interrupts it; after a death, every further step dies, too.

        ``refusal``: the error with which a disk refuses such a step.
        """
        if self._is_dead:
            raise Died
        self._before_step()
        number, self.steps = self.steps, self.steps + 1
        error = None if self._interruption is None else self._interruption(number)
        if error is not None:
            self._is_dead = isinstance(error, Died)
            raise OSError(refusal, os.strerror(refusal)) if isinstance(error, OSError) else error

    def _before_step(self) -> None:
        """Called before each step."""

    def _put(self, file: int, node: File, data: bytes, at: int) -> None:
        written = 0
        try:
            while written < len(data):
                written += os.pwrite(file, data[written:], at + written)
        finally:  # the disk may refuse the rest
            node.content = node.content[:at].ljust(at, b"\0") + data[:written] + node.content[at + written :]
        os.lseek(file, at + len(data), os.SEEK_SET)

    def _scan(self, path: Path, directory: Directory) -> None:
        self._nodes[path.stat().st_ino] = directory
        for entry in os.scandir(path):
            node: Node
            if entry.is_dir(follow_symlinks=False):
                node = Directory(mode=entry.stat(follow_symlinks=False).st_mode & 0o777)
                self._scan(Path(entry.path), node)
            else:
                content = Path(entry.path).read_bytes()
                mode = entry.stat(follow_symlinks=False).st_mode & 0o777
                node = self._nodes.setdefault(entry.inode(), File(content, content, mode))
            directory.names[entry.name] = directory.durable[entry.name] = node

    def _at(self, path: str, directory: int | None) -> tuple[Directory, str]:
        parent, name = os.path.split(path)
        if directory is not None and not parent:
            status = os.fstat(directory)
        else:
            status = os.stat(parent or ".", dir_fd=directory)
        node = self._nodes[status.st_ino]
        assert isinstance(node, Directory)
        return node, name

    def _add(self, path: str, directory: int | None, inode: int, node: Node) -> None:
        parent, name = self._at(path, directory)
        self._nodes[inode] = node
        self._tree.change((parent, name, node))

    def _goes(self, path: str, directory: int | None) -> int | None:
        """Return the inode that has no name once ``path`` is gone: the file system may use its number again."""
        with suppress(FileNotFoundError):
            status = os.stat(path, dir_fd=directory, follow_symlinks=False)
            node = self._nodes.get(status.st_ino)
            if isinstance(node, Directory) or status.st_nlink == 1:
                return status.st_ino
        return None

    def _remove(self, path: str, directory: int | None, verb: str, gone: int | None) -> None:
        parent, name = self._at(path, directory)
        self._tree.change((parent, name, None))
        if gone is not None:
            del self._nodes[gone]
        self._record(f"{verb} {path}")

    def _renamed(
        self, source: str, target: str, source_directory: int | None, target_directory: int | None, gone: int | None
    ) -> None:
        parent, name = self._at(source, source_directory)
        to, new = self._at(target, target_directory)
        # Of two names of the same file, a rename changes nothing.
        if (parent, name) != (to, new) and to.names.get(new) is not parent.names[name]:
            self._tree.change((parent, name, None), (to, new, parent.names[name]))
            if gone is not None:
                del self._nodes[gone]
        self._record(f"rename {source} {target}")

    def _record(self, step: str) -> None:
        if self._remembers:
            self._states.append((step, self._tree.copy(), tuple(self._marks)))
