"""Attempts in the embedded store's file: a column in the table of the jobs that have to be recovered."""

from __future__ import annotations

import sqlite3

from emberkeep.adapters.job_store.fenced_file import FencedFile
from emberkeep.adapters.job_store.records import StoredAttempt, decode_attempt, encode_attempt
from emberkeep.base.errors import Absent
from emberkeep.base.ids import JobId


class AttemptTable:
    """Table of attempts. Each write is part of a leader's transaction, whose connection the caller passes."""

    def __init__(self, file: FencedFile) -> None:
        self._file = file

    def read(self, job_id: JobId) -> StoredAttempt:
        """Return a job's attempt. Raises Absent if the job has no handle, Fatal."""
        return self.decode(job_id, self._stored(job_id))

    def newest(self, job_id: JobId, attempt: int) -> StoredAttempt:
        """Return a job's attempt. Raises Conflict unless ``attempt`` is the newest one, and what ``read`` raises."""
        stored = self.read(job_id)
        stored.require_newest(job_id, attempt)
        return stored

    def write(self, connection: sqlite3.Connection, job_id: JobId, record: StoredAttempt) -> None:
        """Replace a job's attempt. Fields that a newer release wrote are kept."""
        data = encode_attempt(record, self._stored(job_id))
        connection.execute("UPDATE jobs SET attempt = ? WHERE job_id = ?", (data, job_id))

    def decode(self, job_id: JobId, data: bytes) -> StoredAttempt:
        return decode_attempt(data, where=self._file.where("attempt", job_id))

    def _stored(self, job_id: JobId) -> bytes:
        rows: list[tuple[bytes]] = self._file.read("SELECT attempt FROM jobs WHERE job_id = ?", job_id)
        if not rows:
            raise Absent(f"job {job_id} has no handle")
        return rows[0][0]
