"""State files, their copies and the processes that ask for them, as plain data.

A job's state is below *roots*: durable directories (or object prefixes), each named by a location. A file is named by
its root and its path below the root. The durable copy is the authority. A *local copy* on the node's disk is a cache of
one *generation* of the file.
"""

from __future__ import annotations

import enum

from emberkeep.base.compatible import Compatible
from emberkeep.base.ids import AllocationId, JobId

DRIVER = AllocationId("")
"""Stands for the allocation of a job's driver, which lives in no slot. No copies are kept for it."""


STANDBY = AllocationId("0" * 32)
"""Stands for a job's reserved standby: owns the copies that were made before the job has a slot on the node."""


class Caller(Compatible, frozen=True, kw_only=True):
    """The job, attempt and allocation for which a process asks the gateway.

    ``allocation_id``: DRIVER for the driver. ``user_id``: the operating system user whose rights the job has; None: the
    gateway's own user.
    """

    job_id: JobId
    attempt: int
    allocation_id: AllocationId
    user_id: int | None = None


class StatePath(Compatible, frozen=True, kw_only=True):
    """Name of a state file or directory.

    ``root``: location of the durable root (absolute path, s3://bucket/prefix, …). ``name``: the path below the root,
    parts joined by "/"; "" for the root itself; never absolute, no part "." or "..", no NUL.
    """

    root: str
    name: str


class FileKind(enum.Enum):
    FILE = "FILE"
    DIRECTORY = "DIRECTORY"


class FileStatus(Compatible, frozen=True, kw_only=True):
    """The status of one file or directory in the durable store.

    ``generation`` changes whenever the bytes under this name are replaced, so a local copy is valid for its generation
    only. A retried micro-batch does write a name again with other bytes. Directories have the generation "".
    """

    name: str  # below its root
    kind: FileKind
    length: int  # bytes; 0 for directories
    modified_ms: int
    generation: str


class CopyRecord(Compatible, frozen=True, kw_only=True):
    """The record at the end of a local copy: which bytes of which file it holds, and which allocation owns it."""

    path: StatePath
    job_id: JobId
    allocation_id: AllocationId
    attempt: int
    length: int  # bytes
    generation: str
    modified_ms: int = 0  # of the durable file; 0: not known
    block_size: int  # bytes
    checksums: tuple[int, ...]  # CRC-32C of each block; the last block may be short


def disk_bytes(record: CopyRecord) -> int:
    """Return the bytes of disk that a copy takes.

    A disk allocates whole blocks, and most state files are much smaller.
    """
    return disk_use(record.length)


def disk_use(length: int) -> int:
    """Return the bytes of disk that a copy of ``length`` bytes takes."""
    return -(-(length + _RECORD_BYTES) // _DISK_BLOCK) * _DISK_BLOCK


_DISK_BLOCK = 4096
_RECORD_BYTES = 512  # of the snapshot record, roughly


class Holding(Compatible, frozen=True, kw_only=True):
    """Copies of one state store partition on a node's disk. The partition's task should run where they are newest."""

    job_id: JobId
    root: str
    name: str  # directory below the root, e.g. "state/0/3" or "state/0/3/left-keyToNumValues"
    files: int
    size: int  # bytes
    newest_version: int  # of Spark's state store: the largest number in the names of its files
