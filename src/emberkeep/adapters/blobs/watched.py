"""An HA store on the shared storage. It is not used while the storage is known to be unavailable.

While the mount is missing, its directory is empty, or is missing too and could be created. BLOBs stored there would be
hidden once the mount is back, and an empty listing would look correct.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from emberkeep.base.errors import Unavailable
from emberkeep.base.ids import JobId
from emberkeep.blobs.model import BlobKey, StoredBlob
from emberkeep.blobs.ports import BlobStorage


class WatchedBlobs:
    """Implements ``blobs.ports.BlobStorage`` on top of ``blobs``.

    ``problem``: returns why the storage is unavailable; "" while it is available.
    """

    def __init__(self, blobs: BlobStorage, problem: Callable[[], str]) -> None:
        self._blobs = blobs
        self._problem = problem

    @property
    def location(self) -> str:
        return self._blobs.location

    async def put(self, owner: JobId, key: BlobKey, file: Path) -> None:
        self._check()
        await self._blobs.put(owner, key, file)

    async def fetch(self, owner: JobId, key: BlobKey, destination: Path) -> None:
        self._check()
        await self._blobs.fetch(owner, key, destination)

    async def size(self, owner: JobId, key: BlobKey) -> int:
        self._check()
        return await self._blobs.size(owner, key)

    async def delete(self, owner: JobId, keys: Iterable[BlobKey], *, within: float = math.inf) -> None:
        self._check()
        await self._blobs.delete(owner, keys, within=within)

    async def delete_owner(self, owner: JobId) -> None:
        self._check()
        await self._blobs.delete_owner(owner)

    async def listing(self) -> Mapping[JobId, tuple[StoredBlob, ...]]:
        self._check()
        return await self._blobs.listing()

    async def close(self) -> None:
        await self._blobs.close()

    def _check(self) -> None:
        """Raise Unavailable while there is a problem."""
        problem = self._problem()
        if problem:
            raise Unavailable(f"the HA store {self.location} is not used: {problem}", hint="see this process's log")
