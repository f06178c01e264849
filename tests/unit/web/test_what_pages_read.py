"""A page of a cluster with many jobs reads them once, in brief, and the details of the jobs that it shows only."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from emberkeep.jobs.checkpoints import JobPointers
from emberkeep.jobs.model import JobStatus
from tests.support.contracts.job_store import savepoint
from tests.unit.rest.fake_gateway import FakeGateway, job_id, job_view, task_manager_view
from tests.unit.rest.server import Site, running_site

JOBS = 300
WITH_SAVEPOINTS = 3
PLAIN = job_view(job_id(1), "etl", pointers=JobPointers(savepoints=(savepoint(1),)))


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    gateway = FakeGateway()
    bare = msgspec.structs.replace(PLAIN, pointers=JobPointers())
    for number in range(1, JOBS + 1):
        like, has_ended = PLAIN if number <= WITH_SAVEPOINTS else bare, number % 2 == 1
        status = JobStatus.FINISHED if has_ended else JobStatus.RUNNING
        ended_ms = number if has_ended else None
        gateway.add(msgspec.structs.replace(like, job_id=job_id(number), status=status, ended_ms=ended_ms))
    gateway.add_task_managers(task_manager_view(2))
    async with running_site(tmp_path, gateway) as site:
        yield site


@pytest.mark.parametrize(
    ("path", "briefs", "details"),
    [
        ("/", 1, 50 + 10),
        ("/jobs", 1, 100),
        ("/jobs?state=RUNNING&page=2", 1, JOBS // 2 - 100),
        ("/jobs?name=nothing", 1, 0),
        ("/nodes", 1, 0),
        ("/taskmanagers", 1, 0),
        ("/events", 1, 0),
        ("/audit", 1, 0),
        ("/blobs", 1, 0),
        ("/jobmanager/logs/jobmanager.log", 1, 0),
        ("/savepoints", 1, WITH_SAVEPOINTS),
        (f"/jobs/{job_id(1)}", 1, WITH_SAVEPOINTS),  # that of a job with savepoints
        (f"/jobs/{job_id(9)}", 0, 0),
        ("/leadership", 0, 0),
        ("/v1/overview", 1, 0),
    ],
)
async def test_jobs_are_read_once_and_in_detail_only_if_shown(site: Site, path: str, briefs: int, details: int) -> None:
    assert (await site.get(path)).status == 200
    assert (site.gateway.listings["briefs"], site.gateway.listings["details"]) == (briefs, details)


async def test_the_page_of_a_node_reads_the_jobs_that_are_there(site: Site) -> None:
    view = task_manager_view(2)
    there = {held.job_id for held in view.report.allocations} | {driver.job_id for driver in view.report.drivers}
    for path in (f"/nodes/{view.info.node_id}", f"/taskmanagers/{view.info.id}"):
        site.gateway.listings.clear()
        assert (await site.get(path)).status == 200
        assert site.gateway.listings == {"details": len(there)}
