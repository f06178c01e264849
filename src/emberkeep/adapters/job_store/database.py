"""The records of the embedded store: handles, attempts, pointers, results and the blocklist of one leader's file.

Each change is one transaction that begins with a check of the epoch. Every value is a record with version and checksum,
since SQLite itself detects no flipped bit.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import structlog

from emberkeep.adapters.job_store.attempt_table import AttemptTable
from emberkeep.adapters.job_store.blocklist_table import BLOCKLIST_KEPT, BlocklistTable
from emberkeep.adapters.job_store.fenced_file import FencedFile
from emberkeep.adapters.job_store.graph_files import GraphFiles, decode_handle, encode_handle
from emberkeep.adapters.job_store.pointer_table import PointerTable
from emberkeep.adapters.job_store.records import (
    StoredAttempt,
    decode_result,
    encode_attempt,
    encode_result,
    is_same_end,
)
from emberkeep.adapters.job_store.stored_jobs import stored_job
from emberkeep.adapters.job_store.token_table import TokenTable
from emberkeep.adapters.job_store.upgrade_table import UpgradeTable
from emberkeep.adapters.shared_storage.store_origin import StoreOrigin, origin_of
from emberkeep.base.errors import Absent, Conflict, EmberkeepError, Fatal, NewerFormat, UnknownOutcome
from emberkeep.base.ids import JobId
from emberkeep.jobs.checkpoints import JobPointers, QueryCheckpoint, SavepointPointer
from emberkeep.jobs.damaged_leftovers import DamagedJob
from emberkeep.jobs.model import DriverHome, JobGraph, JobResult
from emberkeep.jobs.ports import StoredJob, Trouble
from emberkeep.lifecycle.model import ProcedureRequest

_log = structlog.get_logger(__name__)


class JobDatabase:
    """The open file. All methods block, and only one thread may call them.

    The blocklist, the tokens and the upgrades are in tables of their own, which callers use directly.
    """

    def __init__(self, path: Path, graph_dir: Path, now_ms: int) -> None:
        """Open the file, creating it if it does not exist, and raise the epoch to at least ``now_ms``.

        Raises Fatal, RetryLater, UnknownOutcome.
        """
        self._file = FencedFile(path, now_ms)
        self.epoch, self.lineage = self._file.epoch, self._file.lineage
        self._attempts = AttemptTable(self._file)
        self._pointers = PointerTable(self._file)
        self.blocklist = BlocklistTable(self._file)
        self.tokens = TokenTable(self._file)
        self.upgrades = UpgradeTable(self._file)
        try:
            # Each store has its own directory of graphs, so that it does not treat another store's graphs as orphans.
            self._graphs = GraphFiles(graph_dir / self.lineage)
            self._graphs.sweep_unfinished()
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        self._file.close()

    # --- the storage that belongs to it ------------------------------------------------------------------------------

    def origin(self) -> StoreOrigin:
        kept = self._file.read("SELECT place_id FROM storage")
        return origin_of(self.lineage, str(kept[0][0]) if kept else "")

    def bind_storage(self, place_id: str) -> None:
        with self._file.leading() as connection:
            connection.execute("INSERT OR REPLACE INTO storage VALUES (1, ?)", (place_id,))

    # --- operations, as the port describes them -----------------------------------------------------------------------

    def confirm(self) -> None:
        self._file.confirm()

    def create(self, graph: JobGraph) -> JobId:
        written = False
        try:
            with self._file.leading() as connection:
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
        """Return the job that was created for this graph before, or None. Raises Conflict if another job has its id."""
        if graph.idempotency_key:
            both = "SELECT job_id FROM {} WHERE idempotency_key = ?"
            for table in ("jobs", "results"):
                for (job_id,) in self._file.read(both.format(table), graph.idempotency_key):
                    return JobId(job_id)
        for (handle,) in self._file.read("SELECT handle FROM jobs WHERE job_id = ?", graph.job_id):
            if self._graph(graph.job_id, handle) == graph:
                return graph.job_id
            raise Conflict(f"job {graph.job_id} exists with another graph")
        if self._file.read("SELECT 1 FROM results WHERE job_id = ?", graph.job_id):
            raise Conflict(f"job {graph.job_id} has ended", hint="submit it under a new id")
        if self._file.read("SELECT 1 FROM damaged WHERE job_id = ?", graph.job_id):
            raise Conflict(
                f"job {graph.job_id} exists and is damaged; what is left of it is kept", hint="submit it under a new id"
            )
        return None

    def recover(self) -> list[StoredJob]:
        rows = self._file.read("SELECT job_id, handle, attempt, idempotency_key FROM jobs ORDER BY position")
        return [self._recovered(JobId(job_id), handle, attempt, key) for job_id, handle, attempt, key in rows]

    def recover_job(self, job_id: JobId) -> StoredJob | None:
        for stored in self._file.read("SELECT handle, attempt, idempotency_key FROM jobs WHERE job_id = ?", job_id):
            return self._recovered(job_id, *stored)
        return None

    def _recovered(self, job_id: JobId, handle: bytes, attempt: bytes, key: str = "") -> StoredJob:
        return stored_job(
            job_id,
            lambda: self._attempts.decode(job_id, attempt),
            lambda: self._graph(job_id, handle),
            key=key,
            pointers=self._pointers.readable(job_id) or JobPointers(),
        )

    def _graph(self, job_id: JobId, handle: bytes) -> JobGraph:
        return self._graphs.read(job_id, decode_handle(handle, where=self._file.where("handle", job_id)))

    def record_attempt(self, job_id: JobId, attempt: int, home: DriverHome | None) -> None:
        with self._file.leading() as connection:
            stored = self._attempts.read(job_id)
            self._attempts.write(connection, job_id, stored.next_attempt(job_id, attempt, home))

    def record_cancel(self, job_id: JobId) -> None:
        with self._file.leading() as connection:
            stored = self._attempts.read(job_id)
            self._attempts.write(connection, job_id, msgspec.structs.replace(stored, canceled=True))

    def record_procedure(self, job_id: JobId, request: ProcedureRequest | None) -> None:
        with self._file.leading() as connection:
            stored = self._attempts.read(job_id)
            self._attempts.write(connection, job_id, msgspec.structs.replace(stored, procedure=request))

    def record_procedure_end(
        self, job_id: JobId, attempt: int, trigger_id: str, savepoint: SavepointPointer | None, stopped: bool
    ) -> JobPointers:
        with self._file.leading() as connection:
            stored = self._attempts.newest(job_id, attempt)
            pointers = self._pointers.merge(connection, job_id, attempt, (), (savepoint,) if savepoint else ())
            self._attempts.write(connection, job_id, stored.procedure_ended(trigger_id, stopped=stopped))
        return pointers

    def record_checkpoints(
        self,
        job_id: JobId,
        attempt: int,
        queries: tuple[QueryCheckpoint, ...],
        savepoints: tuple[SavepointPointer, ...],
    ) -> JobPointers:
        with self._file.leading() as connection:
            self._attempts.newest(job_id, attempt)
            return self._pointers.merge(connection, job_id, attempt, queries, savepoints)

    def record_retention(
        self, job_id: JobId, retired: frozenset[str], gone: frozenset[str], retired_ms: int
    ) -> JobPointers:
        with self._file.leading() as connection:
            self._attempts.read(job_id)
            return self._pointers.retain(connection, job_id, retired, gone, retired_ms)

    def record_result(self, result: JobResult) -> None:
        job_id = result.job_id
        with self._file.leading() as connection:
            for (known,) in self._file.read("SELECT result FROM results WHERE job_id = ?", job_id):
                if is_same_end(decode_result(known, where=self._file.where("result", job_id)), result):
                    return
                raise Conflict(f"job {job_id} has ended with another result")
            rows = self._file.read("SELECT handle, attempt FROM jobs WHERE job_id = ?", job_id)
            if not rows:
                raise Absent(f"job {job_id} has no handle")
            is_kept = self._recovered(job_id, *rows[0]).trouble is Trouble.DAMAGED
            if is_kept:
                connection.execute("INSERT INTO damaged VALUES (?, ?, ?)", (job_id, *rows[0]))
                connection.execute("INSERT OR REPLACE INTO damaged_since (job_id) VALUES (?)", (job_id,))
            pointers = self._pointers.readable(job_id)
            if pointers is not None:  # unreadable pointers are kept for inspection
                self._pointers.remove(connection, job_id)
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
        for job_id, result in self._file.read("SELECT job_id, result FROM results ORDER BY position"):
            try:
                found.append(decode_result(result, where=self._file.where("result", job_id)))
            except NewerFormat:
                raise
            except Fatal as error:
                _log.error("job_result_unreadable", job=job_id, reason=str(error))
        return found

    def expire_results(self, keep: int) -> list[JobId]:
        with self._file.leading() as connection:
            rows = self._file.read("SELECT job_id FROM results ORDER BY position DESC LIMIT -1 OFFSET ?", keep)
            connection.executemany("DELETE FROM results WHERE job_id = ?", rows)
            for unread in (row for row in rows if self._pointers.has(row[0])):
                connection.execute("INSERT OR IGNORE INTO damaged VALUES (?, x'', x'')", unread)
                connection.execute("INSERT OR IGNORE INTO damaged_since (job_id) VALUES (?)", unread)
        return [JobId(job_id) for (job_id,) in reversed(rows)]

    def damaged(self) -> list[DamagedJob]:
        rows = self._file.read(
            "SELECT job_id, since_ms FROM damaged JOIN damaged_since USING (job_id) WHERE job_id <> ? "
            "ORDER BY since_ms, job_id",
            BLOCKLIST_KEPT,
        )
        return [DamagedJob(job_id=job_id, since_ms=since_ms, places=self._places(job_id)) for job_id, since_ms in rows]

    def _places(self, job_id: JobId) -> tuple[str, ...]:
        """Return where the records of a damaged job are stored."""
        tables = ("damaged", "checkpoints") if self._pointers.has(job_id) else ("damaged",)
        return (*(f"{self._file.path}, table {table}" for table in tables), *self._graphs.of_job(job_id))

    def remove_damaged(self, job_id: JobId) -> None:
        with self._file.leading() as connection:
            if self._file.read("SELECT 1 FROM damaged WHERE job_id = ?", job_id):
                self._graphs.remove_job(job_id)
                self._pointers.remove(connection, job_id)
            connection.execute("DELETE FROM damaged WHERE job_id = ?", (job_id,))
            connection.execute("DELETE FROM damaged_since WHERE job_id = ?", (job_id,))

    def graphs_without_handle(self) -> dict[JobId, list[str]]:
        kept = self._file.read("SELECT job_id FROM jobs UNION SELECT job_id FROM damaged")
        return self._graphs.without_handle({job_id for (job_id,) in kept})

    def remove_graph(self, job_id: JobId) -> None:
        with self._file.leading():
            for name in self.graphs_without_handle().get(job_id, ()):
                self._graphs.discard_file(name)
