"""The routes with which a browser begins and ends a session, for a port with web pages."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from urllib.parse import parse_qs

from aiohttp import ClientPayloadError, hdrs, web
from aiohttp.http_exceptions import HttpProcessingError

from emberkeep.adapters.http.login_page import (
    LOGIN_PATH,
    LOGOUT_PATH,
    MISSING,
    USED,
    WRONG,
    accepts_page,
    code_page,
    login_page,
)
from emberkeep.adapters.http.security import IssuedTokens, problem, same_secret
from emberkeep.adapters.http.sessions import (
    CODE_SECONDS,
    LIFETIME_SECONDS,
    WebSessions,
    session_cookie_name,
    session_of,
)
from emberkeep.base.identity import CLUSTER, Identity
from emberkeep.base.request_context import REQUEST_LOGIN, Login
from emberkeep.base.request_identity import REQUEST_IDENTITY

_MOST_BYTES = 16 * 1024  # of a form: it contains a token or a code
_SECONDS = 10.0  # for a form to arrive
_FORM = "application/x-www-form-urlencoded"


def login_routes(token: str, sessions: WebSessions, tokens: IssuedTokens | None = None) -> list[web.RouteDef]:
    """Return the routes of the login page, its form, and log-out. They must be reachable without a session."""

    def holder_of(given: str) -> Identity | None:
        if same_secret(given, token):
            return CLUSTER
        found = "" if tokens is None else tokens.identify(given)
        return found if isinstance(found, Identity) else None

    async def show(request: web.Request) -> web.Response:
        code = request.query.get("code")
        return login_page(MISSING, HTTPStatus.OK) if code is None else code_page(code)

    async def log_in(request: web.Request) -> web.Response:
        form = await read_form(request)
        if "code" in form:
            identity, reason = sessions.redeem(form["code"]), USED
        else:
            identity, reason = holder_of(form.get("token", "")), WRONG
        if identity is None:
            return _refusal(request, reason)
        return begin_session(request, _go_to("/"), sessions, identity)

    async def log_out(request: web.Request) -> web.Response:
        _end_session(request, sessions)
        answer = _go_to(LOGIN_PATH)
        answer.del_cookie(
            session_cookie_name(request), httponly=True, samesite="Strict", secure=request.secure, path="/"
        )
        return answer

    return [web.get(LOGIN_PATH, show), web.post(LOGIN_PATH, log_in), web.post(LOGOUT_PATH, log_out)]


class WebLoginLinks:
    """Makes links to the login page, each of which logs a browser in once."""

    valid_for_ms = int(CODE_SECONDS * 1000)

    def __init__(self, sessions: WebSessions) -> None:
        self._sessions = sessions

    def new_path(self, identity: Identity) -> str:
        """Return a link's path on this server. The link begins a session of ``identity``."""
        return f"{LOGIN_PATH}?code={self._sessions.new_code(identity)}"


async def read_form(request: web.Request) -> dict[str, str]:
    """Return the fields of a form, each with its first value. Raises an HTTPException for any other body."""
    if request.content_type != _FORM:
        raise web.HTTPUnsupportedMediaType(text=f"the body is {request.content_type}, {_FORM} is expected")
    data = bytearray()
    try:
        async with asyncio.timeout(_SECONDS):
            while chunk := await request.content.read(_MOST_BYTES):
                data += chunk
                if len(data) > _MOST_BYTES:
                    raise web.HTTPRequestEntityTooLarge(max_size=_MOST_BYTES, actual_size=len(data))
    except TimeoutError:
        raise web.HTTPRequestTimeout(text=f"the form did not arrive within {_SECONDS:g} s") from None
    except (OSError, web.RequestPayloadError, ClientPayloadError, HttpProcessingError):
        raise web.HTTPBadRequest(text="the form is incomplete or malformed") from None
    return {name: values[0] for name, values in parse_qs(data.decode("ascii", "replace")).items()}


def begin_session(
    request: web.Request,
    answer: web.Response,
    sessions: WebSessions,
    identity: Identity,
    seconds: float = LIFETIME_SECONDS,
) -> web.Response:
    """Begin a session of ``identity`` in place of the browser's present one; return ``answer`` with its cookie."""
    _end_session(request, sessions)
    request[REQUEST_IDENTITY], request[REQUEST_LOGIN] = identity, Login.SESSION
    answer.set_cookie(
        session_cookie_name(request),
        sessions.begin(identity, seconds),
        httponly=True,
        samesite="Strict",
        secure=request.secure,
        path="/",
    )
    return answer


def _refusal(request: web.Request, reason: str) -> web.Response:
    if accepts_page(request):
        return login_page(reason)
    return problem(HTTPStatus.UNAUTHORIZED, reason, hint="`emberkeep cluster status` prints a link that logs you in")


def _end_session(request: web.Request, sessions: WebSessions) -> None:
    session_id = session_of(request)
    if session_id is not None:
        sessions.end(session_id)


def _go_to(path: str) -> web.Response:
    return web.Response(status=HTTPStatus.SEE_OTHER, headers={hdrs.LOCATION: path})
