"""What the modules that have pages share: what makes a page of a template, and the jobs that a request sees."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Protocol

from aiohttp import web

from emberkeep.base.request_identity import REQUEST_IDENTITY
from emberkeep.identities.job_access import visible
from emberkeep.jobmanager.views.briefs import JobBrief
from emberkeep.jobmanager.views.cluster import JobManagerGateway, JobView

_SEEN = web.RequestKey("emberkeep.jobs", Sequence[JobBrief])


class Render(Protocol):
    def __call__(
        self, request: web.Request, template: str, section: str, code: HTTPStatus = HTTPStatus.OK, **values: Any
    ) -> web.Response:
        """Return the page that a template makes of ``values``."""


async def seen_jobs(request: web.Request, gateway: JobManagerGateway) -> Sequence[JobBrief]:
    """Return the jobs that the caller sees, in brief. They are read once for each request.

    With many jobs, their details take a while: a page reads them only of the jobs that it shows.
    """
    if _SEEN not in request:
        request[_SEEN] = visible(request[REQUEST_IDENTITY], await gateway.briefs())
    return request[_SEEN]


async def jobs_with_savepoints(request: web.Request, gateway: JobManagerGateway) -> list[JobView]:
    """Return the jobs that the caller sees, and that have made savepoints or were started from one."""
    seen = await seen_jobs(request, gateway)
    return await gateway.jobs_of([job.job_id for job in seen if job.has_savepoints])
