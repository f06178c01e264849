"""The browser's tab says the state on every page: a page that does not is missing here, or fails."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from emberkeep.base.errors import RetryLater
from emberkeep.web.pages import web_routes
from tests.unit.rest.fake_gateway import FakeGateway, job_id, job_view, task_manager_view
from tests.unit.rest.server import Site, running_site
from tests.unit.web.test_health import ALARM, head

TASK_MANAGER = task_manager_view(2).info.id
CLUSTER, JOB, NODE = "the cluster", "the job", "the node"
LOG = f"{TASK_MANAGER}~driver"
# For each page: an address, and whose state its tab says.
PAGES = {
    "/": ("/", CLUSTER),
    "/jobs": ("/jobs", CLUSTER),
    "/jobs/{jobid}": (f"/jobs/{job_id(1)}", JOB),
    "/jobs/{jobid}/events": (f"/jobs/{job_id(1)}/events", JOB),
    "/jobs/{jobid}/logs": (f"/jobs/{job_id(1)}/logs", JOB),
    "/jobs/{jobid}/logs/{logid}": (f"/jobs/{job_id(1)}/logs/{LOG}", JOB),
    "/events": ("/events", CLUSTER),
    "/savepoints": ("/savepoints", CLUSTER),
    "/taskmanagers": ("/taskmanagers", CLUSTER),
    "/taskmanagers/{taskmanagerid}": (f"/taskmanagers/{TASK_MANAGER}", NODE),
    "/taskmanagers/{taskmanagerid}/logs/{name}": (f"/taskmanagers/{TASK_MANAGER}/logs/taskmanager.log", CLUSTER),
    "/nodes": ("/nodes", CLUSTER),
    "/nodes/{nodeid}": ("/nodes/node-2", NODE),
    "/audit": ("/audit", CLUSTER),
    "/blobs": ("/blobs", CLUSTER),
    "/leadership": ("/leadership", "the election"),
    "/jobmanager/logs/{name}": ("/jobmanager/logs/jobmanager.log", CLUSTER),
}
WITHOUT_TAB = {"/jobs/{jobid}/spark-ui", "/static/{name}"}  # a redirection, and files


_PARAMETER = re.compile(r"\{(\w+):.*?\}(?=/|$)")


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    gateway = FakeGateway()
    gateway.add(job_view(job_id(1), "etl"))
    gateway.add_task_managers(task_manager_view(2))
    async with running_site(tmp_path, gateway) as running:
        yield running


async def test_every_page_is_looked_at_here(site: Site) -> None:
    routes = web_routes(site.web_sources)
    paths = {_PARAMETER.sub(r"{\1}", route.path) for route in routes if isinstance(route, web.RouteDef)}
    assert paths == PAGES.keys() | WITHOUT_TAB


@pytest.mark.parametrize("path", PAGES)
async def test_the_tab_of_each_page_says_whether_something_is_wrong(site: Site, path: str) -> None:
    address, whose = PAGES[path]
    title, icon = await head(site, address)
    assert icon == "/static/icon-running.svg"
    assert title.startswith("RUNNING · ") == (whose == JOB)
    site.gateway.change(job_id(1), alarms=(ALARM,))
    title, icon = await head(site, address)
    if whose in (CLUSTER, JOB):
        assert icon == "/static/icon-failed.svg"
        assert title.startswith("Job etl has an alarm · " if whose == CLUSTER else "ALARM · ")


@pytest.mark.parametrize("path", PAGES)
async def test_each_page_is_read_again_as_the_state_changes(site: Site, path: str) -> None:
    text = (await site.get(PAGES[path][0])).body.decode()
    assert " data-live" in text


async def test_a_page_about_an_error_does_not_say_that_the_cluster_is_well(site: Site) -> None:
    assert await head(site, f"/jobs/{job_id(7)}") == ("Error · Emberkeep", "/static/icon.svg")
    assert await head(site, f"/jobs/{job_id(7)}/logs") == ("Logs by time · Emberkeep", "/static/icon.svg")
    site.gateway.refusal = RetryLater("the JobManager reads its jobs")
    assert await head(site, "/jobs") == ("Error · Emberkeep", "/static/icon-waiting.svg")
