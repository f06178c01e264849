"""Upgrades of jobs to new code."""

from __future__ import annotations

import re

import msgspec

from emberkeep.base.errors import Absent, Forbidden, InvalidInput, RetryLater
from emberkeep.base.identity import Role
from emberkeep.base.ids import JobId
from emberkeep.base.request_context import name_target
from emberkeep.identities.job_access import may_act, sees
from emberkeep.jobmanager.views.cluster import JobView
from emberkeep.jobmanager.views.upgrades import UpgradeView, UpgradeWish
from emberkeep.jobs.model import JobGraph
from emberkeep.protocol.rest_submission import JobSubmission
from emberkeep.protocol.upgrades.rest_upgrades import MOST_BATCHES, MOST_RESTARTS, UpgradeInfo, UpgradeRequest
from emberkeep.rest.jobs.savepoints import checked_target, checked_timeout
from emberkeep.rest.jobs.submission import job_graph
from emberkeep.rest.jobs.submission_checks import check_submission
from emberkeep.rest.jobs.upgrade_shapes import upgrade_info
from emberkeep.rest.serving.api import Api
from emberkeep.rest.serving.job_access import no_such_job
from emberkeep.rest.serving.routing import CheckedRequest, Route

_ID = re.compile(r"[0-9a-f]{32}")


async def upgrade(call: CheckedRequest) -> msgspec.Struct:
    body: UpgradeRequest = call.body
    job_id: JobId = call.path["jobid"]
    _check(body)
    view = await call.api.gateway.job(job_id)
    if view.unreadable:
        raise RetryLater(f"job {job_id} waits for {view.waiting}", hint="its driver continues to run; try again later")
    if view.upgrade is not None and view.upgrade.upgrade.upgrade_id == body.upgrade_id:
        return upgrade_info(view.upgrade)  # the request is repeated, and the old job may have ended since
    new = job_graph(call, _in_namespace_of(view, body), body.upgrade_id)
    wish = UpgradeWish(
        upgrade_id=body.upgrade_id,
        new=new,
        back=_back(call.api, view),
        batches=body.batches,
        within_ms=body.within,
        restarts=body.restarts,
        target_directory=checked_target(body.target_directory, "target-directory"),
        limit_ms=0 if body.timeout is None else checked_timeout(body.timeout),
    )
    name_target(call.request, jobid=job_id, newjobid=new.job_id)
    return upgrade_info(await call.api.gateway.upgrade(job_id, wish))


async def upgrade_of(call: CheckedRequest) -> msgspec.Struct:
    return upgrade_info(await _seen(call, acts=False))


async def cancel_upgrade(call: CheckedRequest) -> msgspec.Struct:
    await _seen(call, acts=True)
    return upgrade_info(await call.api.gateway.cancel_upgrade(call.path["jobid"]))


async def _seen(call: CheckedRequest, *, acts: bool) -> UpgradeView:
    """Return the upgrade. It may be known for longer than the job in the path, so the access is checked here as well.

    Raises Absent, Forbidden.
    """
    job_id: JobId = call.path["jobid"]
    view = await call.api.gateway.upgrade_of(job_id)
    if not sees(call.identity, view.upgrade):
        raise no_such_job(job_id)
    if acts and not may_act(call.identity, view.upgrade):
        raise Forbidden(f"{call.identity.name!r} may not change the upgrade of job {view.upgrade.job_id}")
    return view


def _check(body: UpgradeRequest) -> None:
    """Raise InvalidInput for the first invalid field."""
    if not _ID.fullmatch(body.upgrade_id):
        raise InvalidInput("not an upgrade id", field="upgrade-id", hint="send 32 lower-case hex digits")
    check_submission(body.submission)
    if not body.submission.jobid:
        raise InvalidInput("the new job needs an id", field="submission.jobid", hint="choose 32 random hex digits")
    if body.submission.savepoint:
        raise InvalidInput("the new job starts from the savepoint of the upgrade", field="submission.savepoint")
    if not 1 <= body.batches <= MOST_BATCHES:
        raise InvalidInput(f"{body.batches} is not from 1 to {MOST_BATCHES}", field="batches")
    if not 0 <= body.restarts <= MOST_RESTARTS:
        raise InvalidInput(f"{body.restarts} is not from 0 to {MOST_RESTARTS}", field="restarts")
    checked_timeout(body.within, "within")


def _in_namespace_of(view: JobView, body: UpgradeRequest) -> JobSubmission:
    submission = body.submission
    if submission.namespace not in ("", view.namespace):
        raise InvalidInput(
            f"job {view.job_id} has the namespace {view.namespace!r}, and its successor cannot have another one",
            field="submission.namespace",
        )
    return msgspec.structs.replace(submission, namespace=view.namespace)


def _back(api: Api, view: JobView) -> JobGraph:
    """Return the old job's graph under a new id, for which its secrets are sealed again. Raises Absent."""
    graph = view.graph
    if graph is None:
        raise Absent(f"job {view.job_id} has ended under an earlier JobManager, which knew its files")
    back_id = JobId(api.system.ids.hex32())
    secrets = api.job_secrets.seal(back_id, api.job_secrets.open(view.job_id, graph.secrets))
    return msgspec.structs.replace(graph, job_id=back_id, secrets=secrets)


ROUTES = (
    Route(
        "POST",
        "/jobs/{jobid}/upgrade",
        upgrade,
        "Upgrade a job to new code",
        "Upgrades",
        role=Role.SUBMITTER,
        status=202,
        reply=UpgradeInfo,
        body=UpgradeRequest,
        problems=(404, 409, 424, 503, 504),
        doc="The job is stopped with a savepoint, and the new job starts from it. If the new job is not good, it is "
        "cancelled, and the old code is started again from the same savepoint. The request is durable when the reply "
        "comes, and the upgrade continues whichever process fails. Upload the new job's artefacts first, as BLOBs "
        "below its id. 409: the job is ending, is busy, or is part of an upgrade in progress.",
    ),
    Route(
        "GET",
        "/jobs/{jobid}/upgrade",
        upgrade_of,
        "The newest upgrade that a job is part of",
        "Upgrades",
        role=Role.VIEWER,
        reply=UpgradeInfo,
        problems=(404, 503),
        doc="Any of its three jobs may be named.",
    ),
    Route(
        "DELETE",
        "/jobs/{jobid}/upgrade",
        cancel_upgrade,
        "Cancel an upgrade: go back to the old code",
        "Upgrades",
        role=Role.SUBMITTER,
        status=202,
        reply=UpgradeInfo,
        problems=(404, 409, 503, 504),
        doc="The request is durable when the reply comes. Repeating it has no effect, also after the upgrade's end. "
        "409: it was too late: the upgrade has ended, or goes back for another reason.",
    ),
)
