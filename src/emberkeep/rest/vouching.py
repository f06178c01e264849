"""Answers of a JobManager that no longer leads are not given as the leader's.

A JobManager whose process was stopped for a while continues with what it knew, and takes a moment to learn that another
one leads. What a client has seen changed there must not be undone here.
"""

from __future__ import annotations

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from emberkeep.jobmanager.views.cluster import JobManagerGateway

UNCONFIRMED = "Emberkeep-Unconfirmed"  # a header of answers that may be out of date
_API = "/v1/"
# Load balancers and orchestrators ask these often, also while the job store is slow.
_PROBES = frozenset({"/v1/leader", "/v1/liveness", "/v1/readiness"})


def vouching(gateway: JobManagerGateway) -> Middleware:
    """Return the middleware that asks the job store whether this JobManager leads, once it has an answer to a GET.

    If another one leads, the client gets 503 instead, and tries again elsewhere. While the store does not say, the
    answer has the header UNCONFIRMED. Probes, streams and files are not checked.
    """

    @web.middleware
    async def vouch(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await handler(request)
        is_read = request.method == "GET" and request.path.startswith(_API) and request.path not in _PROBES
        if is_read and isinstance(response, web.Response) and not await gateway.is_confirmed():
            response.headers[UNCONFIRMED] = "1"
        return response

    return vouch
