"""What the jobs domain needs from outside."""

from __future__ import annotations

import enum
from typing import Protocol

import msgspec

from emberkeep.base.ids import JobId
from emberkeep.blocklist.ports import BlocklistStore
from emberkeep.jobs.checkpoints import JobPointers, QueryCheckpoint, SavepointPointer
from emberkeep.jobs.damaged_leftovers import DamagedJob
from emberkeep.jobs.model import DriverHome, JobGraph, JobResult
from emberkeep.lifecycle.model import ProcedureRequest


class Trouble(enum.Enum):
    """Why a stored job cannot be read."""

    AWAY = "away"  # at present: nothing follows from that, it is to be read again
    DAMAGED = "damaged"  # it was read whole, and never will be what was written


class StoredJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job to recover: its graph (or why it cannot be read) and the newest attempt number ever written, with where
    the driver of that attempt was to be started."""

    job_id: JobId
    attempt: int
    graph: JobGraph | None
    canceled: bool = False  # it was asked to end
    trouble: Trouble | None = None  # of its graph or its attempt; None: there is a graph
    problem: str = ""  # the trouble in words, with where it lies; nothing of it is deleted then
    idempotency_key: str = ""  # where there is trouble: the one of the graph
    home: DriverHome | None = None
    pointers: JobPointers = JobPointers()  # empty also where they cannot be read: the job does not need them to run
    procedure: ProcedureRequest | None = None  # asked for and not recorded as ended
    stopped: str = ""  # trigger id of the procedure that has stopped it for good: no attempt may follow


class JobStore(BlocklistStore, Protocol):
    """The durable truth about jobs, and the blocklist. One leader writes; each write is refused (Conflict) once a newer
    leader has opened the store. A handle exists if and only if the job has to be recovered."""

    async def open(self) -> int:
        """Become the writer: raise and return the epoch. Raises Conflict while another process leads."""

    @property
    def lineage(self) -> str:
        """Names the life of the store that the epochs count in: another one was emptied, or lies elsewhere. Known once
        the store is open."""

    async def confirm(self) -> None:
        """Write something that changes nothing. Raises Conflict when this writer's epoch is over."""

    async def create(self, graph: JobGraph) -> JobId:
        """Write the graph, then its handle with attempt 0. Returns the graph's job id, or the id of the job that was
        created before under the same idempotency key (running or ended): then nothing is written. Raises Conflict when
        the id is another job's, also one of which only damaged records are left."""

    async def recover(self) -> list[StoredJob]:
        """All jobs with a handle, oldest submission first. An unreadable graph spoils only its own entry."""

    async def recover_job(self, job_id: JobId) -> StoredJob | None:
        """One of them, read again; None when it has no handle any more."""

    async def record_attempt(self, job_id: JobId, attempt: int, home: DriverHome | None = None) -> None:
        """Write the attempt number and where its driver is to be started, before it starts. A MOVE that was asked for
        has ended with that. Raises Conflict unless the number is larger than the stored one, Absent when the job has no
        handle."""

    async def record_cancel(self, job_id: JobId) -> None:
        """Write that the job is to be canceled, so that the next leader knows; repeating it does nothing. Raises Absent
        when the job has no handle."""

    async def record_procedure(self, job_id: JobId, request: ProcedureRequest | None) -> None:
        """Write what the job is asked to do, in place of what it was asked before; None: nothing any more. Repeating it
        does nothing. Raises Absent when the job has no handle."""

    async def record_procedure_end(
        self, job_id: JobId, attempt: int, trigger_id: str, savepoint: SavepointPointer | None, *, stopped: bool
    ) -> JobPointers:
        """In one transaction: keep the savepoint that a procedure has made, take its request away, and with ``stopped``
        write that it has stopped the job for good. Returns all pointers. Repeating it does nothing. Raises Conflict
        unless ``attempt`` is the newest one, Absent when the job has no handle, Fatal when the stored pointers cannot
        be read (they stay)."""

    async def record_checkpoints(
        self,
        job_id: JobId,
        attempt: int,
        queries: tuple[QueryCheckpoint, ...],
        savepoints: tuple[SavepointPointer, ...] = (),
    ) -> JobPointers:
        """Merge what an attempt reports into the job's pointers; returns all of them. Raises Conflict unless it is the
        newest attempt, Absent when the job has no handle, Fatal when the stored pointers cannot be read (they stay)."""

    async def record_result(self, result: JobResult) -> None:
        """In one transaction: write the result with the job's savepoints, remove the handle and the pointers. Writing
        the same result again does nothing; raises Conflict when a different result exists (a final state never
        changes). ``result.savepoints`` is not looked at: the store knows them."""

    async def results(self) -> list[JobResult]:
        """Results not yet expired, oldest first."""

    async def expire_results(self, keep: int) -> list[JobId]:
        """Forget all but the newest ``keep`` results; returns the ids of those forgotten."""

    async def damaged(self) -> list[DamagedJob]:
        """What is kept of jobs that ended while their graph, handle or attempt was damaged, oldest first."""

    async def remove_damaged(self, job_id: JobId) -> None:
        """Remove what is kept of such a job: its graph, then its record. Nothing there: nothing is done. Raises
        Unavailable while its graph cannot be removed; the record stays then."""

    async def close(self) -> None:
        """Give up the store; idempotent."""
