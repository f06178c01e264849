"""The job store in memory, slowed down, with failures by operation."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import msgspec

from emberkeep.base.errors import EmberkeepError
from emberkeep.base.ids import JobId
from emberkeep.blocklist.model import Blocklist
from emberkeep.jobs.checkpoints import JobPointers, QueryCheckpoint, SavepointPointer
from emberkeep.jobs.damaged_leftovers import DamagedJob
from emberkeep.jobs.model import DriverHome, JobGraph, JobResult
from emberkeep.jobs.ports import StoredJob
from emberkeep.jobs.upgrades.model import Upgrade
from emberkeep.lifecycle.model import ProcedureRequest
from tests.support.fakes import MemoryDisk, MemoryJobStore

T = TypeVar("T")


class FailingStore:
    """``calls``: operations by name. ``before`` and ``after``: errors by operation, each raised once, before or after
    it happened. Each ``open`` is a new life over the same disk."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.before: dict[str, list[EmberkeepError]] = {}
        self.after: dict[str, list[EmberkeepError]] = {}
        self.attempts: list[tuple[JobId, int]] = []
        self.calls: Counter[str] = Counter()
        self.closed = False
        self._store = MemoryJobStore(self.disk)

    @property
    def handles(self) -> dict[JobId, int]:
        """Jobs to be recovered, with the newest attempt."""
        return {job_id: handle.attempt for job_id, handle in self.disk.jobs.items()}

    @property
    def recorded(self) -> dict[JobId, JobResult]:
        return {key: msgspec.json.decode(result, type=JobResult) for key, result in self.disk.results.items()}

    async def _step(self, name: str, operation: Callable[[], Awaitable[T]]) -> T:
        self.calls[name] += 1
        await asyncio.sleep(0.01)
        if self.before.get(name):
            raise self.before[name].pop(0)
        result = await operation()
        if self.after.get(name):
            raise self.after[name].pop(0)
        return result

    async def open(self) -> int:
        return await self._step("open", self._store.open)

    @property
    def lineage(self) -> str:
        return self._store.lineage

    async def confirm(self) -> None:
        await self._step("confirm", self._store.confirm)

    async def create(self, graph: JobGraph) -> JobId:
        return await self._step("create", lambda: self._store.create(graph))

    async def recover(self) -> list[StoredJob]:
        return await self._step("recover", self._store.recover)

    async def recover_job(self, job_id: JobId) -> StoredJob | None:
        return await self._step("recover_job", lambda: self._store.recover_job(job_id))

    async def _record_attempt(self, job_id: JobId, attempt: int, home: DriverHome | None) -> None:
        await self._store.record_attempt(job_id, attempt, home)
        self.attempts.append((job_id, attempt))

    async def record_attempt(self, job_id: JobId, attempt: int, home: DriverHome | None = None) -> None:
        await self._step("record_attempt", lambda: self._record_attempt(job_id, attempt, home))

    async def record_checkpoints(
        self,
        job_id: JobId,
        attempt: int,
        queries: tuple[QueryCheckpoint, ...],
        savepoints: tuple[SavepointPointer, ...] = (),
    ) -> JobPointers:
        return await self._step(
            "record_checkpoints", lambda: self._store.record_checkpoints(job_id, attempt, queries, savepoints)
        )

    async def record_cancel(self, job_id: JobId) -> None:
        await self._step("record_cancel", lambda: self._store.record_cancel(job_id))

    async def record_procedure(self, job_id: JobId, request: ProcedureRequest | None) -> None:
        await self._step("record_procedure", lambda: self._store.record_procedure(job_id, request))

    async def record_procedure_end(
        self, job_id: JobId, attempt: int, trigger_id: str, savepoint: SavepointPointer | None, *, stopped: bool
    ) -> JobPointers:
        return await self._step(
            "record_procedure_end",
            lambda: self._store.record_procedure_end(job_id, attempt, trigger_id, savepoint, stopped=stopped),
        )

    async def record_retention(
        self, job_id: JobId, retired: frozenset[str], gone: frozenset[str], retired_ms: int
    ) -> JobPointers:
        return await self._step(
            "record_retention", lambda: self._store.record_retention(job_id, retired, gone, retired_ms)
        )

    async def record_result(self, result: JobResult) -> None:
        await self._step("record_result", lambda: self._store.record_result(result))

    async def results(self) -> list[JobResult]:
        return await self._step("results", self._store.results)

    async def expire_results(self, keep: int) -> list[JobId]:
        return await self._step("expire_results", lambda: self._store.expire_results(keep))

    async def damaged(self) -> list[DamagedJob]:
        return await self._step("damaged", self._store.damaged)

    async def remove_damaged(self, job_id: JobId) -> None:
        await self._step("remove_damaged", lambda: self._store.remove_damaged(job_id))

    async def record_blocklist(self, blocklist: Blocklist) -> None:
        await self._step("record_blocklist", lambda: self._store.record_blocklist(blocklist))

    async def blocklist(self) -> Blocklist:
        return await self._step("blocklist", self._store.blocklist)

    async def record_upgrade(self, upgrade: Upgrade) -> None:
        await self._step("record_upgrade", lambda: self._store.record_upgrade(upgrade))

    async def upgrades(self) -> list[Upgrade]:
        return await self._step("upgrades", self._store.upgrades)

    async def remove_upgrades(self, upgrade_ids: Iterable[str]) -> None:
        await self._step("remove_upgrades", lambda: self._store.remove_upgrades(upgrade_ids))

    async def close(self) -> None:
        await self._store.close()
        self.closed = True
