"""Pointers to checkpoints and savepoints in the embedded store's file: one row per job, from its first report."""

from __future__ import annotations

import sqlite3

import structlog

from emberkeep.adapters.job_store.fenced_file import FencedFile
from emberkeep.adapters.job_store.records import decode_pointers, encode_pointers
from emberkeep.base.errors import Fatal, NewerFormat
from emberkeep.base.ids import JobId
from emberkeep.jobs.checkpoints import JobPointers, QueryCheckpoint, SavepointPointer, after_retention, merged

_log = structlog.get_logger(__name__)


class PointerTable:
    """Table of pointers. Each write is part of a leader's transaction, whose connection the caller passes."""

    def __init__(self, file: FencedFile) -> None:
        self._file = file

    def merge(
        self,
        connection: sqlite3.Connection,
        job_id: JobId,
        attempt: int,
        queries: tuple[QueryCheckpoint, ...],
        savepoints: tuple[SavepointPointer, ...],
    ) -> JobPointers:
        """Merge the newest attempt's report into the job's pointers; return all pointers. Raises Fatal."""
        known = self._read(job_id)
        return self._replace(connection, job_id, known, merged(known, attempt, queries, savepoints))

    def retain(
        self,
        connection: sqlite3.Connection,
        job_id: JobId,
        retired: frozenset[str],
        gone: frozenset[str],
        retired_ms: int,
    ) -> JobPointers:
        """Mark and forget periodic savepoints, see JobStore; return all pointers. Raises Fatal."""
        known = self._read(job_id)
        return self._replace(connection, job_id, known, after_retention(known, retired, gone, retired_ms))

    def _replace(
        self, connection: sqlite3.Connection, job_id: JobId, known: JobPointers, pointers: JobPointers
    ) -> JobPointers:
        if pointers is not known:
            record = (job_id, encode_pointers(pointers, self._stored(job_id)))
            connection.execute("INSERT OR REPLACE INTO checkpoints VALUES (?, ?)", record)
        return pointers

    def remove(self, connection: sqlite3.Connection, job_id: JobId) -> None:
        connection.execute("DELETE FROM checkpoints WHERE job_id = ?", (job_id,))

    def readable(self, job_id: JobId) -> JobPointers | None:
        """Return the job's pointers, empty if it has none; None if they cannot be read. Raises NewerFormat."""
        try:
            return self._read(job_id)
        except NewerFormat:
            raise
        except Fatal as error:
            _log.error("job_checkpoints_unreadable", job=job_id, reason=str(error))
            return None

    def has(self, job_id: JobId) -> bool:
        """True if the job has pointers, even if they cannot be read."""
        return self._stored(job_id) is not None

    def _read(self, job_id: JobId) -> JobPointers:
        data = self._stored(job_id)
        return JobPointers() if data is None else decode_pointers(data, where=self._file.where("checkpoints", job_id))

    def _stored(self, job_id: JobId) -> bytes | None:
        rows: list[tuple[bytes]] = self._file.read("SELECT pointers FROM checkpoints WHERE job_id = ?", job_id)
        return rows[0][0] if rows else None
