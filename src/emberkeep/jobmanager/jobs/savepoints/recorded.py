"""Savepoints as the job store records them: from the end that a request reports, and back to that end. Pure."""

from __future__ import annotations

from emberkeep.base.clock import MOST_MS
from emberkeep.jobs.checkpoints import JobPointers, SavepointPointer
from emberkeep.lifecycle.model import ProcedurePhase, ProcedureProgress, ProcedureRequest
from emberkeep.lifecycle.requests.events import Ended


def pointer_of(request: ProcedureRequest, progress: ProcedureProgress) -> SavepointPointer | None:
    """Return the record of the savepoint that a completed request has made; None if it can have made none."""
    if not progress.savepoint:
        return None
    pointer = SavepointPointer(
        path=progress.savepoint,
        manifest_sha256=progress.manifest_sha256,
        created_ms=max(0, min(progress.ended_ms, MOST_MS)),  # by the driver's clock, which may be anything
        trigger_id=progress.trigger_id,
        periodic=request.periodic,
        procedure=request.procedure,
        size=progress.bytes_total or None,
        duration_ms=max(0, progress.ended_ms - progress.started_ms) if progress.started_ms else None,
    )
    return pointer if pointer.is_recordable else None


def recorded_end(trigger_id: str, pointers: JobPointers) -> Ended | None:
    """Return the end of the request that made one of the job's savepoints; None if no savepoint has this trigger id.

    An earlier leader may have got the request. What the record does not have is left out.
    """
    pointer = pointers.savepoint_of(trigger_id)
    if pointer is None:
        return None
    request, progress = _request_and_progress(pointer)
    return Ended(
        trigger_id=trigger_id,
        request=request,
        progress=progress,
        savepoint=pointer.path,
        manifest_sha256=pointer.manifest_sha256,
    )


def _request_and_progress(
    pointer: SavepointPointer,
) -> tuple[ProcedureRequest | None, ProcedureProgress | None]:
    """Return request and progress as far as the record has them; neither if an earlier release has written it."""
    if pointer.procedure is None:
        return None, None
    started_ms = pointer.created_ms - (pointer.duration_ms or 0)
    request = ProcedureRequest(
        trigger_id=pointer.trigger_id,
        procedure=pointer.procedure,
        target_directory=pointer.path.rstrip("/").rpartition("/")[0],
        requested_ms=started_ms,
        periodic=pointer.periodic,
    )
    size = pointer.size or 0
    progress = ProcedureProgress(
        trigger_id=pointer.trigger_id,
        phase=ProcedurePhase.COMPLETED,
        started_ms=started_ms,
        ended_ms=pointer.created_ms,
        bytes_done=size,
        bytes_total=size,
        savepoint=pointer.path,
        manifest_sha256=pointer.manifest_sha256,
    )
    return request, progress
