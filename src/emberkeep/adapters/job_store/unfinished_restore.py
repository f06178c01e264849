"""The record of a restore that has begun. While it exists, no JobManager may lead with the job store.

A restore that was interrupted is run again, and continues. It then uses the same identity for the job store.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from emberkeep.base.compatible import Compatible
from emberkeep.base.decoding import from_json
from emberkeep.base.errors import Damaged, RetryLater
from emberkeep.base.files.durable import decode_record, encode_record, sync_directory, write_file
from emberkeep.base.files.errors import read_if_there

RESTORING = "restoring"  # the name of the file next to ``jobs.sqlite``, and of the node in ZooKeeper
_KIND, _VERSION = "unfinished-restore", 1


class UnfinishedRestore(Compatible, frozen=True, kw_only=True):
    """Persisted (kind "unfinished-restore", version 1).

    ``manifest_sha256``: of the backup that is being restored. ``identity``: of the job store that is being made.
    """

    manifest_sha256: str
    identity: str


def encode_unfinished(restore: UnfinishedRestore) -> bytes:
    return encode_record(_KIND, _VERSION, msgspec.json.encode(restore))


def decode_unfinished(data: bytes, where: str) -> UnfinishedRestore:
    """Return the record. Raises Damaged, NewerFormat."""
    try:
        return from_json(decode_record(data, _KIND, _VERSION, where=where), UnfinishedRestore)
    except msgspec.DecodeError as error:
        raise Damaged(f"{where}: {error}") from None


def read_unfinished(directory: Path) -> UnfinishedRestore | None:
    """Return the record in a JobManager's directory, if any. Raises Unavailable, Damaged, NewerFormat."""
    data = read_if_there(directory / RESTORING) if directory.is_dir() else None
    return None if data is None else decode_unfinished(data, str(directory / RESTORING))


def write_unfinished(directory: Path, restore: UnfinishedRestore) -> None:
    """Write the record. Raises Fatal."""
    write_file(directory / RESTORING, encode_unfinished(restore))


def remove_unfinished(directory: Path) -> None:
    """Remove the record: the restore is complete. Raises OSError."""
    (directory / RESTORING).unlink(missing_ok=True)
    sync_directory(directory)


def require_finished(directory: Path) -> None:
    """Raise RetryLater if a restore into a JobManager's directory has begun and has not ended.

    Also raises what ``read_unfinished`` raises.
    """
    if read_unfinished(directory) is not None:
        raise unfinished(str(directory / RESTORING))


def unfinished(where: str) -> RetryLater:
    """Return the error for a JobManager that finds the record at ``where``."""
    return RetryLater(
        f"a restore from a backup has not ended: {where} exists",
        hint="run `emberkeep backup restore` with the same backup again; it continues where it was interrupted",
    )
