"""Fakes of external systems, which pass the same contract tests as the real implementations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from emberkeep.base.errors import Absent, Conflict, EmberkeepError, Fatal, Unavailable
from emberkeep.base.ids import JobId
from emberkeep.blocklist.model import Blocklist
from emberkeep.jobs.checkpoints import JobPointers, QueryCheckpoint, SavepointPointer, after_retention, merged
from emberkeep.jobs.damaged_leftovers import DamagedJob
from emberkeep.jobs.model import DriverHome, JobGraph, JobResult
from emberkeep.jobs.ports import StoredJob, Trouble
from emberkeep.jobs.upgrades.model import Upgrade
from emberkeep.lifecycle.model import Procedure, ProcedureRequest


@dataclass
class _Handle:
    graph: bytes
    idempotency_key: str
    attempt: int = 0
    canceled: bool = False
    home: DriverHome | None = None
    pointers: bytes = b""
    procedure: ProcedureRequest | None = None
    stopped: str = ""


@dataclass
class MemoryDisk:
    """Durable data that MemoryJobStores share and that outlives JobManagers, encoded as in a real store."""

    epoch: int = 0
    jobs: dict[JobId, _Handle] = field(default_factory=dict)
    results: dict[JobId, bytes] = field(default_factory=dict)
    blocklist: bytes = b""
    leader: MemoryJobStore | None = None
    away: bool = False  # graphs cannot be read now
    lineage: str = "memory"
    now_ms: int = 1_700_000_000_000
    damaged: dict[JobId, int] = field(default_factory=dict)  # since when, Unix ms
    upgrades: dict[str, bytes] = field(default_factory=dict)
    torn_pointers: set[JobId] = field(default_factory=set)  # ended jobs with damaged pointers

    def crash(self) -> None:
        """Let the leader die: its lock is released, its writes stay."""
        self.leader = None

    def damage(self, job_id: JobId) -> None:
        """Truncate the graph of a job."""
        handle = self.jobs[job_id]
        handle.graph = handle.graph[: len(handle.graph) // 2]

    def damage_pointers(self, job_id: JobId) -> None:
        """Truncate the pointers to a job's checkpoints."""
        handle = self.jobs[job_id]
        handle.pointers = handle.pointers[: len(handle.pointers) // 2]

    def damage_blocklist(self) -> None:
        """Truncate the blocklist."""
        self.blocklist = self.blocklist[: len(self.blocklist) // 2]


@dataclass
class _Failure:
    error: EmberkeepError
    applied: bool


class MemoryJobStore:
    """Implements JobStore for one JobManager process. It never yields to the event loop."""

    def __init__(self, disk: MemoryDisk) -> None:
        self._disk = disk
        self._epoch: int | None = None
        self._failures: list[_Failure] = []

    def fail_next(self, error: EmberkeepError, *, applied: bool = False) -> None:
        """Let the next write raise ``error``; if ``applied``, only after it took effect. Repeated calls queue up."""
        self._failures.append(_Failure(error, applied))

    async def open(self) -> int:
        if self._epoch is not None or self._disk.leader is not None:
            raise Conflict("another JobManager uses this job store")
        self._disk.leader = self
        self._disk.epoch += 1
        self._epoch = self._disk.epoch
        return self._epoch

    @property
    def lineage(self) -> str:
        return self._disk.lineage

    async def confirm(self) -> None:
        _end(self._begin())

    async def create(self, graph: JobGraph) -> JobId:
        failure = self._begin()
        job_id = self._known(graph)
        if job_id is None:
            job_id = graph.job_id
            self._disk.jobs[job_id] = _Handle(msgspec.json.encode(graph), graph.idempotency_key)
        _end(failure)
        return job_id

    def _known(self, graph: JobGraph) -> JobId | None:
        keys = {handle.idempotency_key: job_id for job_id, handle in self._disk.jobs.items()}
        keys |= {result.idempotency_key: result.job_id for result in self._results()}
        if graph.idempotency_key in keys and graph.idempotency_key:
            return keys[graph.idempotency_key]
        if graph.job_id in self._disk.results:
            raise Conflict(f"job {graph.job_id} has ended", hint="submit it under a new id")
        if graph.job_id in self._disk.damaged:
            raise Conflict(
                f"job {graph.job_id} exists and is damaged; what is left of it is kept", hint="submit it under a new id"
            )
        handle = self._disk.jobs.get(graph.job_id)
        if handle is None:
            return None
        if handle.graph != msgspec.json.encode(graph):
            raise Conflict(f"job {graph.job_id} exists with another graph")
        return graph.job_id

    async def recover(self) -> list[StoredJob]:
        self._check_open()
        return [self._recovered(job_id, handle) for job_id, handle in self._disk.jobs.items()]

    async def recover_job(self, job_id: JobId) -> StoredJob | None:
        self._check_open()
        handle = self._disk.jobs.get(job_id)
        return None if handle is None else self._recovered(job_id, handle)

    def _recovered(self, job_id: JobId, handle: _Handle) -> StoredJob:
        graph, trouble, problem = None, None, ""
        try:
            if self._disk.away:
                trouble, problem = Trouble.AWAY, f"memory, {job_id}: cannot be read now"
            else:
                graph = msgspec.json.decode(handle.graph, type=JobGraph)
        except msgspec.DecodeError as error:
            trouble, problem = Trouble.DAMAGED, f"memory, {job_id}: {error}"
        asked = handle.procedure
        return StoredJob(
            job_id=job_id,
            attempt=handle.attempt,
            graph=graph,
            canceled=handle.canceled,
            trouble=trouble,
            problem=problem,
            idempotency_key=handle.idempotency_key if trouble else "",
            home=handle.home,
            pointers=_readable_pointers(handle),
            procedure=None if asked is None or asked.is_late_for(handle.attempt) else asked,
            stopped=handle.stopped,
        )

    async def record_attempt(self, job_id: JobId, attempt: int, home: DriverHome | None = None) -> None:
        failure = self._begin()
        handle = self._handle(job_id)
        if attempt <= handle.attempt:
            raise Conflict(f"attempt {attempt} of job {job_id} is not larger than {handle.attempt}")
        handle.attempt, handle.home = attempt, home
        if handle.procedure is not None and handle.procedure.procedure is Procedure.MOVE:
            handle.procedure = None
        _end(failure)

    async def record_cancel(self, job_id: JobId) -> None:
        failure = self._begin()
        self._handle(job_id).canceled = True
        _end(failure)

    async def record_procedure(self, job_id: JobId, request: ProcedureRequest | None) -> None:
        failure = self._begin()
        self._handle(job_id).procedure = request
        _end(failure)

    async def record_procedure_end(
        self, job_id: JobId, attempt: int, trigger_id: str, savepoint: SavepointPointer | None, *, stopped: bool
    ) -> JobPointers:
        failure = self._begin()
        handle = self._handle(job_id)
        pointers = self._merge(handle, job_id, attempt, (), (savepoint,) if savepoint else ())
        if handle.procedure is not None and handle.procedure.trigger_id == trigger_id:
            handle.procedure = None
        if stopped:
            handle.stopped = trigger_id
        _end(failure)
        return pointers

    def _handle(self, job_id: JobId) -> _Handle:
        handle = self._disk.jobs.get(job_id)
        if handle is None:
            raise Absent(f"job {job_id} has no handle")
        return handle

    async def record_checkpoints(
        self,
        job_id: JobId,
        attempt: int,
        queries: tuple[QueryCheckpoint, ...],
        savepoints: tuple[SavepointPointer, ...] = (),
    ) -> JobPointers:
        failure = self._begin()
        pointers = self._merge(self._handle(job_id), job_id, attempt, queries, savepoints)
        _end(failure)
        return pointers

    def _merge(
        self,
        handle: _Handle,
        job_id: JobId,
        attempt: int,
        queries: tuple[QueryCheckpoint, ...],
        savepoints: tuple[SavepointPointer, ...],
    ) -> JobPointers:
        if attempt != handle.attempt:
            raise Conflict(f"attempt {attempt} of job {job_id} is not the newest one, which is {handle.attempt}")
        try:
            known = _pointers(handle.pointers)
        except msgspec.DecodeError as error:
            raise Fatal(f"memory, checkpoints of job {job_id}: {error}") from None
        pointers = merged(known, attempt, queries, savepoints)
        handle.pointers = msgspec.json.encode(pointers)
        return pointers

    async def record_retention(
        self, job_id: JobId, retired: frozenset[str], gone: frozenset[str], retired_ms: int
    ) -> JobPointers:
        failure = self._begin()
        handle = self._handle(job_id)
        try:
            known = _pointers(handle.pointers)
        except msgspec.DecodeError as error:
            raise Fatal(f"memory, checkpoints of job {job_id}: {error}") from None
        pointers = after_retention(known, retired, gone, retired_ms)
        if pointers is not known:
            handle.pointers = msgspec.json.encode(pointers)
        _end(failure)
        return pointers

    async def record_result(self, result: JobResult) -> None:
        failure = self._begin()
        result = msgspec.structs.replace(result, savepoints=())
        known = self._disk.results.get(result.job_id)
        if known is None:
            handle = self._disk.jobs.pop(result.job_id, None)
            if handle is None:
                raise Absent(f"job {result.job_id} has no handle")
            if self._recovered(result.job_id, handle).trouble is Trouble.DAMAGED:
                self._disk.damaged[result.job_id] = self._disk.now_ms
            if not _can_be_read(handle.pointers):
                self._disk.torn_pointers.add(result.job_id)
            kept = _readable_pointers(handle).savepoints
            self._disk.results[result.job_id] = msgspec.json.encode(msgspec.structs.replace(result, savepoints=kept))
        elif msgspec.structs.replace(msgspec.json.decode(known, type=JobResult), savepoints=()) != result:
            raise Conflict(f"job {result.job_id} has ended with another result")
        _end(failure)

    async def results(self) -> list[JobResult]:
        self._check_open()
        return self._results()

    def _results(self) -> list[JobResult]:
        return [msgspec.json.decode(result, type=JobResult) for result in self._disk.results.values()]

    async def expire_results(self, keep: int) -> list[JobId]:
        failure = self._begin()
        expired = list(self._disk.results)[: max(0, len(self._disk.results) - keep)]
        for job_id in expired:
            del self._disk.results[job_id]
            if job_id in self._disk.torn_pointers:
                self._disk.damaged.setdefault(job_id, self._disk.now_ms)
        _end(failure)
        return expired

    async def damaged(self) -> list[DamagedJob]:
        self._check_open()
        return [
            DamagedJob(job_id=job_id, since_ms=since_ms, places=(f"memory, {job_id}",))
            for job_id, since_ms in self._disk.damaged.items()
        ]

    async def remove_damaged(self, job_id: JobId) -> None:
        failure = self._begin()
        if self._disk.away and job_id in self._disk.damaged:
            raise Unavailable(f"memory, {job_id}: cannot be removed now")
        if self._disk.damaged.pop(job_id, None) is not None:
            self._disk.torn_pointers.discard(job_id)
        _end(failure)

    async def record_blocklist(self, blocklist: Blocklist) -> None:
        failure = self._begin()
        self._disk.blocklist = msgspec.json.encode(blocklist)
        _end(failure)

    async def blocklist(self) -> Blocklist:
        self._check_open()
        if not self._disk.blocklist:
            return Blocklist()
        try:
            return msgspec.json.decode(self._disk.blocklist, type=Blocklist)
        except msgspec.DecodeError as error:
            raise Fatal(f"memory, blocklist: {error}") from None

    async def record_upgrade(self, upgrade: Upgrade) -> None:
        failure = self._begin()
        self._disk.upgrades[upgrade.upgrade_id] = msgspec.json.encode(upgrade)
        _end(failure)

    async def upgrades(self) -> list[Upgrade]:
        self._check_open()
        found = [msgspec.json.decode(each, type=Upgrade) for each in self._disk.upgrades.values()]
        return sorted(found, key=lambda each: (each.began_ms, each.upgrade_id))

    async def remove_upgrades(self, upgrade_ids: Iterable[str]) -> None:
        failure = self._begin()
        for each in upgrade_ids:
            self._disk.upgrades.pop(each, None)
        _end(failure)

    async def close(self) -> None:
        self._epoch = None
        if self._disk.leader is self:
            self._disk.leader = None

    def _check_open(self) -> None:
        if self._epoch is None:
            raise Conflict("this store is not open")

    def _begin(self) -> _Failure | None:
        """Start a write. Return the failure to raise after it took effect, if any."""
        self._check_open()
        failure = self._failures.pop(0) if self._failures else None
        if failure is not None and not failure.applied:
            raise failure.error
        if self._epoch != self._disk.epoch:
            raise Conflict(
                f"epoch {self._epoch} is over: a newer JobManager is the leader, with epoch {self._disk.epoch}"
            )
        return failure


def _end(failure: _Failure | None) -> None:
    if failure is not None:
        raise failure.error


def _pointers(data: bytes) -> JobPointers:
    """Decode pointers. Raises msgspec.DecodeError if they are damaged."""
    return msgspec.json.decode(data, type=JobPointers) if data else JobPointers()


def _readable_pointers(handle: _Handle) -> JobPointers:
    return _pointers(handle.pointers) if _can_be_read(handle.pointers) else JobPointers()


def _can_be_read(pointers: bytes) -> bool:
    try:
        _pointers(pointers)
    except msgspec.DecodeError:
        return False
    return True
