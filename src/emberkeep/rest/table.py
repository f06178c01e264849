"""The route table: single source of the served routes, the OpenAPI document and the reference page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aiohttp import web

from emberkeep.base.identity import Role
from emberkeep.rest.blobs import blobs
from emberkeep.rest.cluster import audit, blocklist, cluster, events, login, storage, task_managers, tokens
from emberkeep.rest.jobs import connect, jobs, progress, savepoints, spark_ui, submission, upgrades
from emberkeep.rest.logs import logs
from emberkeep.rest.openapi import document
from emberkeep.rest.serving.routing import CheckedRequest, Route


async def openapi(call: CheckedRequest) -> web.StreamResponse:
    return web.json_response(document(ROUTES))


ROUTES: tuple[Route, ...] = (
    *cluster.ROUTES,
    *jobs.ROUTES,
    *progress.ROUTES,
    *submission.ROUTES,
    *savepoints.ROUTES,
    *upgrades.ROUTES,
    *spark_ui.ROUTES,
    *connect.ROUTES,
    *blobs.ROUTES,
    *task_managers.ROUTES,
    *blocklist.ROUTES,
    *logs.ROUTES,
    *storage.ROUTES,
    *login.ROUTES,
    *events.ROUTES,
    *audit.ROUTES,
    *tokens.ROUTES,
    Route(
        "GET",
        "/openapi.json",
        openapi,
        "This API as an OpenAPI 3.1 document",
        "Cluster",
        role=Role.VIEWER,
        shared=True,
        reply=dict[str, Any],
    ),
)


# Routes whose paths name no job, and that identities with a namespace may use: they show only what the caller may see.
SHARED: frozenset[tuple[str, str]] = frozenset(
    {
        *((route.method, route.full_path) for route in ROUTES if route.shared),
        *((route.method, route.path) for route in ROUTES if route.shared and route.unversioned),
        *(("GET", page) for page in ("/", "/blobs", "/jobs", "/savepoints", "/static/{name}")),
    }
)


# Routes that drivers may call for their own jobs: they store and fetch the parts of large messages.
DRIVER_ROUTES: frozenset[tuple[str, str]] = frozenset(
    (route.method, route.full_path) for route in ROUTES if route.drivers
)


def least_roles(pages: Iterable[web.AbstractRouteDef]) -> Mapping[tuple[str, str], Role]:
    """Return the least role for each pair of method and declared pattern: the API, ``/metrics``, and the ``pages``.

    Pages need the role of a viewer, except that the page of the audit log needs the role of an administrator. A route
    that is not in the result is for the cluster's own processes.
    """
    router = web.UrlDispatcher()
    router.add_routes(pages)
    shown = {(route.method, route.resource.canonical) for route in router.routes() if route.resource is not None}
    api = {
        (route.method, path): route.role
        for route in ROUTES
        for path in ([route.full_path, route.path] if route.unversioned else [route.full_path])
    }
    others = {("GET", "/audit"): Role.ADMIN, ("GET", "/metrics"): Role.METRICS}
    return {**dict.fromkeys(shown, Role.VIEWER), **others, **api}
