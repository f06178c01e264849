"""What the edges see of savepoints, suspends, drains and moves, and how they ask for them."""

from __future__ import annotations

from typing import Protocol

import msgspec

from emberkeep.base.ids import JobId
from emberkeep.lifecycle.model import ProcedurePhase, ProcedureProgress, ProcedureRequest


class ProcedureView(msgspec.Struct, frozen=True, kw_only=True):
    """One request about one job. ``request`` None: it was asked for in an earlier JobManager's life, and only its
    savepoint is known. ``is_over``: nothing more will come of it; of one that ends the job, once the job has ended."""

    job_id: JobId
    trigger_id: str
    request: ProcedureRequest | None
    progress: ProcedureProgress | None = None  # the newest word about it
    is_over: bool = False
    savepoint: str = ""  # its path, once it is durable that there is one
    manifest_sha256: str = ""
    failure: str = ""  # over, and not done: why
    waiting: str = ""  # what it waits for, in words, while nothing can be done about it

    @property
    def phase(self) -> ProcedurePhase | None:
        """None: it was not begun yet."""
        if self.failure:
            return ProcedurePhase.FAILED
        if self.savepoint or self.is_over:
            return ProcedurePhase.COMPLETED
        return self.progress.phase if self.progress is not None else None


class ProcedureGateway(Protocol):
    """Savepoints and stops."""

    async def request_procedure(self, job_id: JobId, request: ProcedureRequest) -> ProcedureRequest:
        """Ask a job for something, durably: when this returns, it will be done, or it will be told why not, whatever
        fails meanwhile. The same request again does nothing. Returns it with the target directory and the deadline
        that it has got: where it names none, the job's or cluster's configured ones; a directory that is configured
        nowhere is one in the cluster's storage.

        Raises Absent (no such job); Conflict when the job does something else already, or is ending; RetryLater,
        UnknownOutcome, Fatal.
        """

    async def procedure(self, job_id: JobId, trigger_id: str) -> ProcedureView:
        """How far it has come. Raises Absent: the job, or that request of it, is not known."""
