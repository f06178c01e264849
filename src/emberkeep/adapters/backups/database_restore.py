"""Makes the embedded job store of a new cluster from a backup.

The leader's lock is held all the time, so no JobManager can start. The SQLite file gets its name in the last step but
one; before that there is no job store. The record of the unfinished restore is removed in the last one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import sqlite3
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from emberkeep.adapters.backups.database_copy import read_database, translated
from emberkeep.adapters.backups.moved_records import moved_record
from emberkeep.adapters.backups.names import DATABASE
from emberkeep.adapters.backups.reading import BackupReader
from emberkeep.adapters.backups.restored_jobs import RestoredJob, RestoredStore
from emberkeep.adapters.job_store.database_thread import take_lock
from emberkeep.adapters.job_store.graph_files import StateHandle, encode_handle
from emberkeep.adapters.job_store.records import (
    decode_pointers,
    decode_result,
    decode_upgrade,
    encode_attempt,
    encode_pointers,
    encode_result,
    encode_upgrade,
)
from emberkeep.adapters.job_store.unfinished_restore import (
    UnfinishedRestore,
    read_unfinished,
    remove_unfinished,
    write_unfinished,
)
from emberkeep.backups.model import BackupManifest
from emberkeep.backups.moved_places import MovedPlaces
from emberkeep.base.cluster_identity import IDENTITY_FILE, read_drawn_id
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.errors import Conflict
from emberkeep.base.files.durable import sync_directory, write_file
from emberkeep.base.files.errors import cannot_write
from emberkeep.base.ids import JobId


class DatabaseRestore:
    """A new embedded job store below the state directory. All methods block."""

    def __init__(self, layout: StateLayout, reader: BackupReader, manifest: BackupManifest) -> None:
        self._layout = layout
        self._reader = reader
        self._manifest = manifest
        self._path = layout.job_manager / DATABASE
        self._digest = _manifest_digest(reader)

    @property
    def unfinished(self) -> str | None:
        """Identity of the job store that an interrupted restore of this backup was making.

        Raises Conflict if one of another backup was interrupted here.
        """
        found = read_unfinished(self._layout.job_manager)
        if found is not None and found.manifest_sha256 != self._digest:
            raise Conflict(
                f"the restore of another backup was interrupted in {self._layout.job_manager}",
                hint="finish it with that backup, or remove the state directory and begin again",
            )
        return None if found is None else found.identity

    def check(self) -> None:
        """Raise Conflict unless there is no cluster yet, or only the remains of an interrupted restore."""
        with self.locked(makes_directory=False):
            self._check_locked()

    def _check_locked(self) -> None:
        # SQLite would read the log of an earlier store as that of the restored one.
        parts = (self._path.with_name(f"{DATABASE}{suffix}") for suffix in ("", "-wal", "-journal"))
        present = next((path for path in parts if path.exists()), None)
        if self.unfinished is None and present is not None:
            raise Conflict(
                f"there is a job store already: {present}",
                hint="restore into an empty state directory (--state-dir), or move this one away",
            )
        drawn = read_drawn_id(self._layout.root)
        if drawn not in (None, self._manifest.cluster_id):
            raise Conflict(
                f"{self._layout.root} is the state directory of cluster {drawn!r}, the backup is of "
                f"{self._manifest.cluster_id!r}",
                hint="restore into an empty state directory (--state-dir)",
            )

    @contextlib.contextmanager
    def locked(self, *, makes_directory: bool = True) -> Iterator[None]:
        """Hold the leader's lock. Raises Conflict while a JobManager runs."""
        if not makes_directory and not self._layout.job_manager.is_dir():
            yield
            return
        lock = take_lock(self._path.with_name(f"{DATABASE}.lock"))
        try:
            yield
        finally:
            os.close(lock)

    def begin(self) -> str:
        """Record that the restore has begun, and return the identity of the new job store. Hold the lock."""
        self._check_locked()
        identity = self.unfinished
        if identity is None:
            identity = secrets.token_hex(8)
            write_unfinished(
                self._layout.job_manager, UnfinishedRestore(manifest_sha256=self._digest, identity=identity)
            )
        if read_drawn_id(self._layout.root) is None:
            write_file(self._layout.root / IDENTITY_FILE, f"{self._manifest.cluster_id}\n".encode())
        return identity

    def graphs(self, identity: str) -> Path:
        """Return the directory of the new store's graphs."""
        return self._layout.graphs / identity

    def complete(self, store: RestoredStore, now_ms: int) -> None:
        """Write the records, and end the restore. Hold the lock. Raises Fatal, BackupDamaged."""
        if self._path.exists() and read_database(self._path).identity == store.identity:
            remove_unfinished(self._layout.job_manager)  # only this step was missing
            return
        member = next(each for each in self._manifest.members if each.name == DATABASE)
        aside = self._path.with_name(f".{DATABASE}.restored")
        self._reader.extract(member, aside)
        try:
            _edit(aside, store, now_ms)
            with aside.open("rb") as file:
                os.fsync(file.fileno())
            aside.rename(self._path)
            sync_directory(self._path.parent)
            remove_unfinished(self._layout.job_manager)
        except sqlite3.Error as error:
            raise translated(error, aside) from error
        except OSError as error:
            raise cannot_write(self._path, error) from error


