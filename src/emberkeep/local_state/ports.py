"""Ports of the state gateway: the durable store of each root, and copies on this node's disk.

Methods block. They are called from worker threads, any number at once, unless said otherwise. Names are those of
``StatePath.name``; a name that is absolute or has a part "." or ".." raises InvalidInput everywhere. A durable change
survives a power loss once the call has returned.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from emberkeep.base.ids import AllocationId, JobId
from emberkeep.local_state.model import CopyRecord, FileStatus, Holding, StatePath


class DurableState(Protocol):
    """The durable files of one root: a shared directory or an object store. Readers see all of a file or none.

    Besides what its own docstring says, each method raises RetryLater (the store does not answer), UnknownOutcome (the
    answer to a change was lost), Fatal (the store refuses: no space, no permission).
    """

    @property
    def location(self) -> str:
        """The root, for messages; contains no secret."""

    def status(self, name: str) -> FileStatus:
        """Return the status of a file or directory. Raises Absent."""

    def listing(self, name: str) -> tuple[FileStatus, ...]:
        """Return the entries of a directory, by name; for a file, the file alone. Raises Absent."""

    def make_directory(self, name: str) -> None:
        """Make a directory and its parents. Does nothing if it exists. Raises NotADirectory."""

    def create(self, name: str, source: Path, *, overwrite: bool) -> FileStatus:
        """Store a copy of the complete file ``source``, atomically and durably, and return its status.

        Parents are made.

        A file with a hidden temporary name (``.….tmp``, as Spark makes them) may become durable only when it is
        renamed. Of several callers with ``overwrite`` false exactly one succeeds, whatever their nodes. Raises Exists
        (``overwrite`` false: a file or a directory), IsADirectory (``overwrite`` true), NotADirectory.
        """

    def read(self, name: str, offset: int, length: int | None) -> tuple[FileStatus, Iterator[bytes]]:
        """Return the file's status and an iterator over its bytes from ``offset`` on. ``length`` None: to the end.

        All bytes are of the one generation that the status names. The iterator raises RetryLater if the file is
        replaced while it is read; dropping the iterator frees its resources. An ``offset`` beyond the end yields no
        bytes. Raises Absent, IsADirectory.
        """

    def rename(self, source: str, target: str, *, overwrite: bool) -> FileStatus:
        """Move a file or directory and return the status at ``target``. Parents of ``target`` are not made.

        Of several callers with one target and ``overwrite`` false exactly one succeeds. At no moment is the file absent
        under both names. A file keeps its generation in a directory, but not in an object store. An object store cannot
        move directories: Fatal. Raises Absent (no source, no parent of the target), Exists (also for a directory with
        entries), IsADirectory, NotADirectory, Conflict (a directory into itself).
        """

    def delete(self, name: str, *, recursive: bool) -> bool:
        """Delete a file or directory. Return False if it did not exist. A deleted file may reappear after a power loss.

        Raises NotEmpty (a directory with entries, and ``recursive`` is False).
        """

    def close(self) -> None:
        """Free resources. Idempotent."""


class StagedCopy(Protocol):
    """A file that is being received: bytes are written once, in order. Not safe for several threads at once."""

    @property
    def path(self) -> Path:
        """Path of the file, complete and readable after ``finish``. The durable store copies from it."""

    def write(self, data: bytes) -> None:
        """Append bytes. Raises Fatal (disk full, …); the caller then discards the copy."""

    def finish(self) -> int:
        """Complete the file and return its size in bytes. The file is not durable yet. Idempotent."""

    def keep(
        self,
        path: StatePath,
        job_id: JobId,
        attempt: int,
        allocation_id: AllocationId,
        generation: str,
        *,
        modified_ms: int = 0,
    ) -> None:
        """Make the staged file the local copy of this generation, with its snapshot record, replacing an older copy.

        ``modified_ms``: when the durable file was last modified; 0 if that is not known. Raises Fatal.
        """

    def discard(self) -> None:
        """Delete the file, unless ``keep`` has made it a local copy. Idempotent."""


class LocalCopies(Protocol):
    """Copies on this node's disk, for one process. A crash leaves a copy that verifies, or one that will be removed.

    Local copies are never needed for correctness: after DamagedCopy, Unavailable or Fatal the caller continues with the
    durable store.
    """

    def open_copies(self) -> tuple[CopyRecord, ...]:
        """Make the directory, drop what a crash left, and return the records of the remaining copies.

        Call once, before all else.

        Drops unfinished, torn or unknown records and their files. What cannot be read or dropped now is left out and
        stays. Raises Fatal if nothing can be read.
        """

    def stage(self) -> StagedCopy:
        """Begin to receive a file. Raises Fatal (disk full, no permission)."""

    def find(self, path: StatePath) -> CopyRecord | None:
        """Return the record of the copy of ``path``, or None if there is no copy. Reads memory only, not the disk."""

    def read(self, record: CopyRecord, offset: int, length: int | None) -> Iterator[bytes]:
        """Yield verified bytes, in pieces of at most a block. Dropping the iterator frees its resources.

        At the first block that does not verify, the iterator removes the copy and raises DamagedCopy before it yields
        any byte of that block. The call itself raises Absent (dropped or replaced since ``find``) or DamagedCopy.
        Unavailable may be raised at any time: the copy cannot be read now, and stays.
        """

    def move(self, record: CopyRecord, path: StatePath, generation: str, *, modified_ms: int = 0) -> None:
        """Make the copy a copy of ``path``, because the durable file was renamed. Replaces an older copy of ``path``.

        Does nothing if the copy is gone. Raises Fatal, after which the copy is removed.
        """

    def touch(self, record: CopyRecord) -> None:
        """Note that the copy was used, so that it is evicted later than others. In memory only."""

    def hand_over(self, job_id: JobId, source: AllocationId, target: AllocationId) -> None:
        """Transfer the copies of ``source`` to ``target``, durably."""

    def drop(self, path: StatePath) -> None:
        """Remove the copies at this name and below it. Does nothing if no such copies exist."""

    def drop_allocation(self, job_id: JobId, allocation_id: AllocationId) -> None:
        """Remove all copies that are kept for one allocation (LOC-4)."""

    def drop_job(self, job_id: JobId) -> None:
        """Remove all copies of a job."""

    def records(self) -> tuple[CopyRecord, ...]:
        """Return the records of all copies, least recently used first."""

    def holdings(self, job_id: JobId) -> tuple[Holding, ...]:
        """Return the job's state store partitions with copies here.

        They are recognized by Spark's layout (``state/<operator>/<partition>``).
        """

    def used(self) -> int:
        """Return the bytes of disk that all copies take: the sum of their ``disk_bytes``."""

    def close(self) -> None:
        """Free resources. Idempotent."""
