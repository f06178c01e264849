"""A job's savepoints on its page, and where a job came from."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from emberkeep.base.identity import CLUSTER
from emberkeep.jobmanager.views.cluster import JobView
from emberkeep.jobmanager.views.savepoints import Lineage, savepoint_views
from emberkeep.jobs.checkpoints import JobPointers
from emberkeep.jobs.model import JobStatus
from emberkeep.lifecycle.verifications import Verifications
from emberkeep.web.savepoints.lines import MOST_COMMAND, Origin, Relative, origin, savepoint_lines
from tests.support.contracts.job_store import savepoint
from tests.unit.rest.fake_gateway import NOW_MS, FakeGateway, job_graph, job_id, job_view
from tests.unit.rest.server import Site, running_site
from tests.unit.web.conftest import JavaScript

PLACE = "/data/savepoints/savepoint-1"


def made(number: int, **changes: object) -> JobView:
    """A job with a savepoint in PLACE."""
    pointer = msgspec.structs.replace(savepoint(1), **{"path": PLACE, "created_ms": NOW_MS - 60_000, **changes})
    return job_view(job_id(number), "source", pointers=JobPointers(savepoints=(savepoint(2), pointer)))


def started(number: int, path: str = PLACE, status: JobStatus = JobStatus.RUNNING) -> JobView:
    return job_view(job_id(number), f"job-{number}", status, graph=job_graph(job_id(number), "", savepoint=path))


def relative(view: JobView) -> Relative:
    return Relative(job_id=view.job_id, name=view.name)


def test_a_savepoint_names_the_jobs_that_were_started_from_it() -> None:
    source, child, other = made(1), started(2, f"file://{PLACE}/"), started(3, "/data/savepoints/savepoint-9")
    lineage = Lineage([source, child, other])
    newest, _ = savepoint_lines(savepoint_views([source]), lineage, Verifications(), CLUSTER)
    assert newest.path == PLACE
    assert newest.started == (relative(child),)


async def test_a_very_long_command_is_left_to_the_terminal(site: Site) -> None:
    view = made(1)
    assert view.graph is not None
    graph = msgspec.structs.replace(view.graph, arguments=("x" * MOST_COMMAND,))
    site.gateway.change(job_id(1), pointers=view.pointers, graph=graph)
    page = (await site.get(f"/jobs/{job_id(1)}")).body.decode()
    assert f"<code>emberkeep savepoint restore {PLACE} app.py</code>" in page
    assert f"<code>emberkeep savepoint show {PLACE}</code> has the whole command" in page


def test_a_job_names_the_job_whose_savepoint_it_was_started_from() -> None:
    source, child = made(1), started(2)
    assert origin(child, Lineage([source, child])) == Origin(path=PLACE, job=relative(source))
    assert origin(child, Lineage([child])) == Origin(path=PLACE, job=None)
    assert origin(source, Lineage([source, child])) is None


def test_the_origin_outlives_the_job() -> None:
    ended = started(2, status=JobStatus.FINISHED)
    assert ended.graph is not None
    assert ended.result is None
    assert msgspec.structs.replace(ended, graph=None).started_from == ""
    assert ended.started_from == PLACE


async def test_a_savepoint_that_is_being_deleted_starts_no_job(site: Site) -> None:
    site.gateway.change(job_id(1), pointers=made(1, periodic=True).pointers)
    page = (await site.get(f"/jobs/{job_id(1)}")).body.decode()
    assert ">periodic<" in page
    assert page.count("savepoint restore") == 4, "for two savepoints: to read and to copy"
    site.gateway.change(job_id(1), pointers=made(1, periodic=True, retired_ms=NOW_MS).pointers)
    page = (await site.get(f"/jobs/{job_id(1)}")).body.decode()
    assert ">being deleted<" in page
    assert page.count("savepoint restore") == 2


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    gateway = FakeGateway()
    gateway.add(made(1, size=3 * 1024**2, duration_ms=4200), started(2), job_view(job_id(3), "plain"))
    async with running_site(tmp_path, gateway) as running:
        yield running


async def section(site: Site, number: int) -> str:
    page = (await site.get(f"/jobs/{job_id(number)}")).body.decode()
    return page.partition('<section id="savepoints"')[2].partition("</section>")[0]


async def test_a_jobs_page_lists_its_savepoints(site: Site) -> None:
    text = await section(site, 1)
    cells = [re.sub(r"<[^>]+>|\s+", " ", cell).strip() for cell in re.findall(r"<td[^>]*>(.*?)</td>", text, re.S)]
    assert cells[2:5] == ["1 min", "3 MiB", "4 s"]
    assert f'data-verifies="{PLACE}"' in text
    command = html.unescape(text.partition('data-copies="')[2].partition('"')[0])
    assert command.startswith(f"emberkeep savepoint restore {PLACE} --conf ")
    assert command.endswith(" -D restart-strategy.type=fixed-delay flights.py --input data/flights")
    assert "hunter2" not in text
    assert "no longer known" not in text
    assert "for the directory <code>/data</code>" in text
    assert f'<a href="/jobs/{job_id(2)}">job-2</a>' in text
    assert "<table" not in await section(site, 3)


async def test_a_command_whose_job_is_not_known_in_full_says_what_it_lacks(site: Site) -> None:
    site.gateway.change(job_id(1), graph=None)
    text = await section(site, 1)
    assert f'data-copies="emberkeep savepoint restore {PLACE} app.py"' in text
    assert "needs the job's options and arguments, too, which are no longer known" in html.unescape(text)


async def test_an_older_record_has_no_size(site: Site) -> None:
    text = await section(site, 1)
    rows = text.split("<tr>")
    assert rows[-1].count("–") == 2


async def test_a_jobs_page_says_what_it_was_started_from(site: Site) -> None:
    page = (await site.get(f"/jobs/{job_id(2)}")).body.decode()
    assert f'savepoint of <a href="/jobs/{job_id(1)}">source</a>' in page


@pytest.mark.parametrize(
    ("sizes", "pieces"),
    [
        ([], []),
        ([5, 6], [[0, 2, 11]]),
        ([60, 5, 200, 1], [[0, 1, 60], [1, 1, 5], [2, 1, 200], [3, 1, 1]]),
        ([0] * 501, [[0, 500, 0], [500, 1, 0]]),
    ],
)
def test_a_savepoint_is_verified_in_pieces(javascript: JavaScript, sizes: list[int], pieces: list[list[int]]) -> None:
    files = [{"size": size * 1024**2} for size in sizes]
    found = javascript(
        ["savepoint_pieces"],
        f"savepoint_pieces.pieces({files}).map((one) => [one.first, one.count, one.size / 1024 ** 2])",
    )
    assert found == pieces
