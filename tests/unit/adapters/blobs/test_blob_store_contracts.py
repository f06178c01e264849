"""The BLOB stores on disk, and those in memory that stand for them, against the contracts of their ports."""

from __future__ import annotations

import itertools
import os
from collections.abc import Set
from pathlib import Path

import pytest

from emberkeep.adapters.blobs.files import BlobFiles
from emberkeep.adapters.blobs.ha_store import open_blob_storage
from emberkeep.blobs.ports import BlobStorage, LocalStore
from tests.support.contracts.blob_storage import BlobStorageContract
from tests.support.contracts.local_store import LocalStoreContract
from tests.support.memory_blobs import MemoryBlobStorage, MemoryFiles, MemoryLocalStore


def names_below(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}


def overwrite(file: Path, content: bytes) -> None:
    """In place. The file's time differs afterwards, however coarse the file system's clock is."""
    before = file.stat().st_mtime_ns if file.exists() else 0
    file.write_bytes(content)
    if file.stat().st_mtime_ns == before:
        os.utime(file, ns=(before + 1, before + 1))


class LocalDirectory:
    def __init__(self, root: Path) -> None:
        self.root = root

    def store(self) -> LocalStore:
        return BlobFiles(self.root)

    def files(self) -> Set[str]:
        return names_below(self.root)

    def overwrite(self, file: Path, content: bytes) -> None:
        overwrite(file, content)

    def read(self, file: Path) -> bytes:
        return file.read_bytes()


class LocalMemory:
    def __init__(self) -> None:
        self.disk = MemoryFiles()

    def store(self) -> LocalStore:
        return MemoryLocalStore(self.disk)

    def files(self) -> Set[str]:
        return {f"{path.parent.name}/{path.name}" for path in self.disk.contents}

    def overwrite(self, file: Path, content: bytes) -> None:
        self.disk.contents[file] = content

    def read(self, file: Path) -> bytes:
        return self.disk.read(file)


class TestBlobFiles(LocalStoreContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> LocalDirectory:
        return LocalDirectory(tmp_path / "blobs")


class TestMemoryLocalStore(LocalStoreContract):
    @pytest.fixture
    def place(self) -> LocalMemory:
        return LocalMemory()


class HaDirectory:
    def __init__(self, root: Path, *, as_url: bool = False) -> None:
        self.root = root / "shared"
        self.location = self.root.as_uri() if as_url else str(self.root)
        self.machine = root / "machine"
        self.machine.mkdir()
        self.numbers = itertools.count()

    def store(self) -> BlobStorage:
        return open_blob_storage(self.location)

    def names(self) -> Set[str]:
        return names_below(self.root)

    def damage(self, name: str, content: bytes) -> None:
        overwrite(self.root / name, content)

    def new_file(self, content: bytes | None) -> Path:
        file = self.machine / str(next(self.numbers))
        if content is not None:
            file.write_bytes(content)
        return file

    def read(self, file: Path) -> bytes:
        return file.read_bytes()


class HaMemory:
    def __init__(self) -> None:
        self.machine = MemoryFiles()
        self.stored = MemoryFiles()
        self.numbers = itertools.count()

    def store(self) -> BlobStorage:
        return MemoryBlobStorage(self.machine, self.stored)

    def names(self) -> Set[str]:
        return {str(path.relative_to("/ha")) for path in self.stored.contents}

    def damage(self, name: str, content: bytes) -> None:
        self.stored.contents[Path("/ha") / name] = content

    def new_file(self, content: bytes | None) -> Path:
        file = Path(f"/machine/{next(self.numbers)}")
        if content is not None:
            self.machine.contents[file] = content
        return file

    def read(self, file: Path) -> bytes:
        return self.machine.read(file)


class TestDirectoryBlobs(BlobStorageContract):
    @pytest.fixture(params=[False, True], ids=["path", "url"])
    def place(self, tmp_path: Path, request: pytest.FixtureRequest) -> HaDirectory:
        return HaDirectory(tmp_path, as_url=request.param)


class TestMemoryBlobStorage(BlobStorageContract):
    @pytest.fixture
    def place(self) -> HaMemory:
        return HaMemory()
