"""Records who changed something through an HTTP port, and who was refused."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Final

import msgspec
import structlog
from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from emberkeep.adapters.http.rpc import RPC_PATH
from emberkeep.adapters.http.rpc_server import AUDITED_RPC
from emberkeep.audit.entry import DRIVER_ROLE, Entry, Outcome, outcome_of, shown
from emberkeep.audit.refusals import Refusals
from emberkeep.base.clock import since_boot
from emberkeep.base.decoding import from_json
from emberkeep.base.identity import Identity
from emberkeep.base.request_context import REQUEST_LOGIN, REQUEST_TARGET, Login
from emberkeep.base.request_identity import REQUEST_IDENTITY
from emberkeep.protocol.rest import PROBLEM_MEDIA_TYPE, Problem

_READING: Final = (hdrs.METH_GET, hdrs.METH_HEAD, hdrs.METH_OPTIONS)
_ELSEWHERE: Final = HTTPStatus.TEMPORARY_REDIRECT  # to the leader, which records the change
_MOST_PATH: Final = 200  # characters

_log = structlog.get_logger(__name__)


def auditing(record: Callable[[Entry], None]) -> Middleware:
    """Return middleware that records each change and each refusal. Add it before ``secure`` to see all refusals."""

    @web.middleware
    async def audit(request: web.Request, handler: Handler) -> web.StreamResponse:
        status, reason = 0, ""
        try:
            response = await handler(request)
            status, reason = response.status, _reason(response)
        except web.HTTPException as error:
            status = error.status
            raise
        finally:
            if outcome_of(status) is Outcome.REFUSED or (_is_change(request) and status != _ELSEWHERE):
                record(_entry(request, status, reason))
        return response

    return audit


def logging_refusals(now: Callable[[], float] = since_boot) -> Middleware:
    """Return middleware for a process without an audit log: it logs the first refusals of each kind in a minute.

    The number of the others is logged with the first refusal after that minute.
    """
    return auditing(refusal_log(now))


def refusal_log(now: Callable[[], float] = since_boot) -> Callable[[Entry], None]:
    """Return what ``logging_refusals`` does with each entry."""
    refusals = Refusals()

    def note(entry: Entry) -> None:
        if entry.outcome == Outcome.REFUSED:
            at = now()
            for each in (*refusals.due(at), refusals.admit(entry, at)):
                if each is not None:
                    _log.warning(
                        "refused a request",
                        address=each.address,
                        action=shown(each.action),
                        status=each.status,
                        reason=shown(each.reason),
                        count=each.count,
                    )

    return note


def _is_change(request: web.Request) -> bool:
    if request.method in _READING or request.match_info.route.resource is None:
        return False
    return not request.path.startswith(RPC_PATH) or request.path.removeprefix(RPC_PATH) in AUDITED_RPC


def _entry(request: web.Request, status: int, reason: str) -> Entry:
    identity: Identity | None = request.get(REQUEST_IDENTITY)
    target = {**request.match_info, **request.get(REQUEST_TARGET, {})}
    target.pop("kind", None)  # of an RPC: it is in the action
    return Entry(
        identity="" if identity is None else identity.name,
        role="" if identity is None else DRIVER_ROLE if identity.attempt is not None else identity.role.value,
        login=request.get(REQUEST_LOGIN, Login.NONE).value,
        address=request.remote or "",
        action=_action(request),
        target=target,
        parameters={} if identity is None else dict(request.query),  # a login link has its code there
        status=status,
        outcome=outcome_of(status).value,
        reason=reason,
    )


def _action(request: web.Request) -> str:
    resource = request.match_info.route.resource
    is_named = resource is not None and not request.path.startswith(RPC_PATH)
    return f"{request.method[:20]} {resource.canonical if is_named and resource else request.path[:_MOST_PATH]}"


def _reason(response: web.StreamResponse) -> str:
    """Return what a problem document says is wrong; "" for any other response."""
    if response.content_type != PROBLEM_MEDIA_TYPE or not isinstance(response, web.Response):
        return ""
    try:
        return from_json(response.body if isinstance(response.body, bytes) else b"", Problem).detail
    except msgspec.MsgspecError:
        return ""
