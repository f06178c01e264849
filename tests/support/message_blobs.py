"""``MessageBlobs`` in memory: what is stored, who holds it, and which requests were made."""

from __future__ import annotations

import hashlib

from emberkeep.base.errors import Absent, InvalidInput
from emberkeep.base.ids import JobId
from emberkeep.blobs.model import BlobKey, transient

Place = tuple[JobId, BlobKey]


class MemoryMessageBlobs:
    """A store that all processes of a test share. Only the test deletes from it."""

    def __init__(self) -> None:
        self.contents: dict[Place, bytes] = {}
        self.holders: dict[Place, set[str]] = {}
        self.fetches: list[tuple[Place, str]] = []
        self.releases: list[tuple[Place, str]] = []
        self.attempts: list[int] = []  # attempts for which messages were stored, in this order

    async def store(self, owner: JobId, data: bytes, holder: str, attempt: int) -> BlobKey:
        self.attempts.append(attempt)
        key = transient(hashlib.sha256(data).hexdigest())
        self.contents[owner, key] = data
        self.holders.setdefault((owner, key), set()).add(holder)
        return key

    async def fetch(self, owner: JobId, key: BlobKey, holder: str, limit: int) -> bytes:
        self.fetches.append(((owner, key), holder))
        try:
            content = self.contents[owner, key]
        except KeyError:
            raise Absent(f"BLOB {key} of job {owner} is not here") from None
        if len(content) > limit:
            raise InvalidInput(f"BLOB {key} of job {owner} has {len(content)} bytes, more than {limit}")
        return content

    async def release(self, owner: JobId, key: BlobKey, holder: str, attempt: int) -> None:
        del attempt
        self.releases.append(((owner, key), holder))
        self.holders.get((owner, key), set()).discard(holder)

    @property
    def references(self) -> int:
        """Number of references to all BLOBs together."""
        return sum(map(len, self.holders.values()))
