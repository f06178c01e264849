"""A directory in the place of a BLOB cache: keeps the contract of BlobAccess, without any transfer."""

from __future__ import annotations

import hashlib
from pathlib import Path

from emberkeep.base.errors import Absent
from emberkeep.base.ids import JobId
from emberkeep.blobs.model import BlobKey, permanent
from emberkeep.jobs.model import Artefact, ArtefactRole


class DirectoryBlobs:
    """``holders``: who holds what, by owner and key."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.holders: dict[tuple[JobId, BlobKey], set[str]] = {}

    def add(self, content: bytes, name: str, role: ArtefactRole, fragment: str = "") -> Artefact:
        sha256 = hashlib.sha256(content).hexdigest()
        self._directory.mkdir(parents=True, exist_ok=True)
        (self._directory / str(permanent(sha256))).write_bytes(content)
        return Artefact(role=role, name=name, sha256=sha256, size=len(content), fragment=fragment)

    def held_by(self, holder: str) -> int:
        return sum(holder in holders for holders in self.holders.values())

    async def acquire(self, owner: JobId, key: BlobKey, holder: str) -> Path:
        path = self._directory / str(key)
        if not path.exists():
            raise Absent(f"nobody has BLOB {key}")
        self.holders.setdefault((owner, key), set()).add(holder)
        return path

    def release(self, owner: JobId, key: BlobKey, holder: str) -> None:
        self.holders.get((owner, key), set()).discard(holder)

    def release_all(self, owner: JobId, holder: str) -> None:
        for (of, _), holders in self.holders.items():
            if of == owner:
                holders.discard(holder)
