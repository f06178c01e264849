"""The embedded store's SQLite file: handles, attempts, pointers, results, blocklist, and the epoch that fences writes.

Each change is one transaction that begins with a check of the epoch. With WAL and synchronous=FULL, an acknowledged
change is on disk. Every value is a record with version and checksum, since SQLite itself detects no flipped bit.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import structlog

from emberkeep.adapters.job_store.graph_files import GraphFiles, StateHandle, decode_handle, encode_handle
from emberkeep.adapters.job_store.records import (
    StoredAttempt,
    decode_attempt,
    decode_blocklist,
    decode_pointers,
    decode_result,
    encode_attempt,
    encode_blocklist,
    encode_pointers,
    encode_result,
    is_same_end,
)
from emberkeep.adapters.job_store.schema import prepare
from emberkeep.adapters.job_store.stored_jobs import stored_job
from emberkeep.adapters.shared_storage.store_origin import StoreOrigin, origin_of
from emberkeep.base.errors import Absent, Conflict, EmberkeepError, Fatal, NewerFormat, RetryLater, UnknownOutcome
from emberkeep.base.ids import JobId
from emberkeep.blocklist.model import Blocklist
from emberkeep.jobs.checkpoints import JobPointers, QueryCheckpoint, SavepointPointer, merged
from emberkeep.jobs.damaged_leftovers import DamagedJob
from emberkeep.jobs.model import DriverHome, JobGraph, JobResult
from emberkeep.jobs.ports import StoredJob, Trouble
from emberkeep.lifecycle.model import ProcedureRequest

BLOCKLIST_KEPT = "blocklist"  # instead of a job id: the row of ``damaged`` that keeps an unreadable blocklist
_BUSY_SECONDS = 5.0

_log = structlog.get_logger(__name__)


class JobDatabase:
    """The open file. All methods block, and only one thread may call them."""

    def __init__(self, path: Path, graph_dir: Path, now_ms: int) -> None:
        """Open the file, create it if there is none, and raise the epoch, at least to ``now_ms``.

        Raises Fatal, RetryLater, UnknownOutcome.
        """
        self._path = path
        self._connection = _connect(path)
        try:
            # Each store has its own directory of graphs, so that it does not treat another store's graphs as orphans.
            self.epoch, self.lineage = self._raise_epoch(now_ms)
            self._graphs = GraphFiles(graph_dir / self.lineage)
            self._graphs.sweep_unfinished()
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        self._connection.close()

    def _raise_epoch(self, now_ms: int) -> tuple[int, str]:
        """Raise the epoch, and return it with the store's lineage. The epoch grows whatever the clock says.

        ``now_ms`` matters in a file that was restored from an older copy: it raises the epoch above those that task
        managers and drivers know from earlier leaders. Otherwise they would refuse this leader.
        """
        with self._transaction():
            self._connection.execute("UPDATE store SET epoch = MAX(epoch + 1, ?)", (now_ms,))
            epoch, graphs = self._connection.execute("SELECT epoch, graphs FROM store").fetchone()
        return int(epoch), str(graphs)

    # --- the storage that belongs to it ------------------------------------------------------------------------------

    def origin(self) -> StoreOrigin:
        kept = self._read("SELECT place_id FROM storage")
        return origin_of(self.lineage, str(kept[0][0]) if kept else "")

    def bind_storage(self, place_id: str) -> None:
        with self._leading() as connection:
            connection.execute("INSERT OR REPLACE INTO storage VALUES (1, ?)", (place_id,))

    # --- operations, as the port describes them -----------------------------------------------------------------------

    def confirm(self) -> None:
        """Check that this leader can write.

        Raises Conflict if a newer leader has opened the store, Fatal if the file cannot be written.
        """
        with self._leading() as connection:
            # Two changes that cancel out, because SQLite writes nothing for an update that changes no value.
            connection.execute("UPDATE store SET epoch = epoch + 1")
            connection.execute("UPDATE store SET epoch = epoch - 1")

    def create(self, graph: JobGraph) -> JobId:
        written = False
        try:
            with self._leading() as connection:
                known = self._known(graph)
                if known is not None:
                    return known
                written = True
                handle = self._graphs.write(graph)
                attempt = encode_attempt(StoredAttempt(attempt=0))
                connection.execute(
                    "INSERT INTO jobs (job_id, idempotency_key, handle, attempt) VALUES (?, ?, ?, ?)",
                    (graph.job_id, graph.idempotency_key, encode_handle(handle), attempt),
                )
        except UnknownOutcome:
            raise
        except EmberkeepError:
            if written:
                self._graphs.discard(graph.job_id)
            raise
        return graph.job_id

    def _known(self, graph: JobGraph) -> JobId | None:
        """Return the job that was created for this graph before, or None. Raises Conflict if its id is in use."""
        if graph.idempotency_key:
            both = "SELECT job_id FROM {} WHERE idempotency_key = ?"
            for table in ("jobs", "results"):
                for (job_id,) in self._read(both.format(table), graph.idempotency_key):
                    return JobId(job_id)
        for (handle,) in self._read("SELECT handle FROM jobs WHERE job_id = ?", graph.job_id):
            if self._graphs.read(graph.job_id, self._decode_handle(graph.job_id, handle)) == graph:
                return graph.job_id
            raise Conflict(f"job {graph.job_id} exists with another graph")
        if self._read("SELECT 1 FROM results WHERE job_id = ?", graph.job_id):
            raise Conflict(f"job {graph.job_id} has ended", hint="submit it under a new id")
        if self._read("SELECT 1 FROM damaged WHERE job_id = ?", graph.job_id):
            raise Conflict(f"what is left of a damaged job {graph.job_id} is kept", hint="submit it under a new id")
        return None

    def recover(self) -> list[StoredJob]:
        rows = self._read("SELECT job_id, handle, attempt, idempotency_key FROM jobs ORDER BY position")
        return [self._recovered(JobId(job_id), handle, attempt, key) for job_id, handle, attempt, key in rows]

    def recover_job(self, job_id: JobId) -> StoredJob | None:
        for stored in self._read("SELECT handle, attempt, idempotency_key FROM jobs WHERE job_id = ?", job_id):
            return self._recovered(job_id, *stored)
        return None

    def _recovered(self, job_id: JobId, handle: bytes, attempt: bytes, key: str = "") -> StoredJob:
        return stored_job(
            job_id,
            lambda: self._decode_attempt(job_id, attempt),
            lambda: self._graphs.read(job_id, self._decode_handle(job_id, handle)),
            key=key,
            pointers=self._readable_pointers(job_id) or JobPointers(),
        )

    def record_attempt(self, job_id: JobId, attempt: int, home: DriverHome | None) -> None:
        with self._leading():
            stored = self._attempt_of(job_id)
            if attempt <= stored.attempt:
                raise Conflict(f"attempt {attempt} of job {job_id} is not larger than {stored.attempt}")
            self._write_attempt(job_id, stored.next_attempt(attempt, home))

    def record_cancel(self, job_id: JobId) -> None:
        with self._leading():
            self._write_attempt(job_id, msgspec.structs.replace(self._attempt_of(job_id), canceled=True))

    def record_procedure(self, job_id: JobId, request: ProcedureRequest | None) -> None:
        with self._leading():
            self._write_attempt(job_id, msgspec.structs.replace(self._attempt_of(job_id), procedure=request))

    def record_procedure_end(
        self, job_id: JobId, attempt: int, trigger_id: str, savepoint: SavepointPointer | None, stopped: bool
    ) -> JobPointers:
        with self._leading() as connection:
            stored = self._attempt_of(job_id)
            pointers = self._merge_pointers(connection, stored, job_id, attempt, (), (savepoint,) if savepoint else ())
            self._write_attempt(job_id, stored.procedure_ended(trigger_id, stopped=stopped))
        return pointers

    def _attempt_of(self, job_id: JobId) -> StoredAttempt:
        return self._decode_attempt(job_id, self._stored_attempt(job_id))

    def _stored_attempt(self, job_id: JobId) -> bytes:
        rows: list[tuple[bytes]] = self._read("SELECT attempt FROM jobs WHERE job_id = ?", job_id)
        if not rows:
            raise Absent(f"job {job_id} has no handle")
        return rows[0][0]

    def _write_attempt(self, job_id: JobId, record: StoredAttempt) -> None:
        data = encode_attempt(record, self._stored_attempt(job_id))
        self._connection.execute("UPDATE jobs SET attempt = ? WHERE job_id = ?", (data, job_id))

    def record_checkpoints(
        self,
        job_id: JobId,
        attempt: int,
        queries: tuple[QueryCheckpoint, ...],
        savepoints: tuple[SavepointPointer, ...],
    ) -> JobPointers:
        with self._leading() as connection:
            return self._merge_pointers(connection, self._attempt_of(job_id), job_id, attempt, queries, savepoints)

    def _merge_pointers(
        self,
        connection: sqlite3.Connection,
        stored: StoredAttempt,
        job_id: JobId,
        attempt: int,
        queries: tuple[QueryCheckpoint, ...],
        savepoints: tuple[SavepointPointer, ...],
    ) -> JobPointers:
        if attempt != stored.attempt:
            raise Conflict(f"attempt {attempt} of job {job_id} is not the newest one, which is {stored.attempt}")
        known = self._pointers(job_id)
        pointers = merged(known, attempt, queries, savepoints)
        if pointers is not known:
            record = (job_id, encode_pointers(pointers, self._stored_pointers(job_id)))
            connection.execute("INSERT OR REPLACE INTO checkpoints VALUES (?, ?)", record)
        return pointers

    def record_result(self, result: JobResult) -> None:
        job_id = result.job_id
        with self._leading() as connection:
            for (known,) in self._read("SELECT result FROM results WHERE job_id = ?", job_id):
                if is_same_end(self._decode_result(job_id, known), result):
                    return
                raise Conflict(f"job {job_id} has ended with another result")
            rows = self._read("SELECT handle, attempt FROM jobs WHERE job_id = ?", job_id)
            if not rows:
                raise Absent(f"job {job_id} has no handle")
            is_kept = self._recovered(job_id, *rows[0]).trouble is Trouble.DAMAGED
            if is_kept:
                connection.execute("INSERT INTO damaged VALUES (?, ?, ?)", (job_id, *rows[0]))
                connection.execute("INSERT OR REPLACE INTO damaged_since (job_id) VALUES (?)", (job_id,))
            pointers = self._readable_pointers(job_id)
            if pointers is not None:  # unreadable pointers are kept for inspection
                connection.execute("DELETE FROM checkpoints WHERE job_id = ?", (job_id,))
                result = msgspec.structs.replace(result, savepoints=pointers.savepoints)
            connection.execute("DELETE FROM jobs WHERE job_id = ?", (job_id,))
            connection.execute(
                "INSERT INTO results (job_id, idempotency_key, result) VALUES (?, ?, ?)",
                (job_id, result.idempotency_key, encode_result(result)),
            )
        if not is_kept:
            self._graphs.discard(job_id)

    def results(self) -> list[JobResult]:
        found = []
        for job_id, result in self._read("SELECT job_id, result FROM results ORDER BY position"):
            try:
                found.append(self._decode_result(JobId(job_id), result))
            except NewerFormat:
                raise
            except Fatal as error:
                _log.error("job_result_unreadable", job=job_id, reason=str(error))
        return found

    def expire_results(self, keep: int) -> list[JobId]:
        with self._leading() as connection:
            rows = self._read("SELECT job_id FROM results ORDER BY position DESC LIMIT -1 OFFSET ?", keep)
            connection.executemany("DELETE FROM results WHERE job_id = ?", rows)
            for unread in (row for row in rows if self._stored_pointers(row[0]) is not None):
                connection.execute("INSERT OR IGNORE INTO damaged VALUES (?, x'', x'')", unread)
                connection.execute("INSERT OR IGNORE INTO damaged_since (job_id) VALUES (?)", unread)
        return [JobId(job_id) for (job_id,) in reversed(rows)]

    def damaged(self) -> list[DamagedJob]:
        rows = self._read(
            "SELECT job_id, since_ms FROM damaged JOIN damaged_since USING (job_id) WHERE job_id <> ? "
            "ORDER BY since_ms, job_id",
            BLOCKLIST_KEPT,
        )
        return [DamagedJob(job_id=job_id, since_ms=since_ms, places=self._places(job_id)) for job_id, since_ms in rows]

    def _places(self, job_id: JobId) -> tuple[str, ...]:
        """Return where the records of a damaged job are stored."""
        tables = ("damaged",) if self._stored_pointers(job_id) is None else ("damaged", "checkpoints")
        return (*(f"{self._path}, table {table}" for table in tables), *self._graphs.of_job(job_id))

    def remove_damaged(self, job_id: JobId) -> None:
        with self._leading() as connection:
            if self._read("SELECT 1 FROM damaged WHERE job_id = ?", job_id):
                self._graphs.remove_job(job_id)
                connection.execute("DELETE FROM checkpoints WHERE job_id = ?", (job_id,))
            connection.execute("DELETE FROM damaged WHERE job_id = ?", (job_id,))
            connection.execute("DELETE FROM damaged_since WHERE job_id = ?", (job_id,))

    def graphs_without_handle(self) -> dict[JobId, list[str]]:
        kept = self._read("SELECT job_id FROM jobs UNION SELECT job_id FROM damaged")
        return self._graphs.without_handle({job_id for (job_id,) in kept})

    def remove_graph(self, job_id: JobId) -> None:
        with self._leading():
            for name in self.graphs_without_handle().get(job_id, ()):
                self._graphs.discard_file(name)

    def record_blocklist(self, blocklist: Blocklist) -> None:
        with self._leading() as connection:
            before = self._stored_blocklist()
            if before is not None and not _is_readable(before):
                connection.execute("INSERT OR IGNORE INTO damaged VALUES (?, ?, ?)", (BLOCKLIST_KEPT, before, b""))
            data = encode_blocklist(blocklist, before)
            connection.execute("INSERT OR REPLACE INTO blocklist VALUES (1, ?)", (data,))

    def blocklist(self) -> Blocklist:
        data = self._stored_blocklist()
        return Blocklist() if data is None else decode_blocklist(data, where=f"{self._path}, blocklist")

    def _stored_blocklist(self) -> bytes | None:
        rows: list[tuple[bytes]] = self._read("SELECT list FROM blocklist")
        return rows[0][0] if rows else None

    # --- records ------------------------------------------------------------------------------------------------------

    def _decode_handle(self, job_id: JobId, data: bytes) -> StateHandle:
        return decode_handle(data, where=f"{self._path}, handle of job {job_id}")

    def _decode_attempt(self, job_id: JobId, data: bytes) -> StoredAttempt:
        return decode_attempt(data, where=f"{self._path}, attempt of job {job_id}")

    def _decode_result(self, job_id: JobId, data: bytes) -> JobResult:
        return decode_result(data, where=f"{self._path}, result of job {job_id}")

    def _pointers(self, job_id: JobId) -> JobPointers:
        """Return the job's pointers, empty if it has none. Raises Fatal if they cannot be read."""
        data = self._stored_pointers(job_id)
        return (
            JobPointers() if data is None else decode_pointers(data, where=f"{self._path}, checkpoints of job {job_id}")
        )

    def _stored_pointers(self, job_id: JobId) -> bytes | None:
        rows: list[tuple[bytes]] = self._read("SELECT pointers FROM checkpoints WHERE job_id = ?", job_id)
        return rows[0][0] if rows else None

    def _readable_pointers(self, job_id: JobId) -> JobPointers | None:
        try:
            return self._pointers(job_id)
        except NewerFormat:
            raise
        except Fatal as error:
            _log.error("job_checkpoints_unreadable", job=job_id, reason=str(error))
            return None

    # --- SQLite -------------------------------------------------------------------------------------------------------

    def _read(self, statement: str, *values: str | int) -> list[tuple[Any, ...]]:
        with _translated(self._path):
            return self._connection.execute(statement, values).fetchall()

    @contextlib.contextmanager
    def _leading(self) -> Iterator[sqlite3.Connection]:
        """Run the body in a transaction. Raises Conflict, before the body, if a newer leader has opened the store."""
        with self._transaction():
            (epoch,) = self._connection.execute("SELECT epoch FROM store").fetchone()
            if epoch != self.epoch:
                raise Conflict(f"epoch {self.epoch} is over: a newer JobManager leads with epoch {epoch}")
            yield self._connection

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            with _translated(self._path):
                self._connection.execute("BEGIN IMMEDIATE")
                yield
            with _translated(self._path, committing=True):
                self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                with contextlib.suppress(sqlite3.Error):  # the first error matters; closing rolls back as well
                    self._connection.execute("ROLLBACK")


