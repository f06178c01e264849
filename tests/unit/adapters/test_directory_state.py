"""Durable state in a shared directory: the contract, what plain file:// leaves there, other kinds of file system."""

from __future__ import annotations

import errno
import itertools
import os
from pathlib import Path

import pytest

from emberkeep.adapters.state_directory import DirectoryState
from emberkeep.adapters.state_names import INCOMING
from emberkeep.base.file_ops import SystemFiles
from emberkeep.local_state.ports import DurableState
from emberkeep.testing.contracts.durable_state import DurableStateContract


class Directory:
    """A directory that several processes use."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "not" / "made" / "yet"
        self.machine = directory / "machine"
        self.machine.mkdir()
        self.files = itertools.count()

    def store(self) -> DurableState:
        return DirectoryState(self.root)

    def new_file(self, content: bytes) -> Path:
        file = self.machine / str(next(self.files))
        file.write_bytes(content)
        return file

    def leftovers(self) -> set[str]:
        return {path.name for path in self.root.rglob("*") if INCOMING in path.parts or not ours(path)}


def ours(path: Path) -> bool:
    return (path.is_file() or path.is_dir()) and not path.is_symlink()


@pytest.fixture
def place(tmp_path: Path) -> Directory:
    return Directory(tmp_path)


class TestDirectoryState(DurableStateContract):
    pass


class NoExclusiveRename(SystemFiles):
    """NFS."""

    def rename_new(self, source: str, target: str, **_: int | None) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


class TestWithoutExclusiveRename(DurableStateContract):
    @pytest.fixture
    def place(self, place: Directory, monkeypatch: pytest.MonkeyPatch) -> Directory:
        monkeypatch.setattr(place, "store", lambda: DirectoryState(place.root, NoExclusiveRename()))
        return place
