"""The ports of the jobs domain: stored jobs and the job store."""

from __future__ import annotations

import enum
from typing import Protocol

import msgspec

from emberkeep.base.ids import JobId
from emberkeep.blocklist.ports import BlocklistStore
from emberkeep.jobs.checkpoints import JobPointers, QueryCheckpoint, SavepointPointer
from emberkeep.jobs.damaged_leftovers import DamagedJob
from emberkeep.jobs.model import DriverHome, JobGraph, JobResult
from emberkeep.jobs.upgrades.ports import UpgradeStore
from emberkeep.lifecycle.model import ProcedureRequest


class Trouble(enum.Enum):
    """The reason why a stored job cannot be read."""

    AWAY = "away"  # unavailable now; this proves nothing, so read it again later
    DAMAGED = "damaged"  # read completely, and it differs permanently from what was written


class StoredJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job to recover: its graph (or why it cannot be read) and the newest attempt number ever written.

    ``home``: where that attempt's driver was ordered to start.
    """

    job_id: JobId
    attempt: int
    graph: JobGraph | None
    canceled: bool = False  # a cancellation was requested
    trouble: Trouble | None = None  # of the graph or the attempt; None: there is a graph
    problem: str = ""  # why it cannot be read, and where it is stored; nothing is deleted there
    idempotency_key: str = ""  # if it cannot be read: the graph's key
    home: DriverHome | None = None
    pointers: JobPointers = JobPointers()  # also empty if they are unreadable: the job runs without them
    procedure: ProcedureRequest | None = None  # requested and not recorded as ended
    stopped: str = ""  # trigger id of the procedure that stopped the job, after which no attempt may follow
    over: bool = False  # the newest attempt was lost with its cluster: its driver is not awaited


class JobStore(BlocklistStore, UpgradeStore, Protocol):
    """The durable records of jobs and upgrades, and the blocklist. Only one leader writes.

    Each write raises Conflict once a newer leader has opened the store. A handle exists if and only if the job must be
    recovered.
    """

    async def open(self) -> int:
        """Become the writer: increment and return the epoch. Raises Conflict while another process leads."""

    @property
    def lineage(self) -> str:
        """Name of the store in which the epochs count. It changes if the store is emptied or replaced.

        Known once the store is open.
        """

    async def confirm(self) -> None:
        """Make a write that changes no record, to prove that writes succeed. Raises Conflict under a newer epoch."""

    async def create(self, graph: JobGraph) -> JobId:
        """Write the graph, then its handle with attempt 0; return the graph's job id.

        If a job was created before under the same idempotency key (running or ended), write nothing and return that
        job's id. Raises Conflict if the id belongs to another job, including one of which only damaged records are
        left.
        """

    async def recover(self) -> list[StoredJob]:
        """Return all jobs with a handle, oldest submission first. An unreadable graph affects only its own entry."""

    async def recover_job(self, job_id: JobId) -> StoredJob | None:
        """Read a job of ``recover`` again; return None if the job no longer has a handle."""

    async def record_attempt(self, job_id: JobId, attempt: int, home: DriverHome | None = None) -> None:
        """Write the attempt number, and where its driver will be started, before the start. This ends a requested MOVE.

        Raises Conflict unless the number is larger than the stored one, Absent if the job has no handle.
        """

    async def record_cancel(self, job_id: JobId) -> None:
        """Write that the job must be canceled, so that the next leader knows. Idempotent.

        Raises Absent if the job has no handle.
        """

    async def record_procedure(self, job_id: JobId, request: ProcedureRequest | None) -> None:
        """Write the job's current request, replacing the previous one. None removes the request. Idempotent.

        Raises Absent if the job has no handle.
        """

    async def record_procedure_end(
        self, job_id: JobId, attempt: int, trigger_id: str, savepoint: SavepointPointer | None, *, stopped: bool
    ) -> JobPointers:
        """Keep the savepoint that a procedure has made, and remove its request, in one transaction. Idempotent.

        With ``stopped``, also write that the procedure has stopped the job permanently. Returns all pointers. Raises
        Conflict unless ``attempt`` is the newest one, Absent if the job has no handle, Fatal if the stored pointers
        cannot be read (they stay).
        """

    async def record_checkpoints(
        self,
        job_id: JobId,
        attempt: int,
        queries: tuple[QueryCheckpoint, ...],
        savepoints: tuple[SavepointPointer, ...] = (),
    ) -> JobPointers:
        """Merge an attempt's report into the job's pointers; return all pointers.

        Raises Conflict unless it is the newest attempt, Absent if the job has no handle, Fatal if the stored pointers
        cannot be read (they stay).
        """

    async def record_retention(
        self, job_id: JobId, retired: frozenset[str], gone: frozenset[str], retired_ms: int
    ) -> JobPointers:
        """Mark the job's periodic savepoints at these paths as retired, and forget those that are gone.

        Idempotent. Returns all pointers. Raises Absent if the job has no handle, Fatal if the stored pointers cannot be
        read (they stay).
        """

    async def record_result(self, result: JobResult) -> None:
        """Write the result with the job's savepoints, and remove the handle and the pointers, in one transaction.

        Writing the same result again does nothing. Raises Conflict if a different result exists: a final state never
        changes. ``result.savepoints`` is ignored, because the store knows the savepoints.
        """

    async def results(self) -> list[JobResult]:
        """Return the results that have not expired, oldest first."""

    async def expire_results(self, keep: int) -> list[JobId]:
        """Forget all but the newest ``keep`` results; return the ids of the forgotten ones."""

    async def damaged(self) -> list[DamagedJob]:
        """Return the records kept of jobs that ended while their graph, handle or attempt was damaged, oldest first."""

    async def remove_damaged(self, job_id: JobId) -> None:
        """Remove the remains of a damaged job, if any: its graph, then its record.

        Raises Unavailable if the graph cannot be removed; the record stays in that case.
        """

    async def close(self) -> None:
        """Close the store; idempotent."""
