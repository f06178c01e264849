"""The route table: single source of the served routes, the OpenAPI document and the reference page."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from emberkeep.rest.blobs import blobs
from emberkeep.rest.cluster import blocklist, cluster, login, storage, task_managers
from emberkeep.rest.jobs import jobs, savepoints, submission
from emberkeep.rest.logs import logs
from emberkeep.rest.openapi import document
from emberkeep.rest.serving.routing import CheckedRequest, Route


async def openapi(call: CheckedRequest) -> web.StreamResponse:
    return web.json_response(document(ROUTES))


ROUTES: tuple[Route, ...] = (
    *cluster.ROUTES,
    *jobs.ROUTES,
    *submission.ROUTES,
    *savepoints.ROUTES,
    *blobs.ROUTES,
    *task_managers.ROUTES,
    *blocklist.ROUTES,
    *logs.ROUTES,
    *storage.ROUTES,
    *login.ROUTES,
    Route("GET", "/openapi.json", openapi, "This API as an OpenAPI 3.1 document", "Cluster", reply=dict[str, Any]),
)
