"""Both BLOB stores in memory, for tests and the simulator. They pass the contract tests of the real stores.

``step`` is awaited before and after each operation, with the operation's name and with that name and " done". It may
take time; an error that it raises is the store's error.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import math
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping
from pathlib import Path

from emberkeep.base.errors import Absent, InvalidInput, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.blobs.errors import DamagedBlob
from emberkeep.blobs.model import BlobKey, StoredBlob, parse_blob_key

Step = Callable[[str], Awaitable[None]]

TEMPORARY = "incoming"


async def no_step(_: str) -> None:
    """Do nothing: the default step."""


async def always_leads() -> None:
    """Confirm leadership always: the ``confirm`` of a BLOB server without a competing JobManager."""


class MemoryFiles:
    """Files on a machine's disk, which outlive its processes. Implements the BLOB server's Disk port."""

    def __init__(self) -> None:
        self.contents: dict[Path, bytes] = {}

    async def digest(self, file: Path) -> tuple[str, int]:
        content = self.read(file)
        return hashlib.sha256(content).hexdigest(), len(content)

    async def digest_bytes(self, data: bytes) -> str:
        return hashlib.sha256(data).hexdigest()

    async def discard(self, file: Path) -> None:
        self.contents.pop(file, None)

    def read(self, file: Path) -> bytes:
        """Return a file's content. Raises Absent."""
        try:
            return self.contents[file]
        except KeyError:
            raise Absent(f"{file} does not exist") from None

    def blobs(self, root: Path) -> dict[JobId, dict[BlobKey, bytes]]:
        """Return the BLOBs below ``root``, by owner."""
        found: dict[JobId, dict[BlobKey, bytes]] = {}
        for path, content in sorted(self.contents.items()):
            if path.parent.parent == root:
                with contextlib.suppress(InvalidInput):
                    found.setdefault(JobId(path.parent.name), {})[parse_blob_key(path.name)] = content
        return found


class _Layout:
    def __init__(self, files: MemoryFiles, root: Path, step: Step) -> None:
        self.files = files
        self.root = root
        self.step = step

    def file(self, owner: JobId, key: BlobKey) -> Path:
        """Return the path of a BLOB."""
        return self.root / owner / str(key)

    async def delete(self, owner: JobId, keys: Iterable[BlobKey]) -> None:
        await self.step("delete")
        for key in keys:
            self.files.contents.pop(self.file(owner, key), None)
        await self.step("delete done")

    async def delete_owner(self, owner: JobId) -> None:
        await self.step("delete_owner")
        for key in self.files.blobs(self.root).get(owner, {}):
            del self.files.contents[self.file(owner, key)]
        await self.step("delete_owner done")

    async def listing(self) -> Mapping[JobId, tuple[StoredBlob, ...]]:
        await self.step("listing")
        found = {
            owner: tuple(StoredBlob(key=key, size=len(content), modified_ms=0) for key, content in blobs.items())
            for owner, blobs in self.files.blobs(self.root).items()
        }
        await self.step("listing done")
        return found


class MemoryLocalStore(_Layout):
    """Implements LocalStore and verifies every read."""

    def __init__(self, files: MemoryFiles, root: Path = Path("/local"), *, step: Step = no_step) -> None:
        super().__init__(files, root, step)
        self._numbers = itertools.count()

    async def open_store(self) -> None:
        await self.step("open_store")
        for path in list(self.files.contents):
            if path.parent == self.root / TEMPORARY:
                del self.files.contents[path]

    def temporary(self) -> Path:
        return self.root / TEMPORARY / str(next(self._numbers))

    async def receive(
        self, owner: JobId, key: BlobKey, chunks: AsyncIterable[bytes], *, max_size: int, size: int | None = None
    ) -> int:
        await self.step("receive")
        content = bytearray()
        async for chunk in chunks:
            content += chunk
            if len(content) > max_size:
                raise InvalidInput(f"the BLOB is larger than {max_size} bytes", field="body")
        if size is not None and size != len(content):
            raise InvalidInput(f"the BLOB has {len(content)} bytes, not {size}", field="size")
        actual = hashlib.sha256(content).hexdigest()
        if actual != key.sha256:
            raise InvalidInput(f"the content's SHA-256 is {actual}, not {key.sha256}", field="sha256")
        self.files.contents[self.file(owner, key)] = bytes(content)
        await self.step("receive done")
        return len(content)

    async def adopt(self, owner: JobId, key: BlobKey, file: Path, *, sha256: str | None = None) -> int:
        await self.step("adopt")
        content = self.files.read(file)
        actual = sha256 or hashlib.sha256(content).hexdigest()
        if actual != key.sha256:
            raise DamagedBlob(owner, key, actual, str(file))
        self.files.contents[self.file(owner, key)] = self.files.contents.pop(file)
        await self.step("adopt done")
        return len(content)

    async def share(self, owner: JobId, key: BlobKey) -> bool:
        await self.step("share")
        for path, content in list(self.files.contents.items()):
            if path.name == str(key) and path.parent.name != owner and path.parent.parent == self.root:
                if hashlib.sha256(content).hexdigest() != key.sha256:
                    continue
                self.files.contents[self.file(owner, key)] = content
                await self.step("share done")
                return True
        return False

    async def path(self, owner: JobId, key: BlobKey) -> Path:
        await self.step("path")
        file = self.file(owner, key)
        actual = hashlib.sha256(self.files.read(file)).hexdigest()
        if actual != key.sha256:
            del self.files.contents[file]
            raise DamagedBlob(owner, key, actual, str(file))
        await self.step("path done")
        return file


class MemoryBlobStorage(_Layout):
    """Implements BlobStorage. ``files`` are on the machine that uses it.

    The BLOBs are in ``stored``, which several machines may share.
    """

    def __init__(self, files: MemoryFiles, stored: MemoryFiles, *, step: Step = no_step) -> None:
        super().__init__(stored, Path("/ha"), step)
        self._machine = files

    @property
    def location(self) -> str:
        return "memory:/ha"

    async def put(self, owner: JobId, key: BlobKey, file: Path) -> None:
        await self.step("put")
        content = self._machine.read(file)
        actual = hashlib.sha256(content).hexdigest()
        if actual != key.sha256:
            raise DamagedBlob(owner, key, actual, str(file))
        self.files.contents[self.file(owner, key)] = content
        await self.step("put done")

    async def fetch(self, owner: JobId, key: BlobKey, destination: Path) -> None:
        await self.step("fetch")
        self._machine.contents[destination] = self.files.read(self.file(owner, key))
        await self.step("fetch done")

    async def delete(self, owner: JobId, keys: Iterable[BlobKey], *, within: float = math.inf) -> None:
        if within <= 0:
            raise RetryLater(f"the deletion was abandoned: it was decided more than {within:g} s ago")
        await super().delete(owner, keys)

    async def size(self, owner: JobId, key: BlobKey) -> int:
        await self.step("size")
        return len(self.files.read(self.file(owner, key)))

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""