def _edit(path: Path, store: RestoredStore, now_ms: int) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        with connection:
            connection.execute("UPDATE store SET graphs = ?, epoch = MAX(epoch + 1, ?)", (store.identity, now_ms))
            connection.execute("INSERT OR REPLACE INTO storage VALUES (1, ?)", (store.storage_id,))
            _move(connection, store.places)
            for job in store.jobs:
                if job.copied.handle is not None:  # else damaged: it stays as it is, and its job fails
                    _continue(connection, job, store.handles)
        connection.execute("PRAGMA journal_mode = DELETE")


def _move(connection: sqlite3.Connection, places: MovedPlaces) -> None:
    """Let the records of all jobs, ended ones too, and of upgrades lead to where their directories are now."""
    for job_id, data in connection.execute("SELECT job_id, pointers FROM checkpoints").fetchall():
        decode = partial(decode_pointers, where=f"the checkpoints of job {job_id}")
        pointers = moved_record(data, decode, places.pointers, encode_pointers)
        connection.execute("UPDATE checkpoints SET pointers = ? WHERE job_id = ?", (pointers, job_id))
    for job_id, data in connection.execute("SELECT job_id, result FROM results").fetchall():
        decode_end = partial(decode_result, where=f"the result of job {job_id}")
        result = moved_record(data, decode_end, places.result, encode_result)
        connection.execute("UPDATE results SET result = ? WHERE job_id = ?", (result, job_id))
    for upgrade_id, data in connection.execute("SELECT upgrade_id, record FROM upgrades").fetchall():
        decode_one = partial(decode_upgrade, where=f"upgrade {upgrade_id}")
        record = moved_record(data, decode_one, places.upgrade, encode_upgrade)
        connection.execute("UPDATE upgrades SET record = ? WHERE upgrade_id = ?", (record, upgrade_id))


def _continue(connection: sqlite3.Connection, job: RestoredJob, handles: Mapping[JobId, StateHandle]) -> None:
    """Write the records with which a job continues."""
    job_id = job.copied.job_id
    ((attempt,),) = connection.execute("SELECT attempt FROM jobs WHERE job_id = ?", (job_id,)).fetchall()
    connection.execute("UPDATE jobs SET attempt = ? WHERE job_id = ?", (encode_attempt(job.attempt, attempt), job_id))
    if job_id in handles:
        connection.execute("UPDATE jobs SET handle = ? WHERE job_id = ?", (encode_handle(handles[job_id]), job_id))
    connection.execute("UPDATE checkpoints SET pointers = ? WHERE job_id = ?", (encode_pointers(job.pointers), job_id))


def _manifest_digest(reader: BackupReader) -> str:
    _, data, _ = reader.manifest()
    return hashlib.sha256(data).hexdigest()
