"""Checks before the routes: identities reach only jobs of their namespace, and submitters change only their own jobs.

From here on, the task knows on whose behalf it works. The routes' roles are checked before, see ``Route.role``.
"""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from emberkeep.base.errors import Absent, Forbidden, InvalidInput, RetryLater
from emberkeep.base.identity import Identity, Role
from emberkeep.base.ids import JobId, parse_job_id
from emberkeep.base.request_context import called_by
from emberkeep.base.request_identity import REQUEST_IDENTITY
from emberkeep.blobs.model import NO_JOB
from emberkeep.identities.job_access import may_act, sees
from emberkeep.jobmanager.views.cluster import JobManagerGateway, JobView

RouteKey = tuple[str, str]  # method and declared pattern


def job_access(gateway: JobManagerGateway, roles: Mapping[RouteKey, Role], shared: frozenset[RouteKey]) -> Middleware:
    """Return the middleware that makes these checks.

    ``roles``: the least role of each route. ``shared``: routes without a job in their paths that identities with a
    namespace may use; the handlers of these routes show only what the caller may see. What belongs to no job (NO_JOB)
    is the whole cluster's: pieces of logs, and parts of messages between its processes.
    """

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        identity = request.get(REQUEST_IDENTITY)
        if identity is not None and identity.attempt is None:  # drivers reach nothing but their own job
            await _check(request, identity)
        with called_by("" if identity is None else identity.name):
            return await handler(request)

    async def _check(request: web.Request, identity: Identity) -> None:
        resource = request.match_info.route.resource
        route = (request.method, "" if resource is None else resource.canonical)
        acts = roles.get(route) is Role.SUBMITTER and not identity.role.includes(Role.OPERATOR)
        if not (acts or identity.namespace) or route not in roles:
            return
        of_no_job = request.match_info.get("jobid") == NO_JOB
        if "jobid" in request.match_info and not (of_no_job and identity.namespace):
            job = await _job(gateway, request.match_info["jobid"])
            if job is not None:
                check_access(identity, job, acts=acts)
        elif identity.namespace and route not in shared:
            raise Forbidden(
                f"{request.method} {request.path[:200]} shows or changes the whole cluster, and {identity.name!r} has "
                f"the namespace {identity.namespace!r}",
                hint="an administrator can give a token without a namespace: `emberkeep token create`",
            )

    return check


async def _job(gateway: JobManagerGateway, text: str) -> JobView | None:
    """Return the job that a path names; None if there is no such job.

    Clients upload the BLOBs of a job before they submit it. On other routes, the handler refuses an unknown job.
    """
    try:
        return await gateway.job(parse_job_id(text))
    except (Absent, InvalidInput):
        return None


def check_access(identity: Identity, job: JobView, *, acts: bool) -> None:
    """Raise an error unless the identity may see the job or, if ``acts``, change it.

    Raises Absent (the job is in another namespace), Forbidden (another identity's job), RetryLater (the job's owner
    cannot be read).
    """
    if not job.has_known_owner:
        raise RetryLater(f"the owner of job {job.job_id} cannot be read now: {job.waiting}")
    if not sees(identity, job):
        raise no_such_job(job.job_id)
    if acts and not may_act(identity, job):
        owner = repr(job.owner) if job.owner else "the cluster's own token"
        raise Forbidden(
            f"job {job.job_id} was submitted by {owner}; {identity.name!r} has the role submitter, which may change "
            "its own jobs only",
            hint="identities with the role operator may change the jobs of others",
        )


def no_such_job(job_id: JobId) -> Absent:
    return Absent(f"there is no job {job_id}", hint="`emberkeep list` shows all jobs; old results expire")
