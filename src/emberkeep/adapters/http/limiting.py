"""Refuses requests that are over a quota, with the time after which to try again."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from emberkeep.adapters.http.http_status import whole_seconds
from emberkeep.adapters.http.login_page import CONTINUE_PATH, LOGIN_PATH, TOO_MANY, accepts_page, login_page
from emberkeep.adapters.http.rpc import RPC_PATH
from emberkeep.adapters.http.security import problem
from emberkeep.base.clock import since_boot
from emberkeep.base.errors import OverQuota
from emberkeep.base.request_identity import REQUEST_IDENTITY
from emberkeep.quotas.quotas import Quotas


def limiting(quotas: Quotas, now: Callable[[], float] = since_boot) -> Middleware:
    """Return middleware that holds each identity to its quotas, by OverQuota. It runs after the access checks."""

    @web.middleware
    async def limit(request: web.Request, handler: Handler) -> web.StreamResponse:
        identity = request.get(REQUEST_IDENTITY)
        if identity is None or request.path.startswith(RPC_PATH):
            return await handler(request)
        if excess := quotas.request(identity, now(), uploads=request.can_read_body):
            raise OverQuota(
                f"{identity.name!r} {excess.what}",
                hint=f"try again in {whole_seconds(excess.seconds)} s; the quota is {excess.key} of the JobManager",
                seconds=excess.seconds,
            )
        try:
            return await handler(request)
        finally:
            quotas.received(identity, request.content.total_bytes, now())

    return limit


def slowing_guesses(quotas: Quotas, now: Callable[[], float] = since_boot) -> Middleware:
    """Return middleware that answers 429 to a failed login if its network had too many. It runs before the checks.

    A valid login passes in any case: others may share the network.
    """

    @web.middleware
    async def slow(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await handler(request)
        if response.status != HTTPStatus.UNAUTHORIZED or not _is_guess(request):
            return response
        wait = quotas.failed_login(request.remote or "", now())
        return _too_many_guesses(request, wait) if wait else response

    return slow


def _is_guess(request: web.Request) -> bool:
    is_form = request.method == hdrs.METH_POST and request.path in (LOGIN_PATH, CONTINUE_PATH)
    return is_form or hdrs.AUTHORIZATION in request.headers


def _too_many_guesses(request: web.Request, seconds: float) -> web.Response:
    if accepts_page(request):
        answer = login_page(TOO_MANY, HTTPStatus.TOO_MANY_REQUESTS)
    else:
        answer = problem(
            HTTPStatus.TOO_MANY_REQUESTS,
            "too many requests with a wrong token came from this address, and this one has no valid token either",
            hint="check the token in security.token-file",
        )
    answer.headers[hdrs.RETRY_AFTER] = str(whole_seconds(seconds))
    answer.headers[hdrs.WWW_AUTHENTICATE] = "Bearer"
    return answer
