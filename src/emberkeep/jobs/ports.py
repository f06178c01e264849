"""What the jobs domain needs from outside."""

from __future__ import annotations

from typing import Protocol

import msgspec

from emberkeep.base.ids import JobId
from emberkeep.jobs.model import JobGraph, JobResult


class StoredJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job to recover: its graph (or why it cannot be read) and the newest attempt number ever written."""

    job_id: JobId
    attempt: int
    graph: JobGraph | None
    canceled: bool = False  # it was asked to end
    problem: str = ""  # with where the unreadable graph lies; the graph is never deleted then


class JobStore(Protocol):
    """The durable truth about jobs. One leader writes; each write is refused (Conflict) once a newer leader has opened
    the store. A handle exists if and only if the job has to be recovered."""

    async def open(self) -> int:
        """Become the writer: raise and return the epoch. Raises Conflict while another process leads."""

    async def create(self, graph: JobGraph) -> JobId:
        """Write the graph, then its handle with attempt 0. Returns the graph's job id, or the id of the job that was
        created before under the same idempotency key (running or ended): then nothing is written."""

    async def recover(self) -> list[StoredJob]:
        """All jobs with a handle, oldest submission first. An unreadable graph spoils only its own entry."""

    async def record_attempt(self, job_id: JobId, attempt: int) -> None:
        """Write the attempt number, before the driver starts. Raises Conflict unless it is larger than the stored one,
        Absent when the job has no handle."""

    async def record_cancel(self, job_id: JobId) -> None:
        """Write that the job is to be canceled, so that the next leader knows; repeating it does nothing. Raises Absent
        when the job has no handle."""

    async def record_result(self, result: JobResult) -> None:
        """In one transaction: write the result, remove the handle. Writing the same result again does nothing; raises
        Conflict when a different result exists (a final state never changes)."""

    async def results(self) -> list[JobResult]:
        """Results not yet expired, oldest first."""

    async def expire_results(self, keep: int) -> list[JobId]:
        """Forget all but the newest ``keep`` results; returns the ids of those forgotten."""

    async def close(self) -> None:
        """Give up the store; idempotent."""
