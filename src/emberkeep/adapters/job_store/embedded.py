"""The job store of a single JobManager: a SQLite file, graphs as files outside it, and a lock file for leadership.

The invariants are those of the ZooKeeper store: a handle exists if and only if its job has to be recovered, and a
former leader changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from emberkeep.adapters.job_store.database import JobDatabase
from emberkeep.adapters.job_store.database_thread import DatabaseThread
from emberkeep.adapters.shared_storage.cluster import ClusterStorage
from emberkeep.base.clock import Clock, SystemClock
from emberkeep.base.ids import JobId
from emberkeep.blocklist.model import Blocklist
from emberkeep.identities.model import NamedTokens
from emberkeep.jobs.checkpoints import JobPointers, QueryCheckpoint, SavepointPointer
from emberkeep.jobs.damaged_leftovers import DamagedJob
from emberkeep.jobs.model import DriverHome, JobGraph, JobResult
from emberkeep.jobs.ports import StoredJob
from emberkeep.jobs.upgrades.model import Upgrade
from emberkeep.lifecycle.model import ProcedureRequest


class EmbeddedJobStore:
    """Implements JobStore. ``tokens`` and ``leftovers`` are parts with operations of their own.

    Besides the errors that the port names, every operation raises Fatal (no space, damaged, no permission), RetryLater
    (another program holds the file), UnknownOutcome (the disk failed while a change was made durable).

    Each operation of the port is one call in the store's thread.
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
        self._thread = DatabaseThread(path, graph_dir, storage, clock or SystemClock())
        self.tokens = EmbeddedTokens(self._thread)
        self.leftovers = EmbeddedLeftovers(self._thread)

    async def open(self) -> int:
        return await self._thread.open()

    async def adopt_storage(self) -> None:
        """See ``ClusterStorage.adopt``."""
        await self._thread.adopt_storage()

    @property
    def lineage(self) -> str:
        return self._thread.lineage

    async def confirm(self) -> None:
        await self._thread.operate(JobDatabase.confirm)

    async def create(self, graph: JobGraph) -> JobId:
        return await self._thread.operate(JobDatabase.create, graph)

    async def recover(self) -> list[StoredJob]:
        return await self._thread.operate(JobDatabase.recover)

    async def recover_job(self, job_id: JobId) -> StoredJob | None:
        return await self._thread.operate(JobDatabase.recover_job, job_id)

    async def record_attempt(self, job_id: JobId, attempt: int, home: DriverHome | None = None) -> None:
        await self._thread.operate(JobDatabase.record_attempt, job_id, attempt, home)

    async def record_cancel(self, job_id: JobId) -> None:
        await self._thread.operate(JobDatabase.record_cancel, job_id)

    async def record_procedure(self, job_id: JobId, request: ProcedureRequest | None) -> None:
        await self._thread.operate(JobDatabase.record_procedure, job_id, request)

    async def record_procedure_end(
        self, job_id: JobId, attempt: int, trigger_id: str, savepoint: SavepointPointer | None, *, stopped: bool
    ) -> JobPointers:
        return await self._thread.operate(
            JobDatabase.record_procedure_end, job_id, attempt, trigger_id, savepoint, stopped
        )

    async def record_checkpoints(
        self,
        job_id: JobId,
        attempt: int,
        queries: tuple[QueryCheckpoint, ...],
        savepoints: tuple[SavepointPointer, ...] = (),
    ) -> JobPointers:
        return await self._thread.operate(JobDatabase.record_checkpoints, job_id, attempt, queries, savepoints)

    async def record_retention(
        self, job_id: JobId, retired: frozenset[str], gone: frozenset[str], retired_ms: int
    ) -> JobPointers:
        return await self._thread.operate(JobDatabase.record_retention, job_id, retired, gone, retired_ms)

    async def record_result(self, result: JobResult) -> None:
        await self._thread.operate(JobDatabase.record_result, result)

    async def results(self) -> list[JobResult]:
        return await self._thread.operate(JobDatabase.results)

    async def expire_results(self, keep: int) -> list[JobId]:
        return await self._thread.operate(JobDatabase.expire_results, keep)

    async def damaged(self) -> list[DamagedJob]:
        return await self._thread.operate(JobDatabase.damaged)

    async def remove_damaged(self, job_id: JobId) -> None:
        await self._thread.operate(JobDatabase.remove_damaged, job_id)

    async def record_blocklist(self, blocklist: Blocklist) -> None:
        await self._thread.operate(lambda database: database.blocklist.record(blocklist))

    async def blocklist(self) -> Blocklist:
        return await self._thread.operate(lambda database: database.blocklist.read())

    async def record_upgrade(self, upgrade: Upgrade) -> None:
        await self._thread.operate(lambda database: database.upgrades.record(upgrade))

    async def upgrades(self) -> list[Upgrade]:
        return await self._thread.operate(lambda database: database.upgrades.read())

    async def remove_upgrades(self, upgrade_ids: Iterable[str]) -> None:
        removed = tuple(upgrade_ids)
        await self._thread.operate(lambda database: database.upgrades.remove(removed))

    async def close(self) -> None:
        await self._thread.close()


class EmbeddedTokens:
    """The named tokens in the database. Implements TokenStore."""

    def __init__(self, thread: DatabaseThread) -> None:
        self._thread = thread

    async def record(self, tokens: NamedTokens) -> None:
        await self._thread.operate(lambda database: database.tokens.record(tokens))

    async def read(self) -> NamedTokens:
        return await self._thread.operate(lambda database: database.tokens.read())


class EmbeddedLeftovers:
    """Graph files that no record leads to. There are no result files: the database holds results of any size."""

    def __init__(self, thread: DatabaseThread) -> None:
        self._thread = thread

    async def graphs(self) -> dict[JobId, list[str]]:
        """Return the graph files of jobs that have no handle, by job."""
        return await self._thread.operate(JobDatabase.graphs_without_handle)

    async def remove_graph(self, job_id: JobId) -> None:
        """Delete the graph files of a job that has no handle. Raises Conflict if another JobManager is the leader."""
        await self._thread.operate(JobDatabase.remove_graph, job_id)

    async def results(self) -> tuple[JobId, ...]:
        """Return nothing."""
        return ()

    async def remove_result(self, job_id: JobId) -> None:
        """Do nothing."""
