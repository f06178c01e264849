"""Access control of our HTTP ports, and the form of refusals and errors.

Every request passes these checks, even on loopback, where any local program and any web page may connect:

- The Host header names this server (against DNS rebinding).
- A change that comes from a web page comes from a page of this server (Origin).
- The request carries a token as a bearer, or the cookie of a web session, with which only some routes are open.
- The role of the caller permits the route.
- On routes for daemons, the caller shows the certificate of a node, besides the cluster's token.

Errors are RFC 9457 problem documents.
"""

from __future__ import annotations

import functools
import hmac
import ipaddress
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Protocol
from urllib.parse import urlsplit

import msgspec
import structlog
from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from emberkeep.adapters.http.driver_access import DriverAccess
from emberkeep.adapters.http.http_status import http_status, whole_seconds
from emberkeep.adapters.http.login_page import (
    CONTINUE_PATH,
    ENDED,
    LOGIN_PATH,
    LOGOUT_PATH,
    MISSING,
    accepts_page,
    login_page,
)
from emberkeep.adapters.http.node_access import RPC_ROUTE, no_node
from emberkeep.adapters.http.served_connection import prove
from emberkeep.adapters.http.sessions import WebAccess, session_of
from emberkeep.base.errors import EmberkeepError, IllegalTransition, InvalidInput, OverQuota
from emberkeep.base.identity import CLUSTER, AttemptScope, Identity, Role
from emberkeep.base.request_context import REQUEST_IS_LOGGED_IN, REQUEST_LOGIN, Login
from emberkeep.base.request_identity import REQUEST_IDENTITY
from emberkeep.protocol.rest import PROBLEM_MEDIA_TYPE, Problem
from emberkeep.protocol.rest_blobs import ATTEMPT_HEADER

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # without a referrer, browsers send the Origin of a form as "null"
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_READING = (hdrs.METH_GET, hdrs.METH_HEAD)

_log = structlog.get_logger(__name__)


class IssuedTokens(Protocol):
    """The tokens that the cluster has issued by name."""

    def identify(self, credential: str) -> Identity | str:
        """Return the token's holder, or the reason why the token is refused; "" if the token is unknown."""


@dataclass(frozen=True)
class AccessPolicy:
    """The callers that may use a port.

    ``token`` is the cluster's token, with which every route is open. ``hosts`` are names, without ports, that this
    server answers to besides loopback ones. ``public`` are routes that need no token, by their declared pattern
    ("/static/{name}", or a static folder's prefix). ``web``: what browsers that have logged in may do, for a port with
    web pages. ``tokens``: the named tokens. ``roles``: the least role for each pair of method and declared pattern;
    routes that it does not list are for holders of ``token`` only. ``drivers``: what drivers may do with the
    credentials of their attempts; None if they have none. ``daemons``: routes, by their declared pattern, for which
    ``token`` is not enough: the caller shows the certificate of a node. Empty if the port does not encrypt.
    """

    token: str
    hosts: frozenset[str] = frozenset()
    public: frozenset[str] = frozenset()
    web: WebAccess | None = None
    tokens: IssuedTokens | None = None
    roles: Mapping[tuple[str, str], Role] = field(default_factory=dict)
    drivers: DriverAccess | None = None
    daemons: frozenset[str] = frozenset()


def secure(app: web.Application, policy: AccessPolicy) -> None:
    """Put all checks before the routes of ``app``, and add our headers to every reply.

    Middleware that is added earlier also sees the requests that the checks refuse.
    """
    app.middlewares.append(_problems)
    app.middlewares.append(_access(policy))
    app.on_response_prepare.append(_add_headers)


async def _add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers["Server"] = "Emberkeep"


# --- errors -----------------------------------------------------------------------------------------------------------


def problem(status: HTTPStatus, detail: str, *, hint: str | None = None, field: str | None = None) -> web.Response:
    """Return an error response whose body is a problem document (RFC 9457).

    With status 503 it asks the client to retry after one second.
    """
    text = detail if hint is None else f"{detail} ({hint})"
    body = Problem(title=status.phrase, status=status.value, detail=detail, errors=[text], hint=hint, field=field)
    answer = web.Response(status=status, body=msgspec.json.encode(body), content_type=PROBLEM_MEDIA_TYPE)
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        answer.headers[hdrs.RETRY_AFTER] = "1"
    return answer


