"""State files, their copies, and who asks for them, as plain data.

A job's state lies below *roots*: durable directories (or object prefixes) named by a location. A file is named by its
root and the path below it. The durable copy is the authority; a *local copy* on the node's disk is a cache of one
*generation* of it.
"""

from __future__ import annotations

import enum

from emberkeep.base.compatible import Compatible
from emberkeep.base.ids import AllocationId, JobId

DRIVER = AllocationId("")
"""Stands for the allocation of a job's driver, which lives in no slot. No copies are kept for it."""


class Caller(Compatible, frozen=True, kw_only=True):
    """On whose behalf a process asks the gateway. ``allocation_id``: of an executor; DRIVER for the driver."""

    job_id: JobId
    attempt: int
    allocation_id: AllocationId


class StatePath(Compatible, frozen=True, kw_only=True):
    """``root``: location of the durable root (absolute path, s3://bucket/prefix, …). ``name``: below it, parts joined
    by "/", "" for the root itself; never absolute, no "." or ".." part, no NUL."""

    root: str
    name: str


class FileKind(enum.Enum):
    FILE = "FILE"
    DIRECTORY = "DIRECTORY"


class FileStatus(Compatible, frozen=True, kw_only=True):
    """What the durable store says of one file or directory.

    ``generation`` changes whenever the bytes under this name are replaced: a name may be written again with other bytes
    (a retried micro-batch does), so a local copy counts for its generation only. "" for directories.
    """

    name: str  # below its root
    kind: FileKind
    length: int  # bytes; 0 for directories
    modified_ms: int
    generation: str


class CopyRecord(Compatible, frozen=True, kw_only=True):
    """The snapshot record of a local copy: which bytes of which generation it must hold, and for whom it is kept."""

    path: StatePath
    job_id: JobId
    allocation_id: AllocationId
    attempt: int
    length: int  # bytes
    generation: str
    modified_ms: int = 0  # of the durable file; 0: not known
    block_size: int  # bytes
    checksums: tuple[int, ...]  # CRC-32C of each block, the last one may be short


def disk_bytes(record: CopyRecord) -> int:
    """What a copy takes on a disk, which gives space in blocks: most state files are much smaller than one."""
    return -(-(record.length + _RECORD_BYTES) // _DISK_BLOCK) * _DISK_BLOCK


_DISK_BLOCK = 4096
_RECORD_BYTES = 512  # of the snapshot record, roughly


class Holding(Compatible, frozen=True, kw_only=True):
    """What a node's disk holds of one state store partition: the newest version decides where its task should run."""

    job_id: JobId
    root: str
    name: str  # directory below the root, e.g. "state/0/3" or "state/0/3/left-keyToNumValues"
    files: int
    size: int  # bytes
    newest_version: int  # of Spark's state store: the largest number in the names of its files
