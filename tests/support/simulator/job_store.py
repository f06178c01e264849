"""The job store of a simulated cluster. It outlives JobManagers and may be slow, refuse, or leave an outcome unknown:
then the operation has happened, or it has not.

It may also be unavailable: for every JobManager, as with a full disk, or for one that cannot reach it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import replace
from typing import TypeVar

from emberkeep.base.errors import RetryLater, Unavailable, UnknownOutcome
from emberkeep.base.ids import JobId
from emberkeep.blocklist.model import Blocklist
from emberkeep.jobs.checkpoints import JobPointers, QueryCheckpoint, SavepointPointer
from emberkeep.jobs.damaged_leftovers import DamagedJob
from emberkeep.jobs.model import DriverHome, JobGraph, JobResult
from emberkeep.jobs.ports import StoredJob
from emberkeep.jobs.upgrades.model import Upgrade
from emberkeep.lifecycle.model import ProcedureRequest
from tests.support.fakes import MemoryDisk, MemoryJobStore
from tests.support.simulator.history import History
from tests.support.simulator.machines import Process
from tests.support.simulator.releases.first_release import as_written

T = TypeVar("T")

USUALLY_SLOW = 0.05


class SimStore:
    """Durable data and its observers. ``trouble``: probability that an operation fails or its reply is lost."""

    def __init__(self, rng: random.Random, history: History) -> None:
        self.trouble = 0.0
        self.slow = USUALLY_SLOW  # probability that an operation takes long
        self.refused = ""  # operations that it refuses: those with this word in their description
        self.away_since: float | None = None  # for every JobManager
        self.severed: dict[Process, float] = {}  # JobManagers that cannot reach it, and since when
        self.disk = MemoryDisk()
        self.own: MemoryDisk | None = None  # the lost one, while an emptied one is in its place
        self.leader: Process | None = None
        self.led_since = 0.0
        self.graphs: dict[JobId, JobGraph] = {}  # graph of every job that was ever written
        self.recorded: dict[JobId, JobResult] = {}  # every result that was ever written
        self.on_create: list[Callable[[JobId, str], None]] = []
        self.on_attempt: list[Callable[[JobId, int], None]] = []
        self.on_result: list[Callable[[JobResult], None]] = []
        self.on_retention: list[Callable[[JobId, frozenset[str], frozenset[str]], None]] = []
        self.on_upgrade: list[Callable[[Upgrade], None]] = []
        self.on_stop: list[Callable[[JobId, str], None]] = []  # job and trigger id
        self.on_put_back: list[Callable[[], None]] = []
        self._copy: MemoryDisk | None = None
        self.stopped: dict[JobId, float] = {}  # jobs that may start no further attempt, and since when
        self.rng = rng
        self.history = history

    def lose(self) -> None:
        """Make the store unavailable for every JobManager."""
        if self.away_since is None:
            self.away_since = asyncio.get_running_loop().time()

    def take_copy(self) -> None:
        """Copy the store, as a person does while its JobManager runs."""
        self._copy = replace(
            self.disk,
            jobs={job_id: replace(handle) for job_id, handle in self.disk.jobs.items()},
            upgrades=dict(self.disk.upgrades),
            leader=None,
        )

    def may_put_back(self) -> bool:
        """True if there is a copy with the same jobs, results, cancellations and stops as the store."""
        copy, disk = self._copy, self.disk
        if copy is None or copy.jobs.keys() != disk.jobs.keys() or copy.results != disk.results:
            return False
        return all(
            (copy.jobs[key].canceled, copy.jobs[key].stopped) == (disk.jobs[key].canceled, disk.jobs[key].stopped)
            for key in disk.jobs
        )

    def put_back(self) -> None:
        """Replace the store with its older copy, while no JobManager runs.

        The epoch is kept, so that the next one is larger than all earlier ones, as in the embedded store.
        """
        if self._copy is None:
            raise AssertionError("nobody has taken a copy")
        self.disk, self._copy = replace(self._copy, epoch=self.disk.epoch), None
        self.leader = None
        for told in self.on_put_back:
            told()

    @property
    def jobs(self) -> Collection[JobId]:
        """The jobs that have not ended, also while the store is lost."""
        return (self.own or self.disk).jobs.keys()

    def replace(self, disk: MemoryDisk) -> None:
        """Put another disk in its place, while no JobManager runs."""
        self.disk.crash()
        self.own, self.disk = self.disk, disk
        self.leader = None

    def give_back(self) -> None:
        """Put the lost disk back, while no JobManager runs."""
        if self.own is None:
            raise AssertionError("it was not lost")
        self.disk, self.own = self.own, None
        self.leader = None

    def sever(self, process: Process) -> None:
        """Make the store unavailable for this JobManager."""
        self.severed.setdefault(process, asyncio.get_running_loop().time())

    def away_from(self, process: Process) -> float | None:
        """Return since when every operation of this JobManager fails without effect, or None."""
        since = [time for time in (self.away_since, self.severed.get(process)) if time is not None]
        return min(since, default=None)

    def session(self, process: Process) -> StoreSession:
        """Return the JobStore of one JobManager process."""
        return StoreSession(self, process)


class StoreSession:
    """Implements JobStore: the fake store, with delays and failures."""

    def __init__(self, store: SimStore, process: Process) -> None:
        self._store = store
        self._process = process
        self._inner = MemoryJobStore(store.disk)

    def _written(self, value: T) -> T:
        """Return what this process writes of a value."""
        return as_written(value) if self._process.party.old else value

    async def _operate(self, what: str, operation: Callable[[], Awaitable[T]]) -> T:
        """Run ``operation`` with a delay; depending on ``trouble``, fail before or after it."""
        store = self._store
        store.history.step(self._process.name, f"store, before {what}")
        await asyncio.sleep(store.rng.uniform(0.0005, 0.01))
        if store.rng.random() < store.slow:
            await asyncio.sleep(store.rng.uniform(0.1, 2.0))
        fate = store.rng.random() if store.trouble else 1.0
        if fate < store.trouble / 2:
            await asyncio.sleep(store.rng.uniform(0.0, 2.0))
            if fate < store.trouble / 8:
                store.history.count("store outcome unknown, without effect")
                raise UnknownOutcome(f"{what}: the store did not answer")
            store.history.count("store refused")
            raise RetryLater(f"{what}: the store is busy")
        if store.refused and store.refused in what.split():
            raise RetryLater(f"{what}: the store is busy")
        if store.away_from(self._process) is not None:
            store.history.count("store away")
            raise Unavailable(f"{what}: the store is away")
        result = await operation()
        store.history.add(self._process.name, f"store: {what}")
        store.history.step(self._process.name, f"store, after {what}")
        if fate < store.trouble:
            await asyncio.sleep(store.rng.uniform(0.0, 2.0))
            store.history.count("store outcome unknown")
            raise UnknownOutcome(f"{what}: the store did not answer")
        await asyncio.sleep(store.rng.uniform(0.0005, 0.01))
        return result

    async def open(self) -> int:
        await asyncio.sleep(0.01)
        store = self._store
        if store.away_from(self._process) is not None:
            raise Unavailable("the store does not open: it is away")
        if store.leader is not None and not store.leader.alive:
            store.disk.crash()
        epoch = await self._inner.open()
        store.leader, store.led_since = self._process, asyncio.get_running_loop().time()
        store.history.add(self._process.name, f"leads with epoch {epoch}")
        return epoch

    @property
    def lineage(self) -> str:
        return self._inner.lineage

    async def confirm(self) -> None:
        await self._operate("confirm", self._inner.confirm)

    async def create(self, graph: JobGraph) -> JobId:
        async def create() -> JobId:
            job_id = await self._inner.create(self._written(graph))
            if job_id not in self._store.graphs:
                self._store.graphs[job_id] = graph
                for told in self._store.on_create:
                    told(job_id, graph.idempotency_key)
            return job_id

        return await self._operate(f"create {graph.name}", create)

    async def recover(self) -> list[StoredJob]:
        return await self._operate("recover", self._inner.recover)

    async def recover_job(self, job_id: JobId) -> StoredJob | None:
        return await self._operate(f"read {job_id[:8]} again", lambda: self._inner.recover_job(job_id))

    async def record_attempt(self, job_id: JobId, attempt: int, home: DriverHome | None = None) -> None:
        async def record() -> None:
            await self._inner.record_attempt(job_id, attempt, home)
            for told in self._store.on_attempt:
                told(job_id, attempt)

        await self._operate(f"attempt {attempt} of {job_id[:8]}", record)

    async def record_cancel(self, job_id: JobId) -> None:
        await self._operate(f"cancel {job_id[:8]}", lambda: self._inner.record_cancel(job_id))

    async def record_procedure(self, job_id: JobId, request: ProcedureRequest | None) -> None:
        what = f"procedure {request.trigger_id[:4]}" if request else "no procedure"
        await self._operate(
            f"{what} of {job_id[:8]}", lambda: self._inner.record_procedure(job_id, self._written(request))
        )

    async def record_procedure_end(
        self, job_id: JobId, attempt: int, trigger_id: str, savepoint: SavepointPointer | None, *, stopped: bool
    ) -> JobPointers:
        async def record() -> JobPointers:
            made = self._written(savepoint)
            pointers = await self._inner.record_procedure_end(job_id, attempt, trigger_id, made, stopped=stopped)
            if stopped:
                self._store.stopped.setdefault(job_id, asyncio.get_running_loop().time())
                for told in self._store.on_stop:
                    told(job_id, trigger_id)
            return pointers

        return await self._operate(f"end of procedure {trigger_id[:4]} of {job_id[:8]}.{attempt}", record)

    async def record_checkpoints(
        self,
        job_id: JobId,
        attempt: int,
        queries: tuple[QueryCheckpoint, ...],
        savepoints: tuple[SavepointPointer, ...] = (),
    ) -> JobPointers:
        return await self._operate(
            f"checkpoints of {job_id[:8]}.{attempt}",
            lambda: self._inner.record_checkpoints(job_id, attempt, queries, self._written(savepoints)),
        )

    async def record_retention(
        self, job_id: JobId, retired: frozenset[str], gone: frozenset[str], retired_ms: int
    ) -> JobPointers:
        async def record() -> JobPointers:
            pointers = await self._inner.record_retention(job_id, retired, gone, retired_ms)
            for told in self._store.on_retention:
                told(job_id, retired, gone)
            return pointers

        return await self._operate(f"retention of {job_id[:8]}", record)

    async def record_result(self, result: JobResult) -> None:
        async def record() -> None:
            await self._inner.record_result(self._written(result))
            self._store.recorded.setdefault(result.job_id, result)
            for told in self._store.on_result:
                told(result)

        await self._operate(f"result {result.status.value} of {result.name}", record)

    async def results(self) -> list[JobResult]:
        return await self._operate("results", self._inner.results)

    async def expire_results(self, keep: int) -> list[JobId]:
        return await self._operate(f"expire all but {keep} results", lambda: self._inner.expire_results(keep))

    async def damaged(self) -> list[DamagedJob]:
        return await self._operate("damaged", self._inner.damaged)

    async def remove_damaged(self, job_id: JobId) -> None:
        await self._operate(f"remove what is left of {job_id[:8]}", lambda: self._inner.remove_damaged(job_id))

    async def record_blocklist(self, blocklist: Blocklist) -> None:
        await self._operate(f"blocklist {blocklist.revision}", lambda: self._inner.record_blocklist(blocklist))

    async def blocklist(self) -> Blocklist:
        return await self._operate("blocklist", self._inner.blocklist)

    async def record_upgrade(self, upgrade: Upgrade) -> None:
        what = f"upgrade {upgrade.upgrade_id[:4]} {upgrade.phase.value}"

        async def record() -> None:
            await self._inner.record_upgrade(upgrade)
            for told in self._store.on_upgrade:
                told(upgrade)

        await self._operate(what, record)

    async def upgrades(self) -> list[Upgrade]:
        return await self._operate("upgrades", self._inner.upgrades)

    async def remove_upgrades(self, upgrade_ids: Iterable[str]) -> None:
        await self._operate("remove upgrades", lambda: self._inner.remove_upgrades(upgrade_ids))

    async def close(self) -> None:
        await self._inner.close()
        if self._store.leader is self._process:
            self._store.leader = None
