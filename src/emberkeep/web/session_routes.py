"""The routes that a logged-in browser may use: the pages, and the resources of the REST API behind what they show.

They do not include RPC, submissions, uploads, the content of BLOBs, or anything else that no page offers.
"""

from __future__ import annotations

from collections.abc import Iterable

from aiohttp import web

from emberkeep.protocol.rest import API_PREFIX

_READ = (
    "/blocklist",
    "/events",
    "/events/jobs/{jobid}",
    "/events/jobs/{jobid}/stream",
    "/events/stream",
    "/jobmanager/config",
    "/jobmanager/logs",
    "/jobmanager/logs/{name}",
    "/jobmanager/logs/{name}/download",
    "/jobmanager/logs/{name}/records",
    "/jobs/{jobid}/blobs",
    "/jobs/{jobid}/config",
    "/jobs/{jobid}/events",
    "/jobs/{jobid}/logs",
    "/jobs/{jobid}/logs/{logid}",
    "/jobs/{jobid}/logs/{logid}/download",
    "/jobs/{jobid}/logs/{logid}/records",
    "/jobs/{jobid}/merged-logs",
    "/jobs/{jobid}/merged-logs/download",
    "/jobs/{jobid}/progress",
    "/openapi.json",
    "/savepoints",
    "/savepoints/manifest",
    "/slots/usage",
    "/taskmanagers/{taskmanagerid}/logs",
    "/taskmanagers/{taskmanagerid}/logs/{name}",
    "/taskmanagers/{taskmanagerid}/logs/{name}/download",
    "/taskmanagers/{taskmanagerid}/logs/{name}/records",
    "/taskmanagers/{taskmanagerid}/usage",
)
_BUTTONS = (
    ("PATCH", "/jobs/{jobid}"),
    ("POST", "/jobs/{jobid}/savepoints"),
    ("POST", "/jobs/{jobid}/spark-ui-links"),
    ("POST", "/jobs/{jobid}/stop"),
    ("POST", "/savepoint-verification"),
    ("PUT", "/blocklist/nodes/{nodeid}"),
    ("DELETE", "/blocklist/nodes/{nodeid}"),
    ("PUT", "/blocklist/taskmanagers/{taskmanagerid}"),
    ("DELETE", "/blocklist/taskmanagers/{taskmanagerid}"),
)


def session_routes(pages: Iterable[web.AbstractRouteDef]) -> frozenset[tuple[str, str]]:
    """Return method and declared pattern of each route that a session may use. ``pages``: the routes of the pages."""
    router = web.UrlDispatcher()
    router.add_routes(pages)
    shown = {(route.method, route.resource.canonical) for route in router.routes() if route.resource is not None}
    called = {*(("GET", path) for path in _READ), *_BUTTONS}
    return frozenset({*shown, *((method, API_PREFIX + path) for method, path in called), ("GET", "/metrics")})
