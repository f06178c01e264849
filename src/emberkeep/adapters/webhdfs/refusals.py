"""Logs requests that a state gateway refuses: they carry no valid credential, or name a location that it does not open.

Hadoop's status 403 also reports what happens in every job, such as a file that already exists.
"""

from __future__ import annotations

from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from emberkeep.adapters.http.auditing import refusal_log
from emberkeep.audit.entry import Entry, Outcome
from emberkeep.base.request_context import Login

REFUSED: Final = web.ResponseKey("refused", str)  # why the request was refused


def logging_gateway_refusals() -> Middleware:
    """Return middleware that logs the first refusals of an address in a minute, and the number of the others."""
    note = refusal_log()

    @web.middleware
    async def log_refusals(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await handler(request)
        reason = response.get(REFUSED)
        if reason is not None:
            note(
                Entry(
                    identity="",
                    role="",
                    login=Login.NONE.value,
                    address=request.remote or "",
                    action=f"{request.method[:20]} {request.query.get('op', '')[:40]}",
                    status=response.status,
                    outcome=Outcome.REFUSED.value,
                    reason=reason,
                )
            )
        return response

    return log_refusals
