"""Copies the embedded job store's SQLite file while a leader writes to it, and reads the copy.

SQLite copies the file within one read transaction, so the copy has all records as they were at one moment. The leader
is not held up.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path

from emberkeep.adapters.backups.contents import CopiedJob, StoreCopy, readable_upgrades
from emberkeep.adapters.backups.names import DATABASE
from emberkeep.adapters.job_store.graph_files import decode_handle
from emberkeep.adapters.job_store.records import (
    StoredAttempt,
    decode_attempt,
    decode_pointers,
    decode_upgrade,
)
from emberkeep.adapters.job_store.schema import SCHEMA_VERSION, prepare
from emberkeep.adapters.shared_storage.store_origin import origin_of
from emberkeep.base.errors import Absent, Damaged, Fatal, NewerFormat, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.jobs.checkpoints import JobPointers

_BUSY_SECONDS = 10.0


def copy_database(source: Path, target: Path) -> None:
    """Copy the records that ``source`` has now to ``target``, which is replaced; bring the copy to the current schema.

    Raises Absent (no store was ever opened there), NewerFormat, Damaged, RetryLater, Fatal.
    """
    if not source.exists():
        raise Absent(
            f"there is no job store {source}",
            hint="run this on the JobManager's machine, as its user and with its settings",
        )
    target.unlink(missing_ok=True)
    os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        with (
            contextlib.closing(sqlite3.connect(f"{source.as_uri()}?mode=ro", uri=True, timeout=_BUSY_SECONDS)) as now,
            contextlib.closing(sqlite3.connect(target)) as copy,
        ):
            (version,) = now.execute("PRAGMA user_version").fetchone()
            if version > SCHEMA_VERSION:
                raise NewerFormat(
                    f"{source}: job store version {version} was written by a newer release",
                    hint="make the backup with that release",
                )
            # Within a read transaction no other connection can make the copy begin again or wait.
            now.execute("BEGIN")
            now.execute("SELECT epoch FROM store").fetchone()
            now.backup(copy)
        with contextlib.closing(sqlite3.connect(target, isolation_level=None)) as copy:
            _prepare(copy, target, source)
            copy.execute("PRAGMA journal_mode = DELETE")  # everything is in one file
    except sqlite3.Error as error:
        raise translated(error, source) from error
    for left in target.parent.glob(f"{target.name}.version-*"):
        left.unlink()  # what ``prepare`` kept of an earlier schema


def _prepare(copy: sqlite3.Connection, target: Path, source: Path) -> None:
    try:
        prepare(copy, target)
    except Damaged as error:
        raise Damaged(
            f"{source}: damaged: {error.message.removeprefix(f'{target}: damaged: ')}",
            hint="keep the file and the newest sound backup; running jobs continue, so do not restart the JobManager",
        ) from None


def translated(error: sqlite3.Error, path: Path) -> Damaged | RetryLater | Fatal:
    """Return SQLite's error as ours."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return RetryLater(f"{path} is in use by another program", hint="try again in a second")
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return Damaged(f"{path}: damaged: {error}")
    return Fatal(f"{path}: {error}", hint="check free space and permissions of that directory")


def read_database(path: Path, addresses: tuple[str, ...] = ()) -> StoreCopy:
    """Return the records in a copy, which is not changed. Raises Damaged, NewerFormat, Fatal."""
    try:
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as copy:
            (state,) = copy.execute("PRAGMA quick_check(1)").fetchone()
            if state != "ok":
                raise Damaged(f"{path}: damaged: {state}")
            ((epoch, identity),) = copy.execute("SELECT epoch, graphs FROM store")
            kept = copy.execute("SELECT place_id FROM storage").fetchall()
            pointers = dict(copy.execute("SELECT job_id, pointers FROM checkpoints"))
            rows = copy.execute("SELECT job_id, handle, attempt FROM jobs ORDER BY position").fetchall()
            rows_of_upgrades = copy.execute("SELECT upgrade_id, record FROM upgrades").fetchall()
    except sqlite3.Error as error:
        raise translated(error, path) from error
    except ValueError as error:
        raise Damaged(f"{path}: damaged: {error}") from error
    upgrades, unreadable = readable_upgrades(
        ((f"upgrade {upgrade_id}", data) for upgrade_id, data in rows_of_upgrades),
        lambda data, where: decode_upgrade(data, where=where),
    )
    return StoreCopy(
        member=DATABASE,
        identity=str(identity),
        storage_id=origin_of(str(identity), str(kept[0][0]) if kept else "").storage,
        epoch=int(epoch),
        jobs=tuple(_job(JobId(job_id), handle, attempt, pointers.get(job_id)) for job_id, handle, attempt in rows),
        upgrades=upgrades,
        unreadable=unreadable,
        addresses=addresses,
    )


def _job(job_id: JobId, handle: bytes, attempt: bytes, pointers: bytes | None) -> CopiedJob:
    """Return a job's records. Raises NewerFormat; a damaged record becomes the job's problem."""
    try:
        return CopiedJob(
            job_id=job_id,
            handle=decode_handle(handle, where=f"the handle of job {job_id}"),
            attempt=decode_attempt(attempt, where=f"the attempt of job {job_id}"),
            pointers=JobPointers()
            if pointers is None
            else decode_pointers(pointers, where=f"the checkpoints of job {job_id}"),
        )
    except NewerFormat:
        raise
    except Fatal as error:
        return CopiedJob(job_id=job_id, handle=None, attempt=StoredAttempt(attempt=0), problem=error.message)
