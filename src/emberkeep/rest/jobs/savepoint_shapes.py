"""Conversion of views of savepoints to bodies of the REST API. Pure functions."""

from __future__ import annotations

from emberkeep.jobmanager.views.cluster import JobView
from emberkeep.jobmanager.views.procedures import ProcedureView
from emberkeep.jobs.periodic.model import PeriodicView
from emberkeep.lifecycle.manifest import Manifest, QuerySavepoint
from emberkeep.lifecycle.model import ProcedurePhase, ProcedureProgress
from emberkeep.protocol.rest_jobs import PeriodicSavepointsInfo, ProcedureInfo
from emberkeep.protocol.rest_savepoints import (
    FailureCause,
    OperationStatus,
    QueueStatus,
    SavepointFileInfo,
    SavepointInfo,
    SavepointOutcome,
    SavepointQueryInfo,
    SavepointStatus,
)
from emberkeep.rest.jobs.java_throwable import serialized_throwable

_NEVER = -1
_FAILED = "ProcedureFailed"


def savepoint_status(view: ProcedureView, job: JobView, now_ms: int) -> SavepointStatus:
    outcome = None
    if view.is_over and view.failure:
        outcome = SavepointOutcome(failure_cause=failure_cause(_FAILED, view.failure))
    elif view.is_over:
        outcome = SavepointOutcome(location=view.savepoint)
    return SavepointStatus(
        status=QueueStatus(id=OperationStatus.COMPLETED if view.is_over else OperationStatus.IN_PROGRESS),
        operation=outcome,
        emberkeep=procedure_info(view, job, now_ms),
    )


def procedure_info(view: ProcedureView, job: JobView, now_ms: int) -> ProcedureInfo:
    told = view.progress or _nothing(view.trigger_id)
    requested = view.request.requested_ms if view.request is not None else _NEVER
    ended = told.ended_ms or _NEVER
    if view.request is not None and view.request.procedure.stops_job and not view.failure:
        ended = job.ended_ms if job.ended_ms is not None else _NEVER  # such a procedure ends with the job
    until = ended if ended != _NEVER else now_ms
    return ProcedureInfo(
        trigger_id=view.trigger_id,
        procedure=view.request.procedure if view.request is not None else None,
        phase=view.phase,
        detail=view.failure or told.detail,
        waiting=view.waiting,
        target_directory=view.request.target_directory if view.request is not None else "",
        files_done=told.files_done,
        files_total=told.files_total,
        bytes_done=told.bytes_done,
        bytes_total=told.bytes_total,
        requested=requested,
        started=told.started_ms or _NEVER,
        ended=ended,
        duration=max(0, until - requested) if requested != _NEVER else _NEVER,
        location=view.savepoint,
        manifest_sha256=view.manifest_sha256,
        job_status=job.status,
        warning="" if view.failure else told.warning,
        periodic=view.request is not None and view.request.periodic,
    )


def periodic_info(view: PeriodicView) -> PeriodicSavepointsInfo:
    settings = view.settings
    return PeriodicSavepointsInfo(
        interval=round(settings.interval * 1000),
        retained=settings.retained,
        max_age=round(settings.max_age * 1000),
        next=view.due_ms or _NEVER,
        newest=view.newest_ms or _NEVER,
        kept=view.kept,
        retiring=view.retiring,
        failures=view.failures,
        problem=view.problem,
    )


def failure_cause(kind: str, text: str) -> FailureCause:
    return FailureCause(kind=kind, stack_trace=text, serialized_throwable=serialized_throwable(kind, text))


def _nothing(trigger_id: str) -> ProcedureProgress:
    """Return the progress to show for a procedure that has not reported any. The phase in it is never shown."""
    return ProcedureProgress(trigger_id=trigger_id, phase=ProcedurePhase.FINISHING_BATCHES)


def savepoint_info(path: str, manifest: Manifest, sha256: str, command: str) -> SavepointInfo:
    return SavepointInfo(
        path=path,
        manifest_sha256=sha256,
        job_id=manifest.job_id,
        job_name=manifest.job_name,
        attempt=manifest.attempt,
        trigger_id=manifest.trigger_id,
        procedure=manifest.procedure,
        created=manifest.created_ms,
        spark_version=manifest.spark_version,
        emberkeep_version=manifest.emberkeep_version,
        size=manifest.total_size,
        queries=[_query(manifest, query) for query in manifest.queries],
        files=[SavepointFileInfo(path=file.path, size=file.size, sha256=file.sha256) for file in manifest.files],
        functions=[state.name for state in manifest.functions],
        restore_command=command,
    )


def _query(manifest: Manifest, query: QuerySavepoint) -> SavepointQueryInfo:
    files = manifest.files_of(query)
    return SavepointQueryInfo(
        key=query.key,
        name=query.name,
        query_id=query.query_id,
        sink=query.sink,
        output_mode=query.output_mode,
        target=query.target,
        location=query.location,
        batch_id=query.batch_id,
        offsets=list(query.offsets),
        watermark=query.watermark_ms,
        drained_from=query.drained_from,
        files=len(files),
        size=sum(file.size for file in files),
    )
