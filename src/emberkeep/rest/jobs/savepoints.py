"""Stops and savepoints of jobs, and operations on savepoint directories."""

from __future__ import annotations

import asyncio
import re
from typing import Annotated

import msgspec
import structlog
from msgspec import Meta

from emberkeep.base.errors import Conflict, EmberkeepError, InvalidInput, RetryLater
from emberkeep.base.identity import Role
from emberkeep.base.request_context import name_target
from emberkeep.identities.job_access import visible
from emberkeep.jobmanager.views.restore_command import restore_command
from emberkeep.jobs.upgrades.needs import needed_savepoints
from emberkeep.lifecycle.locations import is_same_place
from emberkeep.lifecycle.manifest import DELETING_NAME, MANIFEST_NAME
from emberkeep.lifecycle.model import Procedure, ProcedureRequest
from emberkeep.protocol.rest_savepoints import (
    DisposalStatus,
    FailureCause,
    OperationStatus,
    QueueStatus,
    SavepointCheck,
    SavepointFiles,
    SavepointInfo,
    SavepointList,
    SavepointOutcome,
    SavepointPath,
    SavepointRequest,
    SavepointStatus,
    StopRequest,
    TriggerExtension,
    TriggerResponse,
)
from emberkeep.rest.jobs.savepoint_access import check_manifest_access, check_savepoint_access
from emberkeep.rest.jobs.savepoint_list import ListSavepoints, savepoint_list
from emberkeep.rest.jobs.savepoint_shapes import failure_cause, savepoint_info, savepoint_status
from emberkeep.rest.jobs.savepoint_verification import verified_files
from emberkeep.rest.serving.api import Api
from emberkeep.rest.serving.locations import check_location
from emberkeep.rest.serving.routing import CheckedRequest, Route

MAX_TIMEOUT = 7 * 24 * 3_600_000  # milliseconds
_TRIGGER = re.compile(r"[0-9a-f]{32}")
_WITHDRAW_SECONDS = 10.0  # for one rename

log = structlog.get_logger(__name__)


class ReadSavepoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query parameters of a savepoint's manifest."""

    path: Annotated[str, Meta(description="The savepoint's directory.")]


# --- jobs -------------------------------------------------------------------------------------------------------------


async def stop(call: CheckedRequest) -> msgspec.Struct:
    body: StopRequest = call.body
    procedure = Procedure.DRAIN if body.drain else Procedure.SUSPEND
    target = checked_target(body.target_directory, "targetDirectory")
    return await _ask(call, procedure, target, body.trigger_id, body.timeout)


async def make_savepoint(call: CheckedRequest) -> msgspec.Struct:
    body: SavepointRequest = call.body
    procedure = Procedure.SUSPEND if body.cancel_job else Procedure.SAVEPOINT
    target = checked_target(body.target_directory, "target-directory")
    return await _ask(call, procedure, target, body.trigger_id, body.timeout)


async def _ask(
    call: CheckedRequest, procedure: Procedure, target: str, trigger_id: str | None, limit_ms: int | None
) -> msgspec.Struct:
    now = call.api.now_ms()
    request = ProcedureRequest(
        trigger_id=_trigger(call.api, trigger_id),
        procedure=procedure,
        target_directory=target,
        requested_ms=now,
        deadline_ms=0 if limit_ms is None else now + checked_timeout(limit_ms),
    )
    asked = await call.api.gateway.request_procedure(call.path["jobid"], request)
    extension = TriggerExtension(
        procedure=asked.procedure, target_directory=asked.target_directory, deadline=asked.deadline_ms
    )
    return TriggerResponse(request_id=asked.trigger_id, emberkeep=extension)


async def savepoint_of_job(call: CheckedRequest) -> msgspec.Struct:
    gateway, job_id = call.api.gateway, call.path["jobid"]
    view = await gateway.procedure(job_id, call.path["triggerid"])
    return savepoint_status(view, await gateway.job(job_id), call.api.now_ms())


def _trigger(api: Api, given: str | None) -> str:
    if given is None:
        return api.system.ids.hex32()
    if not _TRIGGER.fullmatch(given):
        raise InvalidInput(
            f"{given[:64]!r} is not a trigger id",
            field="triggerId",
            hint="send 32 lower-case hex digits, or leave it out",
        )
    return given


