"""What a JobManager that does not lead answers: probes for itself, and for all else the way to the leader."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from http import HTTPStatus

import msgspec
from aiohttp import hdrs, web

from emberkeep.base.errors import RetryLater
from emberkeep.protocol.rest import API_PREFIX, Probe

Leader = Callable[[], str | None]


def build_standby(
    leader: Leader,
    *,
    secure: Callable[[web.Application], None],
    routes: Iterable[web.AbstractRouteDef] = (),
    problem: Callable[[], str] = str,
) -> web.Application:
    """``leader``: where another JobManager leads ("host:port"); None: nobody is known to. ``routes`` come first.
    ``problem``: why this JobManager would not take over well, "" where it would."""
    app = web.Application()
    secure(app)

    async def alive(_: web.Request) -> web.Response:
        return _probe("standby")

    async def not_leading(_: web.Request) -> web.Response:
        raise RetryLater("this JobManager does not lead", hint=_where(leader()))

    async def ready(_: web.Request) -> web.Response:
        if reason := problem():
            raise RetryLater(f"this JobManager is not ready to lead: {reason}", hint=_where(leader()))
        if leader() is None:
            raise RetryLater("no JobManager is known to lead", hint="an election may be under way")
        return _probe("standby")

    async def redirect(request: web.Request) -> web.Response:
        address = leader()
        if address is None:
            raise RetryLater("no JobManager is known to lead", hint="an election may be under way: try again")
        location = f"{request.scheme}://{address}{request.raw_path}"
        answer = web.Response(status=HTTPStatus.TEMPORARY_REDIRECT, headers={hdrs.LOCATION: location})
        if request.can_read_body:
            answer.force_close()  # the body is for the leader: it is not read here
        return answer

    app.add_routes(
        [
            *routes,
            web.get(f"{API_PREFIX}/liveness", alive),
            web.get(f"{API_PREFIX}/leader", not_leading),
            web.get(f"{API_PREFIX}/readiness", ready),
            web.route("*", "/{path:.*}", redirect),
        ]
    )
    return app


def _probe(status: str) -> web.Response:
    return web.Response(body=msgspec.json.encode(Probe(status=status, epoch=0)), content_type="application/json")


def _where(address: str | None) -> str:
    return f"{address} does" if address else "an election may be under way: try again"
