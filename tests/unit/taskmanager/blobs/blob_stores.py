"""Stores and sources for tests of the BLOB cache: real files, and sources that do what a test tells them."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping
from pathlib import Path

from emberkeep.base.errors import Absent, Fatal
from emberkeep.base.ids import JobId
from emberkeep.blobs.errors import DamagedBlob
from emberkeep.blobs.model import BlobKey, StoredBlob, parse_blob_key, permanent

JOB = JobId("a" * 32)
OTHER_JOB = JobId("b" * 32)
CONTENT = b"print('hello')\n" * 1000


def key_of(content: bytes) -> BlobKey:
    return permanent(hashlib.sha256(content).hexdigest())


class DirectoryStore:
    """A LocalStore that verifies at every read; ``full``: the disk takes nothing more."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.full = False
        self.undeletable = False
        self._numbers = itertools.count()

    async def open_store(self) -> None:
        (self.root / "tmp").mkdir(parents=True, exist_ok=True)

    def file(self, owner: JobId, key: BlobKey) -> Path:
        return self.root / owner / str(key)

    def temporary(self) -> Path:
        return self.root / "tmp" / str(next(self._numbers))

    async def receive(
        self, owner: JobId, key: BlobKey, chunks: AsyncIterable[bytes], *, max_size: int, size: int | None = None
    ) -> int:
        raise NotImplementedError("the cache adopts files only")

    async def adopt(self, owner: JobId, key: BlobKey, file: Path, *, sha256: str | None = None) -> int:
        if self.full:
            raise Fatal(f"cannot store {file}: No space left on device", hint="make room")
        content = file.read_bytes()
        actual = hashlib.sha256(content).hexdigest()
        assert sha256 in (None, actual)
        if actual != key.sha256:
            raise DamagedBlob(owner, key, actual, str(file))
        final = self.file(owner, key)
        final.parent.mkdir(exist_ok=True)
        file.rename(final)
        return len(content)

    async def share(self, owner: JobId, key: BlobKey) -> bool:
        for path in self.root.glob(f"*/{key}"):
            if path.parent.name != owner and hashlib.sha256(path.read_bytes()).hexdigest() == key.sha256:
                self.file(owner, key).parent.mkdir(exist_ok=True)
                self.file(owner, key).hardlink_to(path)
                return True
        return False

    async def path(self, owner: JobId, key: BlobKey) -> Path:
        await asyncio.sleep(0)
        path = self.file(owner, key)
        try:
            actual = hashlib.sha256(path.read_bytes()).hexdigest()
        except FileNotFoundError:
            raise Absent(f"no BLOB {key}") from None
        if actual != key.sha256:
            path.unlink()
            raise DamagedBlob(owner, key, actual, str(path))
        return path

    async def delete(self, owner: JobId, keys: Iterable[BlobKey]) -> None:
        if self.undeletable:
            raise Fatal("cannot delete: Read-only file system")
        for key in keys:
            self.file(owner, key).unlink(missing_ok=True)

    async def delete_owner(self, owner: JobId) -> None:
        if self.undeletable:
            raise Fatal("cannot delete: Read-only file system")
        if (self.root / owner).exists():
            await self.delete(owner, [blob.key for blob in (await self.listing())[owner]])
            (self.root / owner).rmdir()

    async def listing(self) -> Mapping[JobId, tuple[StoredBlob, ...]]:
        return {
            JobId(directory.name): tuple(
                StoredBlob(key=parse_blob_key(path.name), size=path.stat().st_size, modified_ms=0)
                for path in directory.iterdir()
            )
            for directory in self.root.iterdir()
            if directory.name != "tmp"
        }


Answer = Callable[[BlobKey], Awaitable[bytes]]


class ScriptedSource:
    """A BlobSource that answers as it is told, and counts."""

    def __init__(self, answer: Answer, location: str = "BLOB server test:1") -> None:
        self.answer = answer
        self.calls = 0
        self.taken: list[BlobKey] = []
        self._location = location

    @property
    def location(self) -> str:
        return self._location

    async def download(self, owner: JobId, key: BlobKey, destination: Path) -> str | None:
        self.calls += 1
        destination.write_bytes(await self.answer(key))
        return None

    def obtained(self, owner: JobId, key: BlobKey) -> None:
        self.taken.append(key)


class ScriptedStorage:
    """An HA store that is only read, and answers as it is told."""

    location = "/mnt/ha"

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.calls = 0

    async def fetch(self, owner: JobId, key: BlobKey, destination: Path) -> None:
        self.calls += 1
        destination.write_bytes(await self.answer(key))

    async def put(self, owner: JobId, key: BlobKey, file: Path) -> None:
        raise AssertionError("a cache only reads the HA store")

    async def size(self, owner: JobId, key: BlobKey) -> int:
        raise AssertionError("not asked by a cache")

    async def delete(self, owner: JobId, keys: Iterable[BlobKey], *, within: float = 1.0) -> None:
        raise AssertionError("a cache only reads the HA store")

    async def delete_owner(self, owner: JobId) -> None:
        raise AssertionError("a cache only reads the HA store")

    async def listing(self) -> Mapping[JobId, tuple[StoredBlob, ...]]:
        raise AssertionError("not asked by a cache")

    async def close(self) -> None:
        pass


def giving(content: bytes) -> Answer:
    async def answer(_key: BlobKey) -> bytes:
        await asyncio.sleep(0)
        return content

    return answer


def raising(error: Exception) -> Answer:
    async def answer(_key: BlobKey) -> bytes:
        raise error

    return answer
