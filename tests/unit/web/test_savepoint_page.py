"""The page of all savepoints: filters in its address, pages, lineage, roles, and what it says when there are none."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from emberkeep.base.errors import InvalidInput
from emberkeep.jobmanager.views.savepoints import SavepointKind
from emberkeep.jobs.checkpoints import JobPointers
from emberkeep.jobs.model import JobStatus
from emberkeep.lifecycle.model import Procedure
from emberkeep.lifecycle.verifications import ReadFiles, Verification
from emberkeep.web.savepoints.lines import verification_text
from emberkeep.web.savepoints.page import SavepointFilter, parse_filter
from tests.support.contracts.job_store import savepoint
from tests.unit.rest.fake_gateway import NOW_MS, FakeGateway, job_graph, job_id, job_view
from tests.unit.rest.server import Site, running_site
from tests.unit.security.callers.test_owners_and_namespaces import FLIGHTS, TRAINS, TokenPerName, bearer, owned


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with running_site(tmp_path, FakeGateway(), tokens=TokenPerName()) as running:
        yield running


async def page(site: Site, path: str = "/savepoints", name: str = "") -> str:
    answer = await site.get(path, headers=bearer(name) if name else {})
    assert answer.status == 200, answer
    return answer.body.decode()


def text(markup: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", markup)).split())


def test_an_address_keeps_what_it_does_not_change() -> None:
    wanted = SavepointFilter("a&b", SavepointKind.DRAIN, job_id(1), "team")
    assert SavepointFilter().path() == "/savepoints"
    assert wanted.path(2) == f"/savepoints?text=a%26b&kind=drain&job={job_id(1)}&namespace=team&page=2"
    assert wanted.with_kind(None).with_job(None).with_namespace("").path() == "/savepoints?text=a%26b"
    assert parse_filter({"text": "a&b", "kind": "drain", "job": job_id(1), "namespace": "team"}) == wanted


@pytest.mark.parametrize("query", [{"kind": "move"}, {"job": "flights"}])
def test_a_bad_address_is_refused(query: dict[str, str]) -> None:
    with pytest.raises(InvalidInput):
        parse_filter(query)


async def test_an_empty_list_says_what_to_do(site: Site) -> None:
    assert "emberkeep submit app.py" in await page(site)
    site.gateway.add(job_view(job_id(1), "etl"))
    assert "emberkeep savepoint create JOB" in await page(site)
    assert "No such savepoints." in text(await page(site, "/savepoints?text=x"))


async def test_many_savepoints_are_paged(site: Site) -> None:
    for number in range(10):
        made = tuple(
            msgspec.structs.replace(savepoint(100 * number + each), procedure=Procedure.DRAIN) for each in range(100)
        )
        site.gateway.add(job_view(job_id(number), f"job-{number}", pointers=JobPointers(savepoints=made)))
    first, last, beyond = (
        await page(site),
        await page(site, "/savepoints?page=10"),
        await page(site, "/savepoints?page=99"),
    )
    assert first.count("data-verifies") == last.count("data-verifies") == 100
    assert 'rel="next" href="/savepoints?page=2"' in first
    assert 'rel="next"' not in last
    assert "Page 10 of 10" in beyond
    assert "All 1 000 drain 1 000" in text(first)
    assert len(first) < 250_000


async def test_lineage_is_shown_in_both_directions(site: Site) -> None:
    path = savepoint(1).path
    child = job_view(
        job_id(2),
        "child",
        JobStatus.FINISHED,
        graph=job_graph(job_id(2), "", savepoint=f"file://{path}"),
        pointers=JobPointers(savepoints=(savepoint(2),)),
    )
    site.gateway.add(job_view(job_id(1), "source", pointers=JobPointers(savepoints=(savepoint(1),))), child)
    newest, oldest = (text(row) for row in (await page(site)).split("<tr>")[2:])
    assert f"started from savepoint of source {job_id(1)[:8]}" in newest
    assert "FINISHED" in newest
    assert f"started from it: child {job_id(2)[:8]}" in oldest


async def test_what_is_being_deleted_can_be_neither_verified_nor_used(site: Site) -> None:
    retired = msgspec.structs.replace(savepoint(1), periodic=True, retired_ms=NOW_MS)
    site.gateway.add(job_view(job_id(1), "etl", pointers=JobPointers(savepoints=(retired,))))
    shown = await page(site)
    assert "periodic, being deleted" in text(shown)
    assert "data-verifies" not in shown
    assert "data-copies" not in shown
    assert savepoint(1).path in shown


@pytest.mark.req("SEC-12")
async def test_a_reader_sees_and_verifies_what_its_role_permits(site: Site) -> None:
    site.gateway.add(owned(FLIGHTS, "flights", "alice", "flights"), owned(TRAINS, "trains", "bob", "trains"))
    child = job_view(job_id(4), "secret child", graph=job_graph(job_id(4), "", savepoint="/savepoints/trains"))
    site.gateway.add(child)
    for name, paths, verifies in (
        ("alice", {"flights"}, {"flights"}),
        ("vera", {"trains"}, set()),
        ("carol", {"flights", "trains"}, set()),
        ("olga", {"flights", "trains"}, {"flights", "trains"}),
    ):
        shown = await page(site, name=name)
        assert set(re.findall(r'data-verified="/savepoints/(\w+)"', shown)) == paths, name
        assert set(re.findall(r'data-verifies="/savepoints/(\w+)"', shown)) == verifies, name
        assert ("secret child" in shown) == (name in ("carol", "olga")), name
        assert ('aria-label="Namespace"' in shown) == (name in ("carol", "olga")), name
    assert "/savepoints/trains" not in await page(site, "/savepoints?namespace=trains", "alice")


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (None, "complete; not verified since this JobManager leads"),
        (Verification(time_ms=0, files=1, size=2048), "intact: 1 file, 2 KiB; read 1970-01-01 00:00:00"),
        (
            Verification(time_ms=0, files=2, size=1, warning="another Spark"),
            "intact: 2 files, 1 B; another Spark; read 1970-01-01 00:00:00",
        ),
        (
            Verification(time_ms=0, files=2, size=1, problems=3, problem="a is missing"),
            "damaged: a is missing and 2 more; read 1970-01-01 00:00:00",
        ),
    ],
)
def test_a_verification_is_told_in_words(found: Verification | None, words: str) -> None:
    assert verification_text(found) == words


async def test_everyone_sees_the_newest_verification(site: Site) -> None:
    made = savepoint(1)
    site.gateway.add(job_view(job_id(1), "etl", pointers=JobPointers(savepoints=(made,))))
    read = ReadFiles(first=0, files=3, total=3, size=10, problems=("a is missing",))
    site.api.verified_savepoints.note(made.path, read, NOW_MS)
    for path in ("/savepoints", f"/jobs/{job_id(1)}"):
        assert "damaged: a is missing; read" in text(await page(site, path))
