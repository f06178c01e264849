"""The JobManager's HTTP application: REST API, metrics, and the routes its process adds (RPC, web pages)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping

from aiohttp import web

from emberkeep.base.identity import Role
from emberkeep.rest.metrics.exposition import loop_lag, measuring, metrics_route
from emberkeep.rest.serving.api import Api
from emberkeep.rest.serving.job_access import RouteKey, job_access
from emberkeep.rest.serving.routing import bind
from emberkeep.rest.table import ROUTES, SHARED
from emberkeep.rest.vouching import vouching


def rest_routes(api: Api) -> list[web.RouteDef]:
    """Return all routes of the API and ``/metrics``.

    Fixed paths precede patterns, so that ``overview`` in ``/jobs/overview`` is not taken for a job id.
    """
    rows = sorted(ROUTES, key=lambda route: "{" in route.path)
    bound = [each for route in rows for each in bind(route, api)]
    return [*bound, metrics_route(api.metrics, api.gateway, api.blobs, api.storage, api.now_ms)]


def build_application(
    api: Api,
    *,
    secure: Callable[[web.Application], None],
    roles: Mapping[RouteKey, Role],
    routes: Iterable[web.AbstractRouteDef] = (),
) -> web.Application:
    """Return the application that a JobManager's port serves.

    ``secure`` adds the access checks and turns errors into problem documents. It is required, and only the timing of
    requests runs before it. ``roles``: the least role of each route, see ``table.least_roles``. ``routes``: further
    routes, behind the same checks. Shutdown ends waiting requests and cancels running disposals of savepoints.
    """
    app = web.Application()
    app.middlewares.append(measuring(api.metrics))
    secure(app)
    app.middlewares.append(vouching(api.gateway))
    app.middlewares.append(job_access(api.gateway, roles, SHARED))
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
