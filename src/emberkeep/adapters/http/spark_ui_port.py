"""Checks of requests at the port of the Spark UIs, where neither tokens nor sessions of the console count."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

import structlog
from aiohttp import hdrs, web
from aiohttp.typedefs import Handler

from emberkeep.adapters.http.http_status import http_status, whole_seconds
from emberkeep.adapters.http.limiting import limiting
from emberkeep.adapters.http.security import answers_to
from emberkeep.adapters.http.served_connection import prove
from emberkeep.base.errors import EmberkeepError, OverQuota
from emberkeep.quotas.quotas import Quotas

_READING = (hdrs.METH_GET, hdrs.METH_HEAD)
_log = structlog.get_logger(__name__)


def guard_spark_ui(
    app: web.Application,
    hosts: frozenset[str],
    quotas: Quotas,
    may_pass: Callable[[web.Request], bool],
    refusal: Callable[[], web.Response],
) -> None:
    """Put the checks before the routes of ``app``: host name, method, ``may_pass``, and the quotas of the caller.

    ``may_pass`` records who the caller is. ``refusal`` returns the reply to a request that may not pass, whose
    connection stays one of a stranger. Errors become lines of plain text, which a browser shows.
    """

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not answers_to(request, hosts):
            return _text(HTTPStatus.FORBIDDEN, "This server does not answer to that host name.\n")
        if request.method not in _READING:
            return _text(HTTPStatus.METHOD_NOT_ALLOWED, "Spark UIs can only be read here.\n")
        if not may_pass(request):
            return refusal()
        prove(request)
        try:
            return await handler(request)
        except EmberkeepError as error:
            answer = _text(http_status(error), f"{error}\n")
            if isinstance(error, OverQuota):
                answer.headers[hdrs.RETRY_AFTER] = str(whole_seconds(error.seconds))
            return answer
        except web.HTTPException:
            raise
        except Exception:  # noqa: BLE001 - the boundary: a browser gets no traceback
            _log.exception("a request for a Spark UI failed")
            return _text(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error (see the log of this process)\n")

    async def add_headers(_request: web.Request, response: web.StreamResponse) -> None:
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
        response.headers[hdrs.SERVER] = "Emberkeep"

    app.middlewares.append(check)
    app.middlewares.append(limiting(quotas))
    app.on_response_prepare.append(add_headers)


_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def _text(status: HTTPStatus, text: str) -> web.Response:
    answer = web.Response(status=status, text=text)
    if status is HTTPStatus.SERVICE_UNAVAILABLE:
        answer.headers[hdrs.RETRY_AFTER] = "1"
    return answer
