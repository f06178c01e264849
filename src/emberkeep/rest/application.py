"""The JobManager's HTTP application: REST API and metrics, and whatever routes its process adds (RPC, web pages)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable

from aiohttp import web
from aiohttp.typedefs import Middleware

from emberkeep.rest.metrics.exposition import loop_lag, measuring, metrics_route
from emberkeep.rest.serving.api import Api
from emberkeep.rest.serving.routing import bind
from emberkeep.rest.table import ROUTES


def rest_routes(api: Api) -> list[web.RouteDef]:
    """All routes of the API. Fixed paths come before patterns, so that ``/jobs/overview`` is no job's id."""
    rows = sorted(ROUTES, key=lambda route: "{" in route.path)
    bound = [each for route in rows for each in bind(route, api)]
    return [*bound, metrics_route(api.metrics, api.gateway, api.blobs, api.storage)]


def build_application(
    api: Api,
    *,
    secure: Callable[[web.Application], None],
    routes: Iterable[web.AbstractRouteDef] = (),
    middlewares: Iterable[Middleware] = (),
) -> web.Application:
    """The application of a JobManager's port.

    ``secure`` puts the access checks, and what makes errors to problem documents, before everything; there is no
    application without it. ``routes`` and ``middlewares`` are served behind it. Waiting requests end at shutdown.
    """
    app = web.Application()
    app.middlewares.append(measuring(api.metrics))
    secure(app)
    app.middlewares.extend(middlewares)
    app.add_routes([*rest_routes(api), *routes])

    async def close(_app: web.Application) -> None:
        api.closing.set()
        api.own_logs.close()
        await api.disposals.close()

    async def measure_lag(_app: web.Application) -> AsyncIterator[None]:
        async with loop_lag(api.metrics):
            yield

    app.on_shutdown.append(close)
    app.cleanup_ctx.append(measure_lag)
    return app
