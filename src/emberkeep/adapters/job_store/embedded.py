"""The job store of a single JobManager: a SQLite file, graphs as files outside it, and a lock file for leadership.

The invariants are those of the ZooKeeper store: a handle exists if and only if its job has to be recovered, and a
former leader changes nothing. All work runs in one thread of its own, so the event loop never blocks.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar, TypeVarTuple

from emberkeep.adapters.job_store.database import JobDatabase
from emberkeep.adapters.job_store.unfinished_restore import RESTORING, read_unfinished, unfinished
from emberkeep.adapters.shared_storage.cluster import ClusterStorage
from emberkeep.adapters.shared_storage.store_origin import StoreOrigin, kept_after
from emberkeep.base.clock import Clock, SystemClock
from emberkeep.base.errors import Conflict, Fatal
from emberkeep.base.files.durable import make_directories
from emberkeep.base.files.ownership import OwnedByAnother
from emberkeep.base.ids import JobId
from emberkeep.blocklist.model import Blocklist
from emberkeep.identities.model import NamedTokens
from emberkeep.jobs.checkpoints import JobPointers, QueryCheckpoint, SavepointPointer
from emberkeep.jobs.damaged_leftovers import DamagedJob
from emberkeep.jobs.model import DriverHome, JobGraph, JobResult
from emberkeep.jobs.ports import StoredJob
from emberkeep.jobs.upgrades.model import Upgrade
from emberkeep.lifecycle.model import ProcedureRequest

_ArgumentTs = TypeVarTuple("_ArgumentTs")
_ResultT = TypeVar("_ResultT")


class EmbeddedJobStore:
    """Implements JobStore.

    Besides the errors that the port names, every operation raises Fatal (no space, damaged, no permission), RetryLater
    (another program holds the file), UnknownOutcome (the disk failed while a change was made durable).

    A facade with one method for each operation of the port, so it has many methods. Each makes one call in the store's
    thread.
    """

    def __init__(
        self, path: Path, graph_dir: Path, storage: ClusterStorage | None = None, *, clock: Clock | None = None
    ) -> None:
        """Open nothing before ``open``.

        - ``path``: the SQLite file; the first ``open`` creates it.
        - ``graph_dir``: this store's graphs are in a folder of that directory.
        - ``storage``: ``open`` calls its ``settle``, and raises what that raises; None if nothing is ever deleted
          there.
        - ``clock``: its time is the lowest epoch, so that a file restored from a copy gets a higher epoch than the
          file before it. None: the system clock.
        """
        self._storage = storage
        self._clock = clock or SystemClock()
        self._path = path
        self._graph_dir = graph_dir
        self._lock: int | None = None
        self._database: JobDatabase | None = None
        self._thread: ThreadPoolExecutor | None = None

    async def open(self) -> int:
        if self._thread is not None:
            raise Conflict("this store is open already")
        self._thread = ThreadPoolExecutor(1, "job-store")
        try:
            return await self._in_thread(self._open)
        except BaseException:
            await self.close()
            raise

    def _open(self) -> int:
        self._lock = take_lock(self._path.with_name(f"{self._path.name}.lock"))
        if read_unfinished(self._path.parent) is not None:
            raise unfinished(str(self._path.parent / RESTORING))
        self._database = database = JobDatabase(self._path, self._graph_dir, self._clock.now_ms())
        if self._storage is not None:
            self._settle(database, self._storage)
        return database.epoch

    def _settle(self, database: JobDatabase, storage: ClusterStorage) -> None:
        origin = database.origin()
        try:
            settled = storage.settle(origin)
        except OwnedByAnother:
            self._bind(database, origin, "")
            raise
        self._bind(database, origin, settled)

    def _bind(self, database: JobDatabase, origin: StoreOrigin, settled: str) -> None:
        kept = kept_after(origin, settled)
        if origin.was_led or kept != origin.storage:
            database.bind_storage(kept)

    async def adopt_storage(self) -> None:
        """See ``ClusterStorage.adopt``."""

        def adopt(database: JobDatabase) -> None:
            if self._storage is not None:
                database.confirm()
                self._bind(database, database.origin(), self._storage.adopt())

        await self._operate(adopt)

    @property
    def lineage(self) -> str:
        """Name of this file's store, see JobStore. Raises Conflict before the store is open."""
        if self._database is None:
            raise Conflict("this store is not open")
        return self._database.lineage

    async def confirm(self) -> None:
        await self._operate(JobDatabase.confirm)

    async def create(self, graph: JobGraph) -> JobId:
        return await self._operate(JobDatabase.create, graph)

    async def recover(self) -> list[StoredJob]:
        return await self._operate(JobDatabase.recover)

    async def recover_job(self, job_id: JobId) -> StoredJob | None:
        return await self._operate(JobDatabase.recover_job, job_id)

    async def record_attempt(self, job_id: JobId, attempt: int, home: DriverHome | None = None) -> None:
        await self._operate(JobDatabase.record_attempt, job_id, attempt, home)

    async def record_cancel(self, job_id: JobId) -> None:
        await self._operate(JobDatabase.record_cancel, job_id)

    async def record_procedure(self, job_id: JobId, request: ProcedureRequest | None) -> None:
        await self._operate(JobDatabase.record_procedure, job_id, request)

    async def record_procedure_end(
        self, job_id: JobId, attempt: int, trigger_id: str, savepoint: SavepointPointer | None, *, stopped: bool
    ) -> JobPointers:
        return await self._operate(JobDatabase.record_procedure_end, job_id, attempt, trigger_id, savepoint, stopped)

    async def record_checkpoints(
        self,
        job_id: JobId,
        attempt: int,
        queries: tuple[QueryCheckpoint, ...],
        savepoints: tuple[SavepointPointer, ...] = (),
    ) -> JobPointers:
        return await self._operate(JobDatabase.record_checkpoints, job_id, attempt, queries, savepoints)

    async def record_retention(
        self, job_id: JobId, retired: frozenset[str], gone: frozenset[str], retired_ms: int
    ) -> JobPointers:
        return await self._operate(JobDatabase.record_retention, job_id, retired, gone, retired_ms)

    async def record_result(self, result: JobResult) -> None:
        await self._operate(JobDatabase.record_result, result)

    async def results(self) -> list[JobResult]:
        return await self._operate(JobDatabase.results)

    async def expire_results(self, keep: int) -> list[JobId]:
        return await self._operate(JobDatabase.expire_results, keep)

    async def damaged(self) -> list[DamagedJob]:
        return await self._operate(JobDatabase.damaged)

    async def remove_damaged(self, job_id: JobId) -> None:
        await self._operate(JobDatabase.remove_damaged, job_id)

    async def graphs_without_handle(self) -> set[JobId]:
        return set(await self._operate(JobDatabase.graphs_without_handle))

    async def remove_graph(self, job_id: JobId) -> None:
        await self._operate(JobDatabase.remove_graph, job_id)

    async def results_without_node(self) -> set[JobId]:
        """Return the empty set: the database holds results of any size."""
        return set()

    async def remove_result(self, job_id: JobId) -> None:
        """Do nothing: there are no result files."""

    async def record_blocklist(self, blocklist: Blocklist) -> None:
        await self._operate(lambda database: database.blocklist.record(blocklist))

    async def blocklist(self) -> Blocklist:
        return await self._operate(lambda database: database.blocklist.read())

    async def record_tokens(self, tokens: NamedTokens) -> None:
        await self._operate(lambda database: database.tokens.record(tokens))

    async def tokens(self) -> NamedTokens:
        return await self._operate(lambda database: database.tokens.read())

    async def record_upgrade(self, upgrade: Upgrade) -> None:
        await self._operate(lambda database: database.upgrades.record(upgrade))

    async def upgrades(self) -> list[Upgrade]:
        return await self._operate(lambda database: database.upgrades.read())

    async def remove_upgrades(self, upgrade_ids: Iterable[str]) -> None:
        removed = tuple(upgrade_ids)
        await self._operate(lambda database: database.upgrades.remove(removed))

    async def close(self) -> None:
        if self._thread is None:
            return
        thread = self._thread
        await self._in_thread(self._close)
        self._thread = None
        thread.shutdown(wait=False)

    def _close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    async def _operate(
        self, operation: Callable[[JobDatabase, *_ArgumentTs], _ResultT], *arguments: *_ArgumentTs
    ) -> _ResultT:
        def run() -> _ResultT:
            if self._database is None:
                raise Conflict("this store is not open")
            return operation(self._database, *arguments)

        return await self._in_thread(run)

    async def _in_thread(self, work: Callable[[], _ResultT]) -> _ResultT:
        if self._thread is None:
            raise Conflict("this store is not open")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def take_lock(path: Path) -> int:
    """Take the leader's lock and return its descriptor. The kernel releases the lock when the process ends, in any way.

    Raises Conflict while another process holds it, Fatal.
    """
    try:
        make_directories(path.parent)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Fatal(f"cannot open {path}: {error.strerror}", hint="check its permissions and free space") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
    except BlockingIOError:
        holder = os.read(descriptor, 32).decode("ascii", "replace").strip()
        os.close(descriptor)
        raise Conflict(
            f"another JobManager{f' (pid {holder})' if holder else ''} uses the job store {path.parent}",
            hint="stop it, or give this one another emberkeep.state-dir",
        ) from None
    except OSError as error:
        os.close(descriptor)
        raise Fatal(f"cannot lock {path}: {error.strerror}", hint="use a local file system with free space") from error
    return descriptor
