"""An HA store outside the shared storage: used only while it is available, and only its owner deletes there."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from emberkeep.adapters.ha_blobs.place import BlobPlace
from emberkeep.base.errors import Absent
from emberkeep.base.ids import JobId
from emberkeep.blobs.model import BlobKey, StoredBlob
from emberkeep.blobs.ports import BlobStorage


class OwnedBlobs:
    """Implements ``blobs.ports.BlobStorage`` on top of ``blobs``, checking ``place`` before each operation.

    Methods also raise what ``place`` raises.
    """

    def __init__(self, blobs: BlobStorage, place: BlobPlace) -> None:
        self._blobs = blobs
        self._place = place

    @property
    def location(self) -> str:
        return self._blobs.location

    async def put(self, owner: JobId, key: BlobKey, file: Path) -> None:
        await self._there()
        await self._blobs.put(owner, key, file)

    async def fetch(self, owner: JobId, key: BlobKey, destination: Path) -> None:
        await self._there()
        try:
            await self._blobs.fetch(owner, key, destination)
        except Absent:
            await self._still_there()
            raise

    async def size(self, owner: JobId, key: BlobKey) -> int:
        await self._there()
        try:
            return await self._blobs.size(owner, key)
        except Absent:
            await self._still_there()
            raise

    async def delete(self, owner: JobId, keys: Iterable[BlobKey], *, within: float = math.inf) -> None:
        begun = time.monotonic()
        await asyncio.to_thread(self._place.require)
        await self._blobs.delete(owner, keys, within=within - (time.monotonic() - begun))

    async def delete_owner(self, owner: JobId) -> None:
        await asyncio.to_thread(self._place.require)
        await self._blobs.delete_owner(owner)

    async def listing(self) -> Mapping[JobId, tuple[StoredBlob, ...]]:
        self._place.forget_sight()
        await self._there()
        return await self._blobs.listing()

    async def close(self) -> None:
        await self._blobs.close()

    async def _there(self) -> None:
        await asyncio.to_thread(self._place.require_there)

    async def _still_there(self) -> None:
        self._place.forget_sight()
        await self._there()
