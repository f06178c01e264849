"""Views of savepoints, suspends, drains and moves for the edges, which also request them here."""

from __future__ import annotations

from typing import Protocol

import msgspec

from emberkeep.base.ids import JobId
from emberkeep.lifecycle.model import ProcedurePhase, ProcedureProgress, ProcedureRequest
from emberkeep.lifecycle.requests.events import Ended
from emberkeep.lifecycle.requests.machine import RequestMachine


class ProcedureView(msgspec.Struct, frozen=True, kw_only=True):
    """One request about one job.

    ``request``: None if an earlier leader got it, and what is recorded does not say what it was. ``is_over``: True once
    nothing more will happen; for a request that stops the job, once the job has ended.
    """

    job_id: JobId
    trigger_id: str
    request: ProcedureRequest | None
    progress: ProcedureProgress | None = None  # the newest report about it
    is_over: bool = False
    savepoint: str = ""  # its path, once the savepoint is recorded
    manifest_sha256: str = ""
    failure: str = ""  # why it ended without success
    waiting: str = ""  # a text that names what it waits for, while it cannot proceed

    @property
    def phase(self) -> ProcedurePhase | None:
        """The request's phase; None if the request has not begun yet."""
        if self.failure:
            return ProcedurePhase.FAILED
        if self.savepoint or self.is_over:
            return ProcedurePhase.COMPLETED
        return self.progress.phase if self.progress is not None else None


class ProcedureGateway(Protocol):
    """Requests for savepoints, suspends, drains and moves, and their progress."""

    async def request_procedure(self, job_id: JobId, request: ProcedureRequest) -> ProcedureRequest:
        """Record durably what a job is asked to do. Repeating a request has no effect.

        Once this returns, the request will be carried out or a failure reported, whichever process fails in between.
        Returns the request with its target directory and deadline. If it names none, those configured for the job or
        cluster apply. If no directory is configured, it is one in the cluster's storage.

        Raises Absent (no such job); Conflict if the job is already doing something else or is ending; RetryLater,
        UnknownOutcome, Fatal.
        """

    async def procedure(self, job_id: JobId, trigger_id: str) -> ProcedureView:
        """Return the progress of a request. Raises Absent if the job, or this request about it, is unknown."""


def view_of_newest(job_id: JobId, requests: RequestMachine, waiting: str = "") -> ProcedureView | None:
    """Return the request that the job carries out now, or the one that has stopped it; None without either.

    ``waiting``: a text that names what the job waits for.
    """
    newest, progress = requests.newest, requests.progress
    if newest is not None:
        return ProcedureView(
            job_id=job_id,
            trigger_id=newest.trigger_id,
            request=newest,
            progress=progress,
            waiting=waiting if progress is None else "",
        )
    if requests.stopped is None:
        return None
    ended = view_of_ended(job_id, requests.stopped)
    return msgspec.structs.replace(ended, is_over=False, waiting="the end of its script")


def view_of_ended(job_id: JobId, ended: Ended) -> ProcedureView:
    """Return a request about which nothing more will happen."""
    return ProcedureView(
        job_id=job_id,
        trigger_id=ended.trigger_id,
        request=ended.request,
        progress=ended.progress,
        is_over=True,
        savepoint=ended.savepoint,
        manifest_sha256=ended.manifest_sha256,
        failure=ended.failure,
    )
