"""Index of the BLOBs on a disk: owners by content, and files found sound. If index and disk differ, trust the disk."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TypeAlias

from emberkeep.base.ids import JobId
from emberkeep.blobs.model import BlobKey

Place: TypeAlias = tuple[JobId, BlobKey]
# Inode, size, modification time in ns: a file is taken as unchanged if all three are equal.
Identity: TypeAlias = tuple[int, int, int]


def identity(status: os.stat_result) -> Identity:
    """Return the identity of a regular file."""
    return status.st_ino, status.st_size, status.st_mtime_ns


@dataclass
class _Content:
    places: dict[Place, None] = field(default_factory=dict)  # newest last
    verified: set[Identity] = field(default_factory=set)


class BlobIndex:
    """The index. Only one thread at a time may use it, but any thread may call ``is_verified`` at any time."""

    def __init__(self) -> None:
        self._contents: dict[str, _Content] = {}
        self._owners: dict[JobId, set[BlobKey]] = {}

    def add(self, place: Place, verified: Identity | None = None) -> None:
        """Record that there is a BLOB at ``place``. ``verified``: its file, if that was read and found sound."""
        owner, key = place
        content = self._contents.setdefault(key.sha256, _Content())
        content.places.pop(place, None)
        content.places[place] = None
        if verified is not None:
            if len(content.places) == 1:
                content.verified.clear()  # they were files that this one has replaced
            content.verified.add(verified)
        self._owners.setdefault(owner, set()).add(key)

    def remove(self, place: Place) -> None:
        """Remove ``place``; do nothing if the index does not have it."""
        owner, key = place
        content = self._contents.get(key.sha256)
        if content is None or place not in content.places:
            return
        del content.places[place]
        if not content.places:
            del self._contents[key.sha256]
        keys = self._owners[owner]
        keys.remove(key)
        if not keys:
            del self._owners[owner]

    def remove_owner(self, owner: JobId) -> None:
        for key in list(self._owners.get(owner, ())):
            self.remove((owner, key))

    def has(self, place: Place) -> bool:
        content = self._contents.get(place[1].sha256)
        return content is not None and place in content.places

    def places(self, sha256: str) -> list[Place]:
        """Return the places that have this content, newest first."""
        content = self._contents.get(sha256)
        return [] if content is None else list(reversed(content.places))

    def is_verified(self, sha256: str, file: Identity) -> bool:
        content = self._contents.get(sha256)
        return content is not None and file in content.verified
