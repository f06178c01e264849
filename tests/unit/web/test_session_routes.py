"""A logged-in browser may use every page, and every resource that a page or its scripts ask for."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path

import pytest
from aiohttp import web

from emberkeep.blocklist.model import BlockAction, BlockedNode
from emberkeep.jobs.checkpoints import JobPointers
from emberkeep.protocol.rest import API_PREFIX
from emberkeep.web.pages import web_routes
from emberkeep.web.session_routes import session_routes
from tests.support.contracts.job_store import savepoint
from tests.unit.rest.fake_gateway import NOW_MS, FakeGateway, job_id, job_view, task_manager_view
from tests.unit.rest.server import Site, running_site

JOB = job_id(1)
MANAGER = task_manager_view(2).info.id
# One address of each page.
PAGES = {
    "/": "/",
    "/audit": "/audit",
    "/blobs": "/blobs",
    "/events": "/events",
    "/jobs": "/jobs",
    "/jobs/{jobid}": f"/jobs/{JOB}",
    "/jobs/{jobid}/events": f"/jobs/{JOB}/events",
    "/jobs/{jobid}/logs": f"/jobs/{JOB}/logs",
    "/jobs/{jobid}/logs/{logid}": f"/jobs/{JOB}/logs/driver-stderr.1",
    "/jobs/{jobid}/spark-ui": "",  # leads to another port
    "/jobmanager/logs/{name}": "/jobmanager/logs/jobmanager.log",
    "/leadership": "/leadership",
    "/nodes": "/nodes",
    "/nodes/{nodeid}": "/nodes/node-2",
    "/savepoints": "/savepoints",
    "/taskmanagers": "/taskmanagers",
    "/taskmanagers/{taskmanagerid}": f"/taskmanagers/{MANAGER}",
    "/taskmanagers/{taskmanagerid}/logs/{name}": f"/taskmanagers/{MANAGER}/logs/taskmanager.log",
}
# What scripts ask for beyond the addresses in the pages. A script that fetches must be listed.
SCRIPTS: dict[str, tuple[str, ...]] = {
    "connection.js": (),
    "follow.js": (),  # the way to the next leader, which needs no session
    "job_actions.js": (),
    "live.js": (),
    "log_view.js": (
        "GET {data-source}/records",
        "GET {data-list}/x/records",
        "GET {data-list}/x/download",
        "GET {data-merged}",
        "GET {data-merged}/download",
    ),
    "logs.js": (),
    "nodes.js": (
        "GET {data-api}",
        "PUT {data-api}/nodes/x",
        "DELETE {data-api}/nodes/x",
        "PUT {data-api}/taskmanagers/x",
        "DELETE {data-api}/taskmanagers/x",
    ),
    "savepoints.js": (f"POST {API_PREFIX}/savepoint-verification", f"GET {API_PREFIX}/savepoints/manifest"),
    "streams.js": (),
    "usage_reading.js": (),
}
_BASES = ("data-api", "data-source", "data-list", "data-merged")  # scripts extend these addresses


class Attributes(HTMLParser):
    """Collects the attributes of a page, as name and value."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: set[tuple[str, str]] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.update((name, value) for name, value in attrs if value is not None)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    gateway = FakeGateway()
    gateway.add(job_view(JOB, "flights", pointers=JobPointers(savepoints=(savepoint(1),))))
    gateway.add_task_managers(task_manager_view(2))
    entry = BlockedNode(id="node-9", action=BlockAction.MARK_BLOCKED, start_ms=NOW_MS, causes=("disk",))
    await gateway.block(entry, merge=False)
    async with running_site(tmp_path, gateway) as running:
        yield running


def routes_of(site: Site) -> tuple[set[str], frozenset[tuple[str, str]]]:
    """Return the declared patterns of the pages, and what sessions may use."""
    pages = web_routes(site.web_sources)
    router = web.UrlDispatcher()
    router.add_routes(pages)
    shown = {route.resource.canonical for route in router.routes() if route.resource is not None}
    return shown - {"/static/{name}"}, session_routes(pages)


def is_allowed(request: str, allowed: frozenset[tuple[str, str]]) -> bool:
    """``request``: method and path."""
    method, _, address = request.partition(" ")
    path = address.partition("?")[0]
    return any(
        method == known and re.fullmatch(re.sub(r"\{[^}]*\}", "[^/]+", pattern), path) for known, pattern in allowed
    )


async def attributes(site: Site) -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    for path in filter(None, PAGES.values()):
        answer = await site.get(path)
        assert answer.status == 200, path
        found |= Attributes(answer.body.decode()).found
    return found


def asked_for(found: set[tuple[str, str]]) -> Iterator[str]:
    """Yield method and path of each resource of the REST API that the pages name, or that their scripts make of it."""
    for name, value in found:
        if name == "data-sends":
            yield value
        elif name == "data-sources":
            yield from (f"GET {each}" for each in value.split())
        elif value.startswith(API_PREFIX) and name not in _BASES:
            yield f"GET {value}"
    for request in (each for requests in SCRIPTS.values() for each in requests):
        place = re.search(r"\{([a-z-]+)\}", request)
        if place is None:
            yield request
            continue
        bases = {value for name, value in found if name == place[1] and value != API_PREFIX}
        assert bases, f"no page has {place[1]}"
        yield from (request.replace(place[0], base) for base in bases)


async def test_every_page_is_tried(site: Site) -> None:
    pages, allowed = routes_of(site)
    assert pages == set(PAGES)
    assert all(("GET", page) in allowed for page in pages)


async def test_what_pages_and_their_scripts_ask_for_is_allowed(site: Site) -> None:
    _, allowed = routes_of(site)
    requests = sorted(set(asked_for(await attributes(site))))
    assert len(requests) > 20
    assert [request for request in requests if not is_allowed(request, allowed)] == []


def test_every_script_that_fetches_is_listed() -> None:
    scripts = resources.files("emberkeep.web").joinpath("static").iterdir()
    fetching = {
        script.name
        for script in scripts
        if script.name.endswith(".js")
        and not script.name.startswith(("uplot", "reach"))  # which fetches what the others ask for
        and re.search(r"\b(fetch|reach)\(", script.read_text(encoding="utf-8"))
    }
    assert fetching == set(SCRIPTS)
