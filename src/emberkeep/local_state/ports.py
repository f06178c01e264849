"""What the state gateway needs from outside: the durable store of each root, and copies on this node's disk.

Methods block; they are called from worker threads, any number at once, unless said otherwise. Names are those of
``StatePath.name``; one that is absolute or holds "." or ".." raises InvalidInput everywhere. Durable means: still there
after a power loss when the call has returned.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from emberkeep.base.ids import AllocationId, JobId
from emberkeep.local_state.model import CopyRecord, FileStatus, Holding, StatePath


class DurableState(Protocol):
    """The durable files of one root: a shared directory or an object store. Readers see all of a file or nothing of it.

    Raises RetryLater (it does not answer), UnknownOutcome (a change whose answer was lost), Fatal (it refuses: no
    space, no permission), beside what each method says.
    """

    @property
    def location(self) -> str:
        """The root, for messages; holds no secret."""

    def status(self, name: str) -> FileStatus:
        """Raises Absent."""

    def listing(self, name: str) -> tuple[FileStatus, ...]:
        """The entries of a directory, by name. A file: itself alone. Raises Absent."""

    def make_directory(self, name: str) -> None:
        """With its parents. Already there: fine. Raises NotADirectory."""

    def create(self, name: str, source: Path, *, overwrite: bool) -> FileStatus:
        """Store a copy of the complete file ``source``, atomically and durably; parents are made. Returns its status.

        A hidden temporary name (``.….tmp``, as Spark makes them) may be durable only once it is renamed.
        Of several callers with ``overwrite`` false exactly one succeeds, on whatever nodes they are. Raises Exists
        (``overwrite`` false: a file or a directory), IsADirectory (``overwrite`` true), NotADirectory.
        """

    def read(self, name: str, offset: int, length: int | None) -> tuple[FileStatus, Iterator[bytes]]:
        """The bytes from ``offset`` on (``length`` None: to the end), all of the one generation that the status names.

        The iterator raises RetryLater when the generation is replaced under it; dropping it frees what it holds.
        ``offset`` beyond the end: no bytes. Raises Absent, IsADirectory.
        """

    def rename(self, source: str, target: str, *, overwrite: bool) -> FileStatus:
        """Move a file or directory; returns the status at ``target``. Parents of ``target`` are not made.

        Of several callers with one target and ``overwrite`` false exactly one succeeds; a file is at no moment absent
        under both names. A file keeps its generation in a directory, not in an object store. An object store has no
        directories to move: Fatal. Raises Absent (no source, no parent of target), Exists (also: a directory with
        entries), IsADirectory, NotADirectory, Conflict (a directory into itself).
        """

    def delete(self, name: str, *, recursive: bool) -> bool:
        """False: was not there. A file may be there again after a power loss. Raises NotEmpty."""

    def close(self) -> None:
        """Idempotent."""


class StagedCopy(Protocol):
    """A file that is being received: bytes go in once, in order. Not safe for several threads at once."""

    @property
    def path(self) -> Path:
        """Complete and readable after ``finish``; the durable store copies from it."""

    def write(self, data: bytes) -> None:
        """Raises Fatal (disk full, …); the caller discards it then."""

    def finish(self) -> int:
        """No more bytes come; returns their number. Not durable yet. Idempotent."""

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
        """Make it the local copy of this generation, with its snapshot record; replaces an older one.

        ``modified_ms``: of the durable file; 0: not known. Raises Fatal.
        """

    def discard(self) -> None:
        """Drop it where it was not kept. Idempotent."""


class LocalCopies(Protocol):
    """Copies on this node's disk, for one process. A crash leaves a copy that verifies, or one that is removed.

    Local copies are never needed for correctness: whoever gets DamagedCopy, Unavailable or Fatal goes on with the
    durable store.
    """

    def open_copies(self) -> tuple[CopyRecord, ...]:
        """Make the directory, drop what a crash left (unfinished, torn or unknown records and their files), and return
        the rest. Call once, before all else. What cannot be read or dropped now is left out, and stays. Raises Fatal:
        nothing can be read."""

    def stage(self) -> StagedCopy:
        """Raises Fatal (disk full, no permission)."""

    def find(self, path: StatePath) -> CopyRecord | None:
        """From memory: no disk access."""

    def read(self, record: CopyRecord, offset: int, length: int | None) -> Iterator[bytes]:
        """Bytes whose blocks all verify, in pieces of at most a block; dropping the iterator frees what it holds.

        The iterator raises DamagedCopy at the first block that does not verify, before it yields any byte of it, and
        has removed the copy then. Raises at once Absent (dropped or replaced since ``find``), DamagedCopy. Raises
        Unavailable at any time: the copy cannot be read now, and stays.
        """

    def move(self, record: CopyRecord, path: StatePath, generation: str, *, modified_ms: int = 0) -> None:
        """The durable file was renamed: its copy is one of ``path`` from now on, in the place of what was kept for
        that. One that is gone is fine. Raises Fatal; the copy is removed then."""

    def touch(self, record: CopyRecord) -> None:
        """It was used: it is evicted later than others. From memory."""

    def hand_over(self, job_id: JobId, source: AllocationId, target: AllocationId) -> None:
        """What ``source`` held belongs to ``target`` from now on, durably."""

    def drop(self, path: StatePath) -> None:
        """Remove the copies at this name and below it. What is not there is fine."""

    def drop_allocation(self, job_id: JobId, allocation_id: AllocationId) -> None:
        """Remove what is kept for one allocation (LOC-4)."""

    def drop_job(self, job_id: JobId) -> None:
        """Remove everything of a job."""

    def records(self) -> tuple[CopyRecord, ...]:
        """All copies, least recently used first."""

    def holdings(self, job_id: JobId) -> tuple[Holding, ...]:
        """State store partitions of a job with copies here, by Spark's layout (``state/<operator>/<partition>``)."""

    def used(self) -> int:
        """Bytes of disk that all copies take: the sum of their ``disk_bytes``."""

    def close(self) -> None:
        """Idempotent."""
