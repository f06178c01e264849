"""The state in which a crash would leave a directory, after each single step that changed it.

``RecordedFiles`` replaces the file layer: it carries out each step and records what was synced. ``crashes`` creates,
for every number of steps and every kind of loss, the directory that a restart would find:

- CLEAN: the process died and the machine runs on. Every step took effect.
- LOST: a power failure. A file has its synced bytes; a directory has the names that it had when it was last synced.
- TORN: a power failure. All names exist. The unsynced part of a file has only its second half, with zeros before (the
  file has its full length). This is the most harmful kind, because the file looks complete.
- CUT: as TORN, but a file ends in the middle of its unsynced part.

LOST drops unsynced names in each directory independently, which is more than journals of file systems lose. Code that
survives it does not rely on an order among directories.
"""

from __future__ import annotations

import copy
import enum
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from emberkeep.base.files.operations import SYSTEM_FILES


class Loss(enum.Enum):
    CLEAN = "CLEAN"
    LOST = "LOST"
    TORN = "TORN"
    CUT = "CUT"


@dataclass(eq=False)
class _File:
    content: bytes = b""
    durable: int = 0  # synced bytes from the beginning, since files are only appended to
    mode: int = 0o600


@dataclass(eq=False)
class _Directory:
    names: dict[str, _Node] = field(default_factory=dict)
    durable: dict[str, _Node] = field(default_factory=dict)


_Node = _File | _Directory


@dataclass(frozen=True)
class Crash:
    """A crash after ``step`` steps. A restart finds ``directory``. ``marks``: promises given before, see ``mark``."""

    step: int
    last: str
    loss: Loss
    directory: Path
    marks: tuple[str, ...]