def checked_timeout(given: int, field: str = "timeout") -> int:
    """Return ``given``, in milliseconds. Raises InvalidInput unless it is more than 0 and at most MAX_TIMEOUT."""
    if not 0 < given <= MAX_TIMEOUT:
        raise InvalidInput(
            f"{field} cannot be {given} ms", field=field, hint=f"milliseconds, more than 0, at most {MAX_TIMEOUT}"
        )
    return given


def checked_target(given: str | None, field: str) -> str:
    """Return the requested target directory, a URI or path; "" to use the configured default. Raises InvalidInput."""
    if given is None:
        return ""
    check_location(given, field)
    return given


# --- savepoint directories --------------------------------------------------------------------------------------------


async def savepoints(call: CheckedRequest) -> msgspec.Struct:
    return savepoint_list(await call.jobs(), call.query, call.api.verified_savepoints)


async def manifest(call: CheckedRequest) -> msgspec.Struct:
    path = call.query.path
    check_location(path, "path")
    await check_savepoint_access(call, path)
    async with call.api.manifest_reads.place():
        found, sha256 = await call.api.savepoints.manifest(path)
    await check_manifest_access(call, path, found)
    seen = visible(call.identity, await call.api.gateway.jobs_of([found.job_id]))
    command = next((restore_command(path, job.graph) for job in seen if job.graph is not None), "")
    return savepoint_info(path, found, sha256, command)


async def verify(call: CheckedRequest) -> msgspec.Struct:
    body: SavepointFiles = call.body
    check_location(body.savepoint_path, "savepoint-path")
    await check_savepoint_access(call, body.savepoint_path)
    async with call.api.verifications.place():
        return await verified_files(call.api, body)


async def dispose(call: CheckedRequest) -> msgspec.Struct:
    body: SavepointPath = call.body
    check_location(body.savepoint_path, "savepoint-path")
    name_target(call.request, path=body.savepoint_path)
    trigger_id = call.api.system.ids.hex32()
    call.api.disposals.start(trigger_id, _dispose(call.api, body.savepoint_path))
    return TriggerResponse(request_id=trigger_id)


async def _dispose(api: Api, path: str) -> tuple[str, ...]:
    """Delete the savepoint at ``path``. Return the names of some files left there because they are not part of it.

    Raises what ``_check_unneeded`` raises, and Conflict if a job that starts from it is being submitted.

    Another JobManager may lead since the first check, and accept such a job. A job that was accepted before the second
    check makes that check fail; a later one no longer finds the savepoint.
    """
    async with api.gateway.disposing(path):
        await _check_unneeded(api, path)
        is_new = await api.savepoints.begin_disposal(path)
        try:
            await _check_unneeded(api, path)
        except (EmberkeepError, asyncio.CancelledError):  # cancelled: this JobManager leads no longer
            if is_new:  # otherwise files may be gone
                await _withdraw(api, path)
            raise
        left = await api.savepoints.dispose(path)
    api.verified_savepoints.forget(path)
    return left


async def _withdraw(api: Api, path: str) -> None:
    """Give the savepoint back to jobs that start from it. Log what a person must do if that fails."""
    try:
        async with asyncio.timeout(_WITHDRAW_SECONDS):
            await api.savepoints.withdraw_disposal(path)
    except (EmberkeepError, TimeoutError) as error:
        log.error(
            "a savepoint that is whole stays marked as being deleted: rename its manifest back",
            manifest=f"{path}/{DELETING_NAME}",
            name=MANIFEST_NAME,
            reason=str(error) or f"no answer within {_WITHDRAW_SECONDS:.0f} s",
        )


async def _check_unneeded(api: Api, path: str) -> None:
    """Raise Conflict if a job may need the savepoint at ``path``.

    That is, if an upgrade that goes on needs it, or if a job that has not ended started from it, whose next attempt may
    read it again. Raises RetryLater if that is not known: a job's graph cannot be read, or another JobManager may lead.
    """
    for view in await api.gateway.jobs():
        if view.graph is None and not view.status.is_globally_terminal:
            raise RetryLater(
                f"job {view.job_id} may have been started from {path}: its graph cannot be read now",
                hint="try again when the job's graph can be read",
            )
        ongoing = None if view.upgrade is None else view.upgrade.upgrade
        if ongoing is not None and any(is_same_place(each, path) for each in needed_savepoints(ongoing, view.pointers)):
            raise Conflict(
                f"the upgrade of job {ongoing.job_id} ({view.name}) needs {path}",
                hint="delete the savepoint when the upgrade has ended",
            )
        starts_from = "" if view.status.is_globally_terminal else view.started_from
        if starts_from and is_same_place(starts_from, path):
            raise Conflict(
                f"job {view.job_id} ({view.name}) was started from {path} and may need it for a restart",
                hint="delete the savepoint when that job has ended, or stop that job with a savepoint of its own",
            )
    if not await api.gateway.is_confirmed():
        raise RetryLater("the job store does not confirm that this JobManager knows all jobs", hint="try again")


