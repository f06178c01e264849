"""What is on a disk, and what of it is durable: the tree from which the directory after a crash is made."""

from __future__ import annotations

import enum
import os
from dataclasses import dataclass, field
from pathlib import Path


class Loss(enum.Enum):
    """What a crash takes; see ``tests.support.crashes.recorded``."""

    CLEAN = "CLEAN"
    LOST = "LOST"
    TORN = "TORN"
    CUT = "CUT"
    REORDERED = "REORDERED"


@dataclass(eq=False)
class File:
    content: bytes = b""
    durable: bytes = b""  # the content when it was last synced
    mode: int = 0o600

    def after(self, loss: Loss) -> bytes:
        """Return the content after a crash."""
        if loss is Loss.CLEAN:
            return self.content
        if loss in (Loss.LOST, Loss.REORDERED):
            return self.durable
        # What was overwritten or cut off since the last sync is as doubtful as what was added.
        synced = self.content[: _same(self.durable, self.content)]
        rest = self.content[len(synced) :]
        half = (len(rest) + 1) // 2
        return synced + (bytes(half) + rest[half:] if loss is Loss.TORN else rest[: len(rest) - half])


def _same(one: bytes, other: bytes) -> int:
    """Return how many bytes both begin with. Byte by byte, this took half of the time for files such as databases."""
    same, most = 0, min(len(one), len(other))
    while same < most:
        middle = (same + most + 1) // 2
        if one[same:middle] == other[same:middle]:
            same = middle
        else:
            most = middle - 1
    return same


@dataclass(eq=False)
class Directory:
    names: dict[str, Node] = field(default_factory=dict)
    durable: dict[str, Node] = field(default_factory=dict)
    mode: int = 0o700


Node = File | Directory
Change = list[tuple[Directory, str, Node | None]]  # the names that one step gives, and takes (None)


@dataclass(eq=False)
class Tree:
    """A disk's content. ``changes``: the steps that changed names of directories since these were synced."""

    root: Directory = field(default_factory=Directory)
    changes: list[Change] = field(default_factory=list)

    def change(self, *names: tuple[Directory, str, Node | None]) -> None:
        """Give and take names, as one step."""
        for directory, name, node in names:
            if node is None:
                del directory.names[name]
        for directory, name, node in names:
            if node is not None:
                directory.names[name] = node
        self.changes.append(list(names))

    def synced(self, directory: Directory) -> None:
        """Note that the names in a directory are durable."""
        directory.durable = dict(directory.names)
        kept = ([each for each in change if each[0] is not directory] for change in self.changes)
        self.changes = [change for change in kept if change]

    def copy(self) -> Tree:
        """Return a tree that later steps do not change. Contents are shared."""
        made: dict[int, Node] = {}
        root = _copied(self.root, made)
        assert isinstance(root, Directory)
        changes = [
            [
                (place, name, None if node is None else _copied(node, made))
                for directory, name, node in change
                if isinstance(place := _copied(directory, made), Directory)
            ]
            for change in self.changes
        ]
        return Tree(root, changes)

    def after(self, loss: Loss) -> object:
        """Return what a restart would find, as a value that can be compared and hashed."""
        overtaking = self.changes[-1] if loss is Loss.REORDERED and self.changes else []
        return _value(self.root, loss, overtaking)

    def build(self, path: Path, loss: Loss) -> None:
        """Create the directory that a restart would find."""
        overtaking = self.changes[-1] if loss is Loss.REORDERED and self.changes else []
        _build(self.root, path, loss, overtaking, {})


def _copied(node: Node, made: dict[int, Node]) -> Node:
    """Return a node's copy, which is ``made`` once for all its names."""
    known = made.get(id(node))
    if known is not None:
        return known
    if isinstance(node, File):
        made[id(node)] = file = File(node.content, node.durable, node.mode)
        return file
    made[id(node)] = directory = Directory(mode=node.mode)
    directory.names = {name: _copied(child, made) for name, child in node.names.items()}
    directory.durable = {name: _copied(child, made) for name, child in node.durable.items()}
    return directory


def _build(node: Directory, path: Path, loss: Loss, overtaking: Change, made: dict[int, Path]) -> None:
    """``made``: nodes by identity, so that two names of a file share it."""
    path.mkdir(parents=True)
    path.chmod(node.mode)
    for name, child in _names(node, loss, overtaking).items():
        if isinstance(child, Directory):
            if id(child) not in made:  # between the syncs of two directories, a renamed one can have both names
                made[id(child)] = path / name
                _build(child, path / name, loss, overtaking, made)
        elif id(child) in made:
            os.link(made[id(child)], path / name)
        else:
            made[id(child)] = path / name
            (path / name).write_bytes(child.after(loss))
            (path / name).chmod(child.mode)


def _value(node: Node, loss: Loss, overtaking: Change) -> object:
    if isinstance(node, File):
        return node.after(loss)
    return frozenset((name, _value(child, loss, overtaking)) for name, child in _names(node, loss, overtaking).items())


def _names(node: Directory, loss: Loss, overtaking: Change) -> dict[str, Node]:
    if loss is Loss.LOST:
        return node.durable
    if loss is not Loss.REORDERED:
        return node.names
    names = dict(node.durable)
    for directory, name, child in overtaking:
        if directory is node:
            names.pop(name, None)
            if child is not None:
                names[name] = child
    return names
