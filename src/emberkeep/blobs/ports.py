"""What the BLOB server and the BLOB cache need from outside: a local store and, for permanent BLOBs, an HA store.

Both lay BLOBs out as ``<owner>/<key>``. Neither counts, decides or retries: they hold bytes and tell the truth.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

from emberkeep.base.ids import JobId
from emberkeep.blobs.model import BlobKey, StoredBlob


class LocalStore(Protocol):
    """BLOBs on this machine's disk, for one process. Same content of several owners is one file on disk (BLOB-21).

    What is readable is complete, verified and durable (BLOB-3). Disk errors are raised as Fatal and leave nothing.
    """

    async def open_store(self) -> None:
        """Make the directory and remove leftovers of transfers that a crash cut off. Call once, before all else."""

    async def receive(
        self, owner: JobId, key: BlobKey, chunks: AsyncIterable[bytes], *, max_size: int, size: int | None = None
    ) -> int:
        """Store what ``chunks`` yields; returns bytes. Already there: replaced, so that a damaged file is mended.

        Raises InvalidInput (another hash or ``size``, more than ``max_size`` bytes), Fatal, and what ``chunks`` raises;
        nothing is left behind then.
        """

    async def adopt(self, owner: JobId, key: BlobKey, file: Path, *, sha256: str | None = None) -> int:
        """Take over a complete file of this store's ``temporary()``; verified, then as ``receive``. Raises Damaged.

        ``sha256``: taken of the bytes while they were written, so that they are not read again.
        """

    def temporary(self) -> Path:
        """A path for a file under transfer, on the same file system; removed by ``open_store`` after a crash."""

    async def share(self, owner: JobId, key: BlobKey) -> bool:
        """Give ``owner`` this content without a transfer where another owner has it, verified; False where none has."""

    async def path(self, owner: JobId, key: BlobKey) -> Path:
        """The file, verified at its first use in this process and when it has changed since (BLOB-2).

        Raises Absent; Damaged: it was dropped, for every owner that shares it; Unavailable: it cannot be read now, and
        stays.
        """

    async def delete(self, owner: JobId, keys: Iterable[BlobKey]) -> None:
        """What is not there is fine. An owner's directory goes with its last BLOB."""

    async def delete_owner(self, owner: JobId) -> None:
        """Delete the owner's directory as a whole."""

    async def listing(self) -> Mapping[JobId, tuple[StoredBlob, ...]]:
        """Everything that is stored, whatever its state. Foreign files and directories are reported by a log line."""


class BlobStorage(Protocol):
    """The HA store: a shared directory or an object store. Holds permanent BLOBs only.

    Raises RetryLater when it does not answer, Fatal when it refuses (no space, no permission, no such bucket).
    """

    @property
    def location(self) -> str:
        """Where it is, for messages; holds no secret."""

    async def put(self, owner: JobId, key: BlobKey, file: Path) -> None:
        """Store a copy of ``file``, durable when this returns; readers see all of it or nothing. Replaces."""

    async def fetch(self, owner: JobId, key: BlobKey, destination: Path) -> None:
        """Copy the bytes to ``destination`` (a new file). They are as they are: the caller verifies. Raises Absent."""

    async def size(self, owner: JobId, key: BlobKey) -> int:
        """Bytes. Raises Absent."""

    async def delete(self, owner: JobId, keys: Iterable[BlobKey], *, within: float = math.inf) -> None:
        """What is not there is fine. No deletion begins later than ``within`` seconds after the call, however long this
        process was stopped meanwhile: what is left then is kept, and RetryLater raised."""

    async def delete_owner(self, owner: JobId) -> None:
        """Everything of the owner, as a whole where the store can (BLOB-11)."""

    async def listing(self) -> Mapping[JobId, tuple[StoredBlob, ...]]:
        """Everything that is stored."""

    async def close(self) -> None:
        """Idempotent."""


class BlobSource(Protocol):
    """Another process that serves BLOBs: the BLOB server, or a peer's cache."""

    @property
    def location(self) -> str:
        """Where it is, for messages."""

    async def download(self, owner: JobId, key: BlobKey, destination: Path) -> str | None:
        """Bring the bytes to ``destination`` (a new file); returns the SHA-256 taken of them while they were written,
        None where it was not taken. The caller verifies.

        Raises Absent, RetryLater, Damaged, CannotStore, Fatal. ``destination`` is the caller's to remove then.
        """

    def obtained(self, owner: JobId, key: BlobKey) -> None:
        """What ``download`` brought is in this process's store now, so that others may be sent here. Never waits."""


class BlobAccess(Protocol):
    """What a process's BLOB cache offers to the rest of it: files by key, one reference per task that uses them.

    ``holder`` names the task, in words that are unique here: "driver-<job>-<attempt>", "executor-…", "message-…".
    """

    async def acquire(self, owner: JobId, key: BlobKey, holder: str) -> Path:
        """The verified file, from the local store, else the HA store, else the BLOB server or a peer (BLOB-7). It stays
        until this holder's reference ends. Concurrent calls for one key cause one transfer (BLOB-8).

        Raises Absent (nobody has it), RetryLater (nobody answers), Fatal (damaged everywhere, disk full).
        """

    def release(self, owner: JobId, key: BlobKey, holder: str) -> None:
        """End one reference; one that is not there is fine."""

    def release_all(self, owner: JobId, holder: str) -> None:
        """End every reference of this holder: its task finished, failed or was cancelled (BLOB-13)."""
