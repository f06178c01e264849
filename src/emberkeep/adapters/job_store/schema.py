"""The tables of the embedded store's SQLite file, and the migration from earlier schemas.

A file with an earlier schema is first copied in the same directory, then changed in one transaction. A crash at any
point leaves it in the old schema or in the new one. A file with a newer schema is left as it is.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import structlog

from emberkeep.adapters.shared_storage.store_origin import kept_first
from emberkeep.base.errors import Damaged, Fatal, NewerFormat
from emberkeep.base.files.durable import sync_directory

SCHEMA_VERSION = 3

_CHECKPOINTS = "CREATE TABLE checkpoints (job_id TEXT NOT NULL UNIQUE, pointers BLOB NOT NULL)"
_BLOCKLIST = "CREATE TABLE blocklist (id INTEGER PRIMARY KEY CHECK (id = 1), list BLOB NOT NULL)"
# At most one row: the storage that this store was used with. The schema version does not cover this table: the previous
# release ignores it, so that it can be started again on this file.
_STORAGE = "CREATE TABLE storage (id INTEGER PRIMARY KEY CHECK (id = 1), place_id TEXT NOT NULL)"

# At most one row. The schema version does not cover this table, for the same reason.
_TOKENS = "CREATE TABLE IF NOT EXISTS tokens (id INTEGER PRIMARY KEY CHECK (id = 1), list BLOB NOT NULL)"

# One row for each upgrade. The schema version does not cover this table, for the same reason.
_UPGRADES = "CREATE TABLE IF NOT EXISTS upgrades (upgrade_id TEXT NOT NULL UNIQUE, record BLOB NOT NULL)"

# The time since which a row of ``damaged`` is kept, by this machine's clock. The schema version does not cover it, for
# the same reason. A column of ``damaged`` would break the statement by which the previous release writes a row there.
_DAMAGED_SINCE = """CREATE TABLE IF NOT EXISTS damaged_since (
    job_id TEXT NOT NULL UNIQUE,
    since_ms INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))
)"""
# The period of rows that an older release wrote without a time begins now.
_SINCE_NOW = "INSERT OR IGNORE INTO damaged_since (job_id) SELECT job_id FROM damaged"

# AUTOINCREMENT keeps the order of submission and of ending, even after rows were removed.
_TABLES = (
    "CREATE TABLE store (epoch INTEGER NOT NULL, graphs TEXT NOT NULL)",
    """CREATE TABLE jobs (
        position INTEGER PRIMARY KEY AUTOINCREMENT,
        job_id TEXT NOT NULL UNIQUE,
        idempotency_key TEXT NOT NULL,
        handle BLOB NOT NULL,
        attempt BLOB NOT NULL
    )""",
    "CREATE UNIQUE INDEX jobs_by_key ON jobs (idempotency_key) WHERE idempotency_key <> ''",
    """CREATE TABLE results (
        position INTEGER PRIMARY KEY AUTOINCREMENT,
        job_id TEXT NOT NULL UNIQUE,
        idempotency_key TEXT NOT NULL,
        result BLOB NOT NULL
    )""",
    "CREATE INDEX results_by_key ON results (idempotency_key) WHERE idempotency_key <> ''",
    # Records of jobs that ended while these were damaged, kept for inspection.
    "CREATE TABLE damaged (job_id TEXT NOT NULL UNIQUE, handle BLOB NOT NULL, attempt BLOB NOT NULL)",
    # A row outlives its job only if it could not be read. It is then kept as long as the job's row in ``damaged``.
    _CHECKPOINTS,
    # At most one row.
    _BLOCKLIST,
)

# Statements that lead from a version to the next. The records in the rows carry versions of their own.
_STEPS: dict[int, tuple[str, ...]] = {1: (_CHECKPOINTS,), 2: (_BLOCKLIST,)}

_log = structlog.get_logger(__name__)


def prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Create the tables or migrate them to the current schema, and check that the file is sound.

    Only the holder of the leader's lock may call this. Raises NewerFormat (nothing is changed then), Damaged, Fatal,
    sqlite3.Error.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA_VERSION:
        raise NewerFormat(
            f"{path}: job store version {version} was written by a newer release",
            hint=f"this release reads up to version {SCHEMA_VERSION}: start the newer release again",
        )
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise Fatal(f"{path}: this file system does not support write-ahead logging", hint="use a local file system")
    connection.execute("PRAGMA synchronous = FULL")
    if version == 0:
        with _changing(connection, SCHEMA_VERSION):
            for statement in _TABLES:
                connection.execute(statement)
            connection.execute("INSERT INTO store VALUES (0, ?)", (secrets.token_hex(8),))
        sync_directory(path.parent)
    (state,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if state != "ok":
        raise Damaged(f"{path}: damaged: {state}", hint="keep the file, and restore a copy in its place")
    if 0 < version < SCHEMA_VERSION:
        _migrate(connection, path, version)
    _keep_storage(connection)
    connection.execute(_TOKENS)
    connection.execute(_UPGRADES)
    connection.execute(_DAMAGED_SINCE)
    connection.execute(_SINCE_NOW)


def _keep_storage(connection: sqlite3.Connection) -> None:
    """Create the table that names the store's storage, if missing. Record whether an older release was leader here."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'storage'").fetchone():
        return
    with _changing(connection, SCHEMA_VERSION):
        ((epoch,),) = connection.execute("SELECT epoch FROM store")
        connection.execute(_STORAGE)
        connection.execute("INSERT INTO storage VALUES (1, ?)", (kept_first(was_led=epoch > 0),))


def _migrate(connection: sqlite3.Connection, path: Path, version: int) -> None:
    if any(step not in _STEPS for step in range(version, SCHEMA_VERSION)):
        raise Fatal(
            f"{path}: job store version {version} is too old for this release",
            hint="upgrade through the releases in between, one after the other",
        )
    copy = path.with_name(f"{path.name}.version-{version}")
    _copy(connection, copy)
    with _changing(connection, SCHEMA_VERSION):
        for step in range(version, SCHEMA_VERSION):
            for statement in _STEPS[step]:
                connection.execute(statement)
    _log.info("job_store_migrated", path=str(path), was=version, now=SCHEMA_VERSION, copy=str(copy))


def _copy(connection: sqlite3.Connection, copy: Path) -> None:
    """Write a durable copy of the whole database to ``copy``. Raises Fatal."""
    temporary = copy.with_name(f".{copy.name}.tmp")
    try:
        temporary.unlink(missing_ok=True)
        os.close(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        with contextlib.closing(sqlite3.connect(temporary)) as target:
            connection.backup(target)
        descriptor = os.open(temporary, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.rename(copy)
        sync_directory(copy.parent)
    except OSError as error:
        raise Fatal(
            f"cannot write {copy}, the copy of the job store before its upgrade: {error.strerror or error}",
            hint="check free space and permissions of that directory; the job store is unchanged",
        ) from error


@contextlib.contextmanager
def _changing(connection: sqlite3.Connection, version: int) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute(f"PRAGMA user_version = {version}")
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