class RecordedFiles:
    """Implements ``base.files.operations.FileOps`` for files below one directory. Threads take steps one at a time."""

    def __init__(self, root: Path) -> None:
        """Record changes below ``root``, which exists. Its present content is durable."""
        self._root = _Directory()
        self._nodes: dict[int, _Node] = {}  # by inode
        self._lock = threading.Lock()
        self._states: list[tuple[str, _Directory, tuple[str, ...]]] = []
        self._marks: list[str] = []
        self._scan(root, self._root)
        self._record("nothing")

    def mark(self, promise: str) -> None:
        """Record that ``promise`` has been given: later crashes list it in ``marks``."""
        with self._lock:
            self._marks.append(promise)
            self._record(f"promise: {promise}")

    def crashes(self, scratch: Path) -> Iterator[Crash]:
        """Yield every crash, each in a directory of its own below ``scratch``."""
        for step, (last, state, marks) in enumerate(self._states):
            for loss in Loss:
                directory = scratch / f"{step:04d}-{loss.value}"
                _build(state, directory, loss)
                yield Crash(step, last, loss, directory, marks)

    # --- FileOps ------------------------------------------------------------------------------------------------------

    def create(self, path: str, mode: int = 0o600, *, directory: int | None = None) -> int:
        with self._lock:
            descriptor = SYSTEM_FILES.create(path, mode, directory=directory)
            self._add(path, directory, os.fstat(descriptor).st_ino, _File(mode=mode))
            self._record(f"create {path}")
        return descriptor

    def extend(self, path: str, *, directory: int | None = None) -> int:
        return SYSTEM_FILES.extend(path, directory=directory)

    def write(self, file: int, data: bytes) -> None:
        with self._lock:
            SYSTEM_FILES.write(file, data)
            node = self._nodes[os.fstat(file).st_ino]
            assert isinstance(node, _File)
            node.content += data
            self._record(f"write {len(data)} bytes")

    def sync(self, descriptor: int) -> None:
        with self._lock:
            SYSTEM_FILES.sync(descriptor)
            node = self._nodes[os.fstat(descriptor).st_ino]
            if isinstance(node, _File):
                node.durable = len(node.content)
            else:
                node.durable = dict(node.names)
            self._record("sync")

    def link(
        self, source: str, target: str, *, source_directory: int | None = None, target_directory: int | None = None
    ) -> None:
        with self._lock:
            SYSTEM_FILES.link(source, target, source_directory=source_directory, target_directory=target_directory)
            parent, name = self._at(source, source_directory)
            to, new = self._at(target, target_directory)
            to.names[new] = parent.names[name]
            self._record(f"link {source} {target}")

    def rename(
        self, source: str, target: str, *, source_directory: int | None = None, target_directory: int | None = None
    ) -> None:
        with self._lock:
            SYSTEM_FILES.rename(source, target, source_directory=source_directory, target_directory=target_directory)
            self._renamed(source, target, source_directory, target_directory)

    def rename_new(
        self, source: str, target: str, *, source_directory: int | None = None, target_directory: int | None = None
    ) -> None:
        with self._lock:
            SYSTEM_FILES.rename_new(
                source, target, source_directory=source_directory, target_directory=target_directory
            )
            self._renamed(source, target, source_directory, target_directory)

    def unlink(self, path: str, *, directory: int | None = None) -> None:
        with self._lock:
            SYSTEM_FILES.unlink(path, directory=directory)
            self._remove(path, directory, "unlink")

    def make_directory(self, path: str, mode: int = 0o700, *, directory: int | None = None) -> None:
        with self._lock:
            SYSTEM_FILES.make_directory(path, mode, directory=directory)
            self._add(path, directory, os.stat(path, dir_fd=directory).st_ino, _Directory())
            self._record(f"mkdir {path}")

    def remove_directory(self, path: str, *, directory: int | None = None) -> None:
        with self._lock:
            SYSTEM_FILES.remove_directory(path, directory=directory)
            self._remove(path, directory, "rmdir")

    # --- records ------------------------------------------------------------------------------------------------------

    def _scan(self, path: Path, directory: _Directory) -> None:
        self._nodes[path.stat().st_ino] = directory
        for entry in os.scandir(path):
            node: _Node
            if entry.is_dir(follow_symlinks=False):
                node = _Directory()
                self._scan(Path(entry.path), node)
            else:
                content = Path(entry.path).read_bytes()
                mode = entry.stat(follow_symlinks=False).st_mode & 0o777
                node = self._nodes.setdefault(entry.inode(), _File(content, len(content), mode))
            directory.names[entry.name] = directory.durable[entry.name] = node

    def _at(self, path: str, directory: int | None) -> tuple[_Directory, str]:
        parent, name = os.path.split(path)
        if directory is not None and not parent:
            status = os.fstat(directory)
        else:
            status = os.stat(parent or ".", dir_fd=directory)
        node = self._nodes[status.st_ino]
        assert isinstance(node, _Directory)
        return node, name

    def _add(self, path: str, directory: int | None, inode: int, node: _Node) -> None:
        parent, name = self._at(path, directory)
        parent.names[name] = self._nodes[inode] = node

    def _remove(self, path: str, directory: int | None, verb: str) -> None:
        parent, name = self._at(path, directory)
        del parent.names[name]
        self._record(f"{verb} {path}")

    def _renamed(self, source: str, target: str, source_directory: int | None, target_directory: int | None) -> None:
        parent, name = self._at(source, source_directory)
        to, new = self._at(target, target_directory)
        if (parent, name) != (to, new) and to.names.get(new) is not parent.names[name]:
            to.names[new] = parent.names.pop(name)
        self._record(f"rename {source} {target}")

    def _record(self, step: str) -> None:
        self._states.append((step, copy.deepcopy(self._root), tuple(self._marks)))


def _build(node: _Directory, path: Path, loss: Loss, made: dict[int, Path] | None = None) -> None:
    """Create the directory after a crash. ``made``: nodes by identity, so that two names of a file share it."""
    made = {} if made is None else made
    path.mkdir(parents=True)
    for name, child in (node.durable if loss is Loss.LOST else node.names).items():
        if isinstance(child, _Directory):
            if id(child) not in made:  # between the syncs of two directories, a renamed one can have both names
                made[id(child)] = path / name
                _build(child, path / name, loss, made)
        elif id(child) in made:
            os.link(made[id(child)], path / name)
        else:
            made[id(child)] = path / name
            (path / name).write_bytes(_left(child, loss))
            (path / name).chmod(child.mode)


def _left(file: _File, loss: Loss) -> bytes:
    synced, rest = file.content[: file.durable], file.content[file.durable :]
    half = (len(rest) + 1) // 2
    match loss:
        case Loss.CLEAN:
            return file.content
        case Loss.LOST:
            return synced
        case Loss.TORN:
            return synced + bytes(half) + rest[half:]
        case Loss.CUT:
            return synced + rest[: len(rest) - half]