async def disposal(call: CheckedRequest) -> msgspec.Struct:
    operation = call.api.disposals.find(call.path["triggerid"])
    if not operation.done:
        return DisposalStatus(status=QueueStatus(id=OperationStatus.IN_PROGRESS), operation=None)
    outcome = SavepointOutcome(failure_cause=None if operation.error is None else _cause(operation.error))
    return DisposalStatus(status=QueueStatus(id=OperationStatus.COMPLETED), operation=outcome, left=operation.left)


def _cause(error: EmberkeepError) -> FailureCause:
    return failure_cause(type(error).__name__, str(error))


_ASK_DOC = (
    "The request is durable when the reply comes: a later JobManager and the job's next attempt continue it. A repeat "
    "with the same `triggerId` counts as the same request. 409: the job is busy with another request, is ending or has "
    "ended. 503: for example, a periodic savepoint is being made; try again. If the running micro-batches do not end "
    "within `timeout`, the request fails and the job continues."
)

ROUTES = (
    Route(
        "POST",
        "/jobs/{jobid}/stop",
        stop,
        "Stop a job with a savepoint: suspend it, or drain it",
        "Savepoints",
        role=Role.SUBMITTER,
        status=202,
        reply=TriggerResponse,
        body=StopRequest,
        problems=(404, 409, 503, 504),
        doc=_ASK_DOC + " The job is FINISHED when its script has ended.",
    ),
    Route(
        "POST",
        "/jobs/{jobid}/savepoints",
        make_savepoint,
        "Make a savepoint of a job, which continues to run",
        "Savepoints",
        role=Role.SUBMITTER,
        status=202,
        reply=TriggerResponse,
        body=SavepointRequest,
        problems=(404, 409, 503, 504),
        doc=_ASK_DOC,
    ),
    Route(
        "GET",
        "/jobs/{jobid}/savepoints/{triggerid}",
        savepoint_of_job,
        "Progress of a savepoint or stop",
        "Savepoints",
        role=Role.VIEWER,
        reply=SavepointStatus,
        problems=(404, 503),
        doc="Also 404 for a request that failed under an earlier leader. Completed savepoints stay known.",
    ),
    Route(
        "GET",
        "/savepoints",
        savepoints,
        "Savepoints of all jobs that the caller sees",
        "Savepoints",
        role=Role.VIEWER,
        shared=True,
        reply=SavepointList,
        query=ListSavepoints,
        doc="Newest first, part by part: `next` is the `before` of the next part.",
    ),
    Route(
        "GET",
        "/savepoints/manifest",
        manifest,
        "Contents of a savepoint",
        "Savepoints",
        role=Role.VIEWER,
        shared=True,
        reply=SavepointInfo,
        query=ReadSavepoint,
        problems=(404, 503),
        doc="The JobManager reads the manifest in that directory, whichever cluster made it. 400: the manifest is "
        "damaged, or the location cannot be read. 503: its storage does not answer, or does not permit it.",
    ),
    Route(
        "POST",
        "/savepoint-verification",
        verify,
        "Read all of a savepoint and compare it with its manifest",
        "Savepoints",
        role=Role.SUBMITTER,
        shared=True,
        reply=SavepointCheck,
        body=SavepointFiles,
        problems=(404, 503),
        doc="The reply comes when all files have been read.",
    ),
    Route(
        "POST",
        "/savepoint-disposal",
        dispose,
        "Delete a savepoint",
        "Savepoints",
        role=Role.OPERATOR,
        reply=TriggerResponse,
        body=SavepointPath,
        problems=(503,),
        doc="Only a directory with a savepoint's manifest is deleted, and only if no unfinished job was started from "
        "it. While that is not known, the deletion fails with `RetryLater`. Until its end, no job is accepted that "
        "starts from it.",
    ),
    Route(
        "GET",
        "/savepoint-disposal/{triggerid}",
        disposal,
        "Progress of a deletion",
        "Savepoints",
        role=Role.OPERATOR,
        reply=DisposalStatus,
        problems=(404,),
    ),
)
