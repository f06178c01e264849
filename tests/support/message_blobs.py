"""``MessageBlobs`` in memory: what is stored, who holds it, and what was asked."""

from __future__ import annotations

import hashlib

from emberkeep.base.errors import Absent
from emberkeep.base.ids import JobId
from emberkeep.blobs.model import BlobKey, transient

Place = tuple[JobId, BlobKey]


class MemoryMessageBlobs:
    """One store that all processes of a test share. Nothing is deleted unless a test does it."""

    def __init__(self) -> None:
        self.contents: dict[Place, bytes] = {}
        self.holders: dict[Place, set[str]] = {}
        self.fetches: list[tuple[Place, str]] = []
        self.releases: list[tuple[Place, str]] = []
        self.attempts: list[int] = []  # that messages acted for, in the order of their storing

    async def store(self, owner: JobId, data: bytes, holder: str, attempt: int) -> BlobKey:
        self.attempts.append(attempt)
        key = transient(hashlib.sha256(data).hexdigest())
        self.contents[owner, key] = data
        self.holders.setdefault((owner, key), set()).add(holder)
        return key

    async def fetch(self, owner: JobId, key: BlobKey, holder: str) -> bytes:
        self.fetches.append(((owner, key), holder))
        try:
            return self.contents[owner, key]
        except KeyError:
            raise Absent(f"BLOB {key} of job {owner} is not here") from None

    async def release(self, owner: JobId, key: BlobKey, holder: str, attempt: int) -> None:
        del attempt
        self.releases.append(((owner, key), holder))
        self.holders.get((owner, key), set()).discard(holder)

    @property
    def references(self) -> int:
        """How many there are, of all BLOBs together."""
        return sum(map(len, self.holders.values()))