@web.middleware
async def _problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < HTTPStatus.BAD_REQUEST:
            raise
        return _http_problem(request, error)
    except IllegalTransition:
        _log.exception("request_failed", method=request.method, path=request.path)
    except EmberkeepError as error:
        field = error.field if isinstance(error, InvalidInput) else None
        answer = problem(http_status(error), error.message, hint=error.hint, field=field)
        if isinstance(error, OverQuota):
            answer.headers[hdrs.RETRY_AFTER] = str(whole_seconds(error.seconds))
        return answer
    except Exception:  # noqa: BLE001 - the boundary: the client learns that we failed, the log learns why
        _log.exception("request_failed", method=request.method, path=request.path)
    return problem(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error", hint="see the log of this process")


def _http_problem(request: web.Request, error: web.HTTPException) -> web.Response:
    details = {
        HTTPStatus.NOT_FOUND: f"nothing exists at {request.path[:200]}",
        HTTPStatus.METHOD_NOT_ALLOWED: f"{request.method} is not possible on {request.path[:200]}",
    }
    status = HTTPStatus(error.status)
    answer = problem(status, details.get(status) or error.text or error.reason)
    for name in (hdrs.ALLOW, hdrs.CONTENT_RANGE):
        if name in error.headers:
            answer.headers[name] = error.headers[name]
    if status == HTTPStatus.REQUEST_TIMEOUT:
        answer.force_close()
    return answer


# --- access -----------------------------------------------------------------------------------------------------------


def _access(policy: AccessPolicy) -> Middleware:
    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        refusal = _check_host(request, policy) or _check_origin(request)
        if refusal is None:
            refusal = _check_login(request, policy)
        return await handler(request) if refusal is None else refusal

    return check


def _check_host(request: web.Request, policy: AccessPolicy) -> web.Response | None:
    if answers_to(request, policy.hosts):
        return None
    return problem(
        HTTPStatus.FORBIDDEN,
        f"this server does not answer to the host name {request.headers.get(hdrs.HOST, '')[:200]!r}",
        hint="add it to security.allowed-hosts",
    )


def answers_to(request: web.Request, hosts: frozenset[str]) -> bool:
    """True if the request's Host header names this machine's loopback or one of ``hosts``."""
    name = _host_name(request.headers.get(hdrs.HOST, ""))
    return name is not None and (is_loopback(name) or name in hosts)


def _host_name(host: str) -> str | None:
    """Return the name in "name:port" or "[v6]:port", in lower case; None if ``host`` is malformed or has no name."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


@functools.lru_cache(maxsize=1024)
def is_loopback(name: str) -> bool:
    """True for ``localhost`` and for addresses of the loopback network. Looks up no names."""
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _check_origin(request: web.Request) -> web.Response | None:
    """Return a refusal for a change from a foreign web page, else None.

    Browsers send Origin with every change. A client that sends none is not a browser and must send a bearer token.
    A session that continues here comes from a page of another JobManager, whose pass names that page's origin.
    """
    if request.method in _READING or request.path == CONTINUE_PATH:
        return None
    origin = request.headers.get(hdrs.ORIGIN)
    if origin is None:
        own = hdrs.AUTHORIZATION in request.headers
    else:
        own = origin in (f"http://{request.headers[hdrs.HOST]}", f"https://{request.headers[hdrs.HOST]}")
    if own:
        return None
    return problem(HTTPStatus.FORBIDDEN, "this request does not come from a page of this server")


def _is_public(request: web.Request, policy: AccessPolicy) -> bool:
    resource = request.match_info.route.resource
    if resource is None:
        return False
    return resource.canonical in policy.public or (
        policy.web is not None and resource.canonical in (LOGIN_PATH, LOGOUT_PATH, CONTINUE_PATH)
    )


def _check_login(request: web.Request, policy: AccessPolicy) -> web.Response | None:
    """Return a refusal if the request may not pass, and record a valid login of its connection."""
    holder = _token_holder(request, policy)
    by_token = isinstance(holder, Identity)
    identity = holder if isinstance(holder, Identity) else _session_holder(request, policy)
    if identity is not None:
        prove(request)
        request[REQUEST_IDENTITY] = identity
        request[REQUEST_LOGIN] = Login.TOKEN if by_token else Login.SESSION
        request[REQUEST_IS_LOGGED_IN] = lambda: _is_logged_in(request, policy)
    if _is_public(request, policy):
        return None
    if identity is CLUSTER and by_token:
        return _check_node(request, policy)
    if identity is None:
        return _without_login(request, policy, "" if isinstance(holder, Identity) else holder)
    if identity.attempt is not None:
        return _check_driver(request, policy, identity, identity.attempt)
    if not by_token and not (policy.web is not None and policy.web.allows(request)):
        return _beyond_session(request)
    return _check_role(request, policy, identity)


def _token_holder(request: web.Request, policy: AccessPolicy) -> Identity | str:
    """Return the holder of the request's token, or why a named token is refused; "" without a known token."""
    scheme, _, credential = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    if scheme.lower() != "bearer":
        return ""
    if same_secret(credential.strip(), policy.token):
        return CLUSTER
    driver = None if policy.drivers is None else policy.drivers.identify(credential.strip())
    if driver is not None:
        return driver
    return "" if policy.tokens is None else policy.tokens.identify(credential.strip())


def _session_holder(request: web.Request, policy: AccessPolicy) -> Identity | None:
    session_id = None if policy.web is None else session_of(request)
    return None if policy.web is None or session_id is None else policy.web.sessions.use(session_id)


def _is_logged_in(request: web.Request, policy: AccessPolicy) -> bool:
    session_id = session_of(request)
    has_session = policy.web is not None and session_id is not None and policy.web.sessions.is_open(session_id)
    return has_session or isinstance(_token_holder(request, policy), Identity)


def _check_driver(
    request: web.Request, policy: AccessPolicy, identity: Identity, scope: AttemptScope
) -> web.Response | None:
    """Return a refusal unless the route is one that drivers use, and names the driver's own job if it names one.

    The handler of RPC checks which attempt a message is about.
    """
    resource = request.match_info.route.resource
    if resource is None:
        return None  # answered with 404 or 405
    if resource.canonical == RPC_ROUTE:
        return None
    is_open = policy.drivers is not None and (request.method, resource.canonical) in policy.drivers.routes
    attempt = str(scope.attempt)
    is_own = (request.match_info.get("jobid"), request.headers.get(ATTEMPT_HEADER, attempt)) == (scope.job_id, attempt)
    if is_open and is_own:
        return None
    return problem(
        HTTPStatus.FORBIDDEN,
        f"{request.method} {request.path[:200]} is not for the {identity.name}",
        hint="a driver's credentials reach only what its own attempt needs (docs/credentials.md)",
    )


def _check_node(request: web.Request, policy: AccessPolicy) -> web.Response | None:
    refusal = no_node(request, policy.daemons)
    return None if refusal is None else problem(HTTPStatus.FORBIDDEN, refusal.detail, hint=refusal.hint)


def _check_role(request: web.Request, policy: AccessPolicy, identity: Identity) -> web.Response | None:
    resource = request.match_info.route.resource
    if resource is None:
        return None  # answered with 404 or 405
    method = hdrs.METH_GET if request.method == hdrs.METH_HEAD else request.method
    needed = policy.roles.get((request.method, resource.canonical)) or policy.roles.get((method, resource.canonical))
    if needed is not None and identity.role.includes(needed):
        return None
    what = f"{request.method} {request.path[:200]}"
    if needed is None:
        return problem(
            HTTPStatus.FORBIDDEN,
            f"{what} is for the processes of the cluster, and {identity.name!r} is none of them",
            hint="use the cluster's token, on a machine of the cluster",
        )
    if identity.expires_ms:
        gives = f"an administrator can give {needed.value} to a group of the holder, in security.oidc.roles"
    else:
        command = f"emberkeep token create {shlex.quote(identity.name)} --role {needed.value}"
        gives = f"an administrator can give it: `{command}`"
    return problem(
        HTTPStatus.FORBIDDEN,
        f"{what} needs the role {needed.value}, and {identity.name!r} has the role {identity.role.value}",
        hint=gives,
    )


def _without_login(request: web.Request, policy: AccessPolicy, reason: str) -> web.Response:
    if policy.web is not None and request.method == hdrs.METH_GET and accepts_page(request):
        return login_page(MISSING if session_of(request) is None else ENDED)
    answer = problem(
        HTTPStatus.UNAUTHORIZED,
        reason or "a valid token is missing",
        hint="put a new one into security.token-file: an administrator makes it with `emberkeep token create`, or the "
        "issuer gives it"
        if reason
        else "send it as `Authorization: Bearer …`; in a browser open /login. The token is in the file "
        "security.token-file",
    )
    answer.headers[hdrs.WWW_AUTHENTICATE] = "Bearer"
    return answer


def _beyond_session(request: web.Request) -> web.Response:
    return problem(
        HTTPStatus.FORBIDDEN,
        f"a web session may not {request.method} {request.path[:200]}",
        hint="it is for the pages and their buttons: use the command line, or send the token as "
        "`Authorization: Bearer …`",
    )


def same_secret(given: str, expected: str) -> bool:
    """True if both are equal, compared in constant time. Surrogates (bytes that are not UTF-8) never match."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


def check_bind_address(address: str, token_configured: bool) -> None:
    """Raise InvalidInput if other machines can reach a port bound at ``address``, but no token is configured.

    ``token_configured`` is true if security.token-file was set.
    """
    if token_configured or is_loopback(address.strip("[]").lower()):
        return
    raise InvalidInput(
        f"rest.bind-address: {address or 'all addresses'} is reachable from other machines, but no token is configured",
        field="rest.bind-address",
        hint="set security.token-file to a file (mode 0600) that all processes share, or bind 127.0.0.1",
    )
