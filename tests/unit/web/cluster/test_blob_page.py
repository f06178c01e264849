"""The page of BLOBs: totals, filters, and what may be seen."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from emberkeep.base.errors import InvalidInput
from emberkeep.base.ids import JobId
from emberkeep.blobs.model import NO_JOB, BlobKey, BlobKind
from emberkeep.jobmanager.views.blobs import BlobStatistics, BlobView
from emberkeep.web.cluster.blobs import (
    MOST_HOLDERS,
    MOST_JOBS,
    PER_PAGE,
    STATES,
    Amount,
    BlobFilter,
    blob_overview,
    due_texts,
    parse_filter,
)
from tests.unit.rest.fake_gateway import FakeGateway, job_id, job_view
from tests.unit.rest.server import Site, running_site
from tests.unit.security.callers.test_owners_and_namespaces import TokenPerName, bearer, owned


def blob(number: int, owner: JobId, size: int, state: str = "referenced", **changes: object) -> BlobView:
    view = BlobView(
        owner=owner,
        key=BlobKey(kind=BlobKind.PERMANENT, sha256=f"{number:064x}"),
        size=size,
        in_local_store=True,
        in_ha_store=True,
        references=("job",),
        state=state,
    )
    return msgspec.structs.replace(view, **changes)


def test_totals_are_by_state_store_and_job() -> None:
    blobs = [
        blob(1, job_id(1), 100),
        blob(2, job_id(1), 50, "staged", in_ha_store=False),
        blob(3, job_id(2), 7, in_local_store=False),
        blob(4, NO_JOB, 1, in_local_store=False, in_ha_store=False),
        blob(5, job_id(2), 0, "uploading", in_local_store=False, in_ha_store=False),
    ]
    shown = blob_overview(blobs, {job_id(1): "etl"}, BlobFilter(), 1, {"staged": "soon"})
    assert (shown.total, shown.local, shown.ha, shown.nowhere) == (
        Amount(count=5, bytes=158),
        Amount(count=2, bytes=150),
        Amount(count=2, bytes=107),
        1,  # what is being uploaded is not missing
    )
    assert {line.state: (line.amount.count, line.due) for line in shown.states} == {
        "referenced": (3, ""),
        "uploading": (1, ""),
        "unreferenced": (0, ""),
        "staged": (1, "soon"),
        "deleting": (0, ""),
    }
    assert [(line.job_id, line.name, line.shared, line.amount.bytes) for line in shown.jobs] == [
        (job_id(1), "etl", False, 150),
        (job_id(2), "", False, 7),
        (NO_JOB, "", True, 1),
    ]
    assert [line.size for line in shown.lines] == [100, 50, 7, 1, 0]
    assert [line.stores for line in shown.lines] == [("local", "HA"), ("local",), ("HA",), (), ()]


def test_a_filter_selects_by_state_and_job() -> None:
    blobs = [blob(1, job_id(1), 9), blob(2, job_id(1), 8, "staged"), blob(3, job_id(2), 7, "staged")]
    shown = blob_overview(blobs, {}, BlobFilter("staged", job_id(1)), 1, {})
    assert [line.size for line in shown.lines] == [8]
    assert shown.total.count == 2  # of the job
    assert [line.size for line in blob_overview(blobs, {}, BlobFilter("staged"), 1, {}).lines] == [8, 7]


def test_thousands_are_paged_and_bounded() -> None:
    holders = tuple(f"message-{number}" for number in range(500))
    blobs = [blob(number, job_id(number % 70), number, references=holders) for number in range(5000)]
    first = blob_overview(blobs, {}, BlobFilter(), 1, {})
    last = blob_overview(blobs, {}, BlobFilter(), 10**8 - 1, {})
    assert (len(first.lines), first.lines[0].size, first.pages) == (PER_PAGE, 4999, 5000 // PER_PAGE)
    assert (last.number, last.lines[-1].size) == (first.pages, 0)
    assert (len(first.jobs), first.jobs_hidden) == (MOST_JOBS, 70 - MOST_JOBS)
    assert (len(first.lines[0].holders), first.lines[0].more_holders) == (MOST_HOLDERS, 500 - MOST_HOLDERS)


def test_the_clean_up_that_deletes_a_blob_has_a_time() -> None:
    zero = dict.fromkeys(BlobStatistics.__struct_fields__, 0)
    planned = msgspec.convert({**zero, "cleanup_in": 60.0, "cleanup_interval": 1800.0}, BlobStatistics)
    assert due_texts(planned, 1_795_000_000_000) == {
        "staged": "by the clean-up at 2026-11-18 11:37:40",
        "deleting": "by the clean-up at 2026-11-18 11:07:40 at the latest",
    }
    assert "after the next" in due_texts(msgspec.structs.replace(planned, cleanup_in=None), 0)["staged"]


def test_the_filter_is_in_the_address() -> None:
    chosen = BlobFilter("staged", job_id(1))
    assert chosen.path(3) == f"/blobs?job={job_id(1)}&state=staged&page=3"
    assert (BlobFilter().path(), chosen.with_state("").with_job(None).path()) == ("/blobs", "/blobs")
    assert parse_filter({"state": "staged", "job": f" {job_id(1)} "}) == chosen


@pytest.mark.parametrize(("query", "field"), [({"state": "<b>"}, "state"), ({"job": "x"}, "job")])
def test_a_filter_that_makes_no_sense_is_refused(query: dict[str, str], field: str) -> None:
    with pytest.raises(InvalidInput):
        parse_filter(query)


# --- the page ---------------------------------------------------------------------------------------------------------

FLIGHTS, TRAINS = job_id(1), job_id(2)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    gateway = FakeGateway()
    gateway.add(owned(FLIGHTS, "flights", "alice", "flights"), owned(TRAINS, "trains", "bob", "trains"))
    gateway.add(job_view(job_id(3), "idle"))
    async with running_site(tmp_path, gateway, tokens=TokenPerName()) as running:
        yield running


async def words(site: Site, path: str, **options: object) -> str:
    answer = await site.get(path, **options)
    assert answer.status == 200
    return " ".join(re.sub(r"<[^>]+>", " ", answer.body.decode()).split())


async def test_the_page_lists_blobs_with_their_jobs(site: Site) -> None:
    await site.blobs.store_bytes(FLIGHTS, b"x" * 2048, ["message-1"])
    await site.blobs.store_bytes(NO_JOB, b"a log", [])
    await site.blobs.store_bytes(job_id(9), b"?", [])
    text = await words(site, "/blobs")
    assert re.search(r"transient flights 00000000 2 KiB local referenced message-1", text)
    assert "no job" in text
    assert re.search(r"unknown job", text)
    assert "emberkeep blob verify" in text


async def test_each_state_is_explained(site: Site) -> None:
    text = await words(site, "/blobs")
    assert all(meaning[1:] in text for meaning in STATES.values())
    assert "There are no BLOBs." in text


async def test_what_is_staged_says_when_it_goes(site: Site) -> None:
    await site.blobs.store_bytes(FLIGHTS, b"x", [])
    await site.blobs.collect()
    assert "Deleted by the clean-up after the next one." in await words(site, "/blobs?state=staged")


async def test_a_job_s_page_leads_to_its_blobs(site: Site) -> None:
    await site.blobs.store_bytes(TRAINS, b"1234", ["a"])
    await site.blobs.store_bytes(FLIGHTS, b"12345678", ["a"])
    assert f'href="/blobs?job={FLIGHTS}"' in (await site.get(f"/jobs/{FLIGHTS}")).body.decode()
    text = await words(site, f"/blobs?job={FLIGHTS}")
    assert ("BLOBs of flights" in text, "8 B" in text, "4 B" in text) == (True, True, False)


async def test_a_namespace_sees_only_the_blobs_of_its_jobs(site: Site) -> None:
    for number, owner in enumerate((FLIGHTS, TRAINS, job_id(3), job_id(9), NO_JOB)):
        await site.blobs.store_bytes(owner, b"x" * (1001 + number), ["a"])
    text = await words(site, "/blobs", headers=bearer("alice"))
    assert "All 1 · 1001 B" in text.replace("\u202f", "")
    for other in ("trains", "idle", "unknown job", "no job"):
        assert other not in text
    for hidden in (TRAINS, job_id(9), NO_JOB):
        text = await words(site, f"/blobs?job={hidden}", headers=bearer("alice"))
        assert ("All 0 · 0 B" in text, "trains" in text) == (True, False)
    assert (await site.get("/v1/blobs", headers=bearer("alice"))).status == 403


@pytest.mark.parametrize("query", ["state=nonsense", "job=..%2F..", "page=0", "page=x"])
async def test_an_address_that_makes_no_sense_is_refused(site: Site, query: str) -> None:
    assert (await site.get(f"/blobs?{query}")).status == 400


async def test_a_long_list_has_pages(site: Site) -> None:
    for number in range(PER_PAGE + 1):
        await site.blobs.store_bytes(FLIGHTS, str(number).encode(), ["a"])
    first, second = [(await site.get(path)).body.decode() for path in ("/blobs", "/blobs?page=2")]
    assert (first.count("…</code>"), second.count("…</code>")) == (PER_PAGE, 1)
    assert 'rel="next" href="/blobs?page=2"' in first
