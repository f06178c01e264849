"""Ports of the BLOB server and the BLOB cache: a local store and, for permanent BLOBs, an HA store.

Both stores keep BLOBs as ``<owner>/<key>``. Neither counts, decides or retries: they hold bytes and report what they
hold.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

from emberkeep.base.ids import JobId
from emberkeep.blobs.model import BlobKey, StoredBlob


class LocalStore(Protocol):
    """BLOBs on this machine's disk, for one process. Equal content of several owners is one file on disk (BLOB-21).

    Every BLOB that can be read is complete, verified and durable (BLOB-3). Disk errors are raised as Fatal and leave no
    partial file.
    """

    async def open_store(self) -> None:
        """Make the directory and remove leftovers of transfers that a crash interrupted. Call once, before all else."""

    async def receive(
        self, owner: JobId, key: BlobKey, chunks: AsyncIterable[bytes], *, max_size: int, size: int | None = None
    ) -> int:
        """Store the bytes that ``chunks`` yields and return their number.

        Replaces an existing file, so that a damaged one is repaired. Raises InvalidInput (a different hash or ``size``,
        more than ``max_size`` bytes), Fatal, and what ``chunks`` raises; an error leaves nothing behind.
        """

    async def adopt(self, owner: JobId, key: BlobKey, file: Path, *, sha256: str | None = None) -> int:
        """Take over a complete file at a path from ``temporary()``: verify it, then store it as ``receive`` does.

        ``sha256``: the hash computed while the bytes were written, so that they are not read again. Raises Damaged.
        """

    def temporary(self) -> Path:
        """Return a path for a file in transfer, on the same file system.

        ``open_store`` removes the file after a crash.
        """

    async def share(self, owner: JobId, key: BlobKey) -> bool:
        """Give ``owner`` this content without a transfer, if another owner has it and it can be verified.

        Return False if no owner has it.
        """

    async def path(self, owner: JobId, key: BlobKey) -> Path:
        """Return the file, verified at its first use in this process and whenever it has changed since (BLOB-2).

        Raises Absent, Damaged (it was deleted, for every owner that shares it), or Unavailable (it cannot be read now,
        and is kept).
        """

    async def delete(self, owner: JobId, keys: Iterable[BlobKey]) -> None:
        """Delete BLOBs; missing ones are ignored. The owner's directory is removed with its last BLOB."""

    async def delete_owner(self, owner: JobId) -> None:
        """Delete the owner's directory as a whole."""

    async def listing(self) -> Mapping[JobId, tuple[StoredBlob, ...]]:
        """Return all stored BLOBs, in whatever condition.

        Foreign files and directories are only logged.
        """


class BlobStorage(Protocol):
    """The HA store: a shared directory or an object store. Holds permanent BLOBs only.

    Raises RetryLater if it does not answer, Fatal if it refuses (no space, no permission, no such bucket).
    """

    @property
    def location(self) -> str:
        """Address of the HA store, for messages; contains no secret."""

    async def put(self, owner: JobId, key: BlobKey, file: Path) -> None:
        """Store a copy of ``file``, replacing an existing one; durable on return. Readers see all of it or nothing."""

    async def fetch(self, owner: JobId, key: BlobKey, destination: Path) -> None:
        """Copy the bytes to ``destination`` (a new file), unverified: the caller verifies them. Raises Absent."""

    async def size(self, owner: JobId, key: BlobKey) -> int:
        """Return the size in bytes. Raises Absent."""

    async def delete(self, owner: JobId, keys: Iterable[BlobKey], *, within: float = math.inf) -> None:
        """Delete BLOBs; missing ones are ignored.

        Starts no deletion later than ``within`` seconds after the call, however long this process was stopped in
        between. BLOBs left at that point are kept, and RetryLater is raised.
        """

    async def delete_owner(self, owner: JobId) -> None:
        """Delete everything of the owner, in one step if the store can (BLOB-11)."""

    async def listing(self) -> Mapping[JobId, tuple[StoredBlob, ...]]:
        """Return all stored BLOBs."""

    async def close(self) -> None:
        """Free resources. Idempotent."""


class BlobSource(Protocol):
    """Another process that serves BLOBs: the BLOB server or a peer's cache."""

    @property
    def location(self) -> str:
        """Address of the process, for messages."""

    async def download(self, owner: JobId, key: BlobKey, destination: Path) -> str | None:
        """Download the bytes to ``destination`` (a new file), unverified: the caller verifies them.

        Returns the SHA-256 computed while the bytes were written, or None if it was not computed. Raises Absent,
        RetryLater, Damaged, CannotStore, Fatal; the caller then removes ``destination``.
        """

    def obtained(self, owner: JobId, key: BlobKey) -> None:
        """Note that this process's store now has the downloaded BLOB, so that others may be sent here. Never waits."""


class BlobAccess(Protocol):
    """A process's BLOB cache as the rest of the process uses it: files by key, one reference per task that uses them.

    ``holder`` names the task, uniquely in this process: "driver-<job>-<attempt>", "executor-…", "message-…".
    """

    async def acquire(self, owner: JobId, key: BlobKey, holder: str) -> Path:
        """Return the verified file, from the local store, else the HA store, else the BLOB server or a peer (BLOB-7).

        The file stays until this holder's reference ends. Concurrent calls for one key cause one transfer (BLOB-8).
        Raises Absent (no process has it), RetryLater (no process answers), Fatal (damaged everywhere, disk full).
        """

    def release(self, owner: JobId, key: BlobKey, holder: str) -> None:
        """End one reference. Does nothing if there is no such reference."""

    def release_all(self, owner: JobId, holder: str) -> None:
        """End every reference of this holder: its task has finished, failed or was cancelled (BLOB-13)."""
