"""Nothing is served without the token, whatever routes there are."""

from __future__ import annotations

import re

from aiohttp import ClientSession

from emberkeep.adapters.http.login_page import LOGIN_PATH
from emberkeep.rest.application import build_application
from emberkeep.web.pages import web_routes
from tests.unit.rest.server import Site

PUBLIC = {LOGIN_PATH, "/static/{name}"}


def all_routes(site: Site) -> list[tuple[str, str]]:
    """(method, pattern) of everything that the JobManager's application serves."""
    pages = web_routes(site.web_sources)
    app = build_application(site.api, secure=lambda app: None, roles={}, routes=pages)
    return [(route.method, route.resource.canonical) for route in app.router.routes() if route.resource is not None]


async def test_every_route_needs_the_token(site: Site) -> None:
    routes = [(method, path) for method, path in all_routes(site) if path not in PUBLIC]
    assert len(routes) > 30

    async with ClientSession() as stranger:
        for method, pattern in routes:
            path = re.sub(r"\{[^}]*\}", "0" * 32, pattern)
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Origin": site.base}):
                async with stranger.request(method, site.base + path, headers=headers) as answer:
                    assert answer.status in (401, 403), (method, path, headers, answer.status)

    assert site.gateway.cancelled == []
    assert site.shutdowns == []


async def test_changes_from_foreign_pages_are_refused_even_with_the_token(site: Site) -> None:
    answer = await site.request("DELETE", "/v1/cluster", headers={"Origin": "https://evil.example"})

    assert (answer.status, site.shutdowns) == (403, [])


async def test_only_static_files_are_public(site: Site) -> None:
    async with ClientSession() as stranger:
        async with stranger.get(f"{site.base}/static/emberkeep.css") as answer:
            assert answer.status == 200
        async with stranger.get(f"{site.base}/static/..%2Fpages.py") as answer:
            assert answer.status == 404
