"""What the modules that have pages share: what makes a page of a template, and the jobs that a request sees."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Protocol

from aiohttp import web

from emberkeep.base.request_identity import REQUEST_IDENTITY
from emberkeep.identities.job_access import visible
from emberkeep.jobmanager.views.cluster import JobManagerGateway, JobView

_SEEN = web.RequestKey("emberkeep.jobs", Sequence[JobView])


class Render(Protocol):
    def __call__(
        self, request: web.Request, template: str, section: str, code: HTTPStatus = HTTPStatus.OK, **values: Any
    ) -> web.Response:
        """Return the page that a template makes of ``values``."""


async def seen_jobs(request: web.Request, gateway: JobManagerGateway) -> Sequence[JobView]:
    """Return the jobs that the caller sees. They are read once for each request: with many jobs that takes a while."""
    if _SEEN not in request:
        request[_SEEN] = visible(request[REQUEST_IDENTITY], await gateway.jobs())
    return request[_SEEN]