def _is_readable(blocklist: bytes) -> bool:
    try:
        decode_blocklist(blocklist, where="the blocklist")
    except Fatal:
        return False
    return True


def _connect(path: Path) -> sqlite3.Connection:
    with _translated(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as error:
            raise Fatal(f"cannot open {path}: {error.strerror}", hint="check its permissions and free space") from error
        connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
        try:
            prepare(connection, path)
        except BaseException:
            connection.close()
            raise
    return connection


@contextlib.contextmanager
def _translated(path: Path, *, committing: bool = False) -> Iterator[None]:
    """Raise SQLite's errors as ours."""
    try:
        yield
    except sqlite3.Error as error:
        raise _translate(error, path, committing) from error


_SYNC_FAILED = (sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC)
_MAIN_CODE = 0xFF


def _translate(error: sqlite3.Error, path: Path, committing: bool) -> EmberkeepError:
    code = getattr(error, "sqlite_errorcode", 0)
    if code & _MAIN_CODE in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return RetryLater(f"{path} is in use by another program", hint="try again in a second")
    if committing and code in _SYNC_FAILED:
        return UnknownOutcome(f"{path}: it is not known whether the change is on disk: {error}")
    if code & _MAIN_CODE in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return Fatal(f"{path}: damaged: {error}", hint="keep the file and restore a copy")
    return Fatal(f"{path}: {error}", hint="check free space and permissions of that directory")
