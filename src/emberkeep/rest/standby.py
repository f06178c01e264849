"""Replies of a JobManager that is not the leader: its own probes, and redirects to the leader for everything else."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from http import HTTPStatus

import msgspec
from aiohttp import hdrs, web

from emberkeep.base.errors import RetryLater
from emberkeep.protocol.rest import API_PREFIX
from emberkeep.protocol.rest_cluster import Probe

Leader = Callable[[], str | None]

_PAGES = "/{page:(?:(?:jobs|taskmanagers|nodes|events|jobmanager)(?:/.*)?)?}"
_FORMS = "/{form:login|logout}"
# Sessions and named tokens are known to the leader only. A standby sends everybody to the leader, which checks them.
STANDBY_PUBLIC = frozenset({"/{page}", "/{form}", "/{path}"})


def build_standby(
    leader: Leader,
    *,
    secure: Callable[[web.Application], None],
    routes: Iterable[web.AbstractRouteDef] = (),
    problem: Callable[[], str] = str,
) -> web.Application:
    """Return the application of a JobManager that is not the leader.

    ``leader`` returns the leader's address ("host:port"), or None if no leader is known. ``routes`` come before the
    redirects. ``problem`` returns why this JobManager is not ready to become the leader; "" if it is ready.
    """
    app = web.Application()
    secure(app)

    async def alive(_: web.Request) -> web.Response:
        return _probe("standby")

    async def not_leading(_: web.Request) -> web.Response:
        raise RetryLater("this JobManager is not the leader", hint=_where(leader()))

    async def ready(_: web.Request) -> web.Response:
        if reason := problem():
            raise RetryLater(f"this JobManager is not ready to lead: {reason}", hint=_where(leader()))
        if leader() is None:
            raise RetryLater("no JobManager is known as the leader", hint="an election may be under way")
        return _probe("standby")

    def leading() -> str:
        address = leader()
        if address is None:
            raise RetryLater("no JobManager is known as the leader", hint="an election may be under way: try again")
        return address

    async def to_start_page(request: web.Request) -> web.Response:
        location = f"{request.scheme}://{leading()}/"
        answer = web.Response(status=HTTPStatus.SEE_OTHER, headers={hdrs.LOCATION: location})
        answer.force_close()  # a form's body, which may hold the token, is not read here and not sent on
        return answer

    async def redirect(request: web.Request) -> web.Response:
        location = f"{request.scheme}://{leading()}{request.raw_path}"
        answer = web.Response(status=HTTPStatus.TEMPORARY_REDIRECT, headers={hdrs.LOCATION: location})
        if request.can_read_body:
            answer.force_close()  # the body is meant for the leader and is not read here
        return answer

    app.add_routes(
        [
            *routes,
            web.get(f"{API_PREFIX}/liveness", alive),
            web.get(f"{API_PREFIX}/leader", not_leading),
            web.get(f"{API_PREFIX}/readiness", ready),
            web.route("*", _FORMS, to_start_page),
            web.get(_PAGES, redirect),
            web.route("*", "/{path:.*}", redirect),
        ]
    )
    return app


def _probe(status: str) -> web.Response:
    return web.Response(body=msgspec.json.encode(Probe(status=status, epoch=0)), content_type="application/json")


def _where(address: str | None) -> str:
    return f"the leader is {address}" if address else "an election may be under way: try again"
