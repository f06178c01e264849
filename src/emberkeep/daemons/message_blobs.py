"""Stores and fetches parts of offloaded messages: in this process's BLOB server, or through its BLOB cache."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from weakref import WeakValueDictionary

from emberkeep.adapters.blobs.client import HttpBlobUploads
from emberkeep.base.errors import Absent, InvalidInput
from emberkeep.base.files.errors import cannot_read
from emberkeep.base.ids import JobId
from emberkeep.blobs.errors import DamagedBlob
from emberkeep.blobs.model import BlobKey, transient
from emberkeep.blobs.ports import BlobAccess
from emberkeep.jobmanager.views.blobs import BlobServerGateway


class ServerMessageBlobs:
    """Implements MessageBlobs in the BLOB server's process.

    ``attempt`` is ignored: that process is the leader, and acts on behalf of no attempt.
    """

    def __init__(self, server: BlobServerGateway) -> None:
        self._server = server
        self._storing: WeakValueDictionary[tuple[JobId, BlobKey], asyncio.Lock] = WeakValueDictionary()

    async def store(self, owner: JobId, data: bytes, holder: str, attempt: int) -> BlobKey:
        """Store ``data``, or only add ``holder`` if the content is already stored for another receiver."""
        del attempt
        key = transient((await asyncio.to_thread(hashlib.sha256, data)).hexdigest())
        lock = self._storing.get((owner, key)) or asyncio.Lock()
        self._storing[owner, key] = lock
        async with lock:
            try:
                self._server.hold(owner, key, [holder])
                await self._server.path(owner, key)
            except (Absent, DamagedBlob):
                return await self._server.store_bytes(owner, data, [holder])
        return key

    async def fetch(self, owner: JobId, key: BlobKey, holder: str, limit: int) -> bytes:
        return await read(owner, key, await self._server.path(owner, key), limit)

    async def release(self, owner: JobId, key: BlobKey, holder: str, attempt: int) -> None:
        del attempt
        self._server.release(owner, key, holder)


class CacheMessageBlobs:
    """Implements MessageBlobs in all processes but the BLOB server's."""

    def __init__(self, cache: BlobAccess, uploads: HttpBlobUploads) -> None:
        self._cache = cache
        self._uploads = uploads

    async def store(self, owner: JobId, data: bytes, holder: str, attempt: int) -> BlobKey:
        return await self._uploads.put_bytes(owner, data, [holder], attempt)

    async def fetch(self, owner: JobId, key: BlobKey, holder: str, limit: int) -> bytes:
        path = await self._cache.acquire(owner, key, holder)
        try:
            return await read(owner, key, path, limit)
        finally:
            self._cache.release(owner, key, holder)

    async def release(self, owner: JobId, key: BlobKey, holder: str, attempt: int) -> None:
        await self._uploads.release(owner, key, holder, attempt)


async def read(owner: JobId, key: BlobKey, path: Path, limit: int) -> bytes:
    """Return the file's content.

    Raises InvalidInput (it has more than ``limit`` bytes, and is not read), Absent (deleted in the meantime),
    Unavailable (it cannot be read now, for example for want of descriptors).
    """

    def load() -> bytes:
        size = path.stat().st_size
        if size > limit:
            raise InvalidInput(f"BLOB {key} of job {owner} has {size} bytes, more than the {limit} that were announced")
        return path.read_bytes()

    try:
        return await asyncio.to_thread(load)
    except FileNotFoundError:
        raise Absent(f"BLOB {key} of job {owner} has just been deleted") from None
    except OSError as error:
        raise cannot_read(path, error) from error
