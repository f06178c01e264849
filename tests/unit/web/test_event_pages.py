"""The timeline of a job and the pages of events."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from emberkeep.base.errors import Unavailable
from emberkeep.chronicle.occurrence import Occurrence, What
from emberkeep.chronicle.selection import Page, Selection
from emberkeep.jobs.model import JobStatus
from tests.support.chronicle.memory import MemoryChronicle
from tests.unit.rest.fake_gateway import NOW_MS, FakeGateway, job_id, job_view
from tests.unit.rest.server import Site, running_site


class Clocked(MemoryChronicle):
    """A chronicle whose time the test sets."""

    now_ms = NOW_MS - 100_000

    def __init__(self) -> None:
        super().__init__({}, lambda: self.now_ms)
        self.begin(3, "store")

    def at(self, seconds: int, what: What, message: str = "", **facts: object) -> None:
        self.now_ms = NOW_MS - 100_000 + seconds * 1000
        self.note(Occurrence(what=what, message=message, **facts))  # type: ignore[arg-type]


class Unreadable(MemoryChronicle):
    async def read(self, job_id: str, selection: Selection) -> Page:
        raise Unavailable("the events in /storage cannot be read now: stale file handle")


@pytest.fixture
def chronicle() -> Clocked:
    return Clocked()


@pytest.fixture
async def site(tmp_path: Path, chronicle: Clocked) -> AsyncIterator[Site]:
    gateway = FakeGateway()
    gateway.add(job_view(job_id(1), "flights"), job_view(job_id(2), "etl", JobStatus.FINISHED))
    async with running_site(tmp_path, gateway, chronicle=chronicle) as running:
        yield running


async def page(site: Site, path: str) -> str:
    answer = await site.get(path)
    assert answer.status == 200
    return answer.body.decode()


async def test_the_timeline_is_a_table_that_the_drawing_reads(site: Site, chronicle: Clocked) -> None:
    job = job_id(1)
    chronicle.at(0, What.SUBMITTED, job_id=job)
    chronicle.at(10, What.STATUS, job_id=job, attempt=1, details={"status": "RUNNING"})
    chronicle.at(40, What.SLOTS_MISSING, "the attempt waits for 2 slots", job_id=job, attempt=1)
    chronicle.at(50, What.LEADER_STARTED, "leads")
    text = await page(site, f"/jobs/{job}")
    began = NOW_MS - 100_000
    assert re.findall(r'data-band="([^"]+)" data-from="(\d+)" data-to="(\d*)"', text) == [
        ("waiting-for-slots", str(began + 40_000), ""),
        ("running", str(began + 10_000), str(began + 40_000)),
        ("queued", str(began), str(began + 10_000)),
    ]
    assert re.findall(r'data-mark="([^"]+)" data-at="(\d+)"', text) == [
        ("leader-started", str(began + 50_000)),
        ("slots-missing", str(began + 40_000)),
    ]
    assert 'Waiting for slots for <span data-since="' in text
    assert "1 min</span>. The attempt waits for 2 slots." in text


async def test_each_start_shows_how_long_it_took(site: Site, chronicle: Clocked) -> None:
    job = job_id(1)
    chronicle.at(0, What.SUBMITTED, job_id=job)
    chronicle.at(30, What.ATTEMPT_ENDED, job_id=job, attempt=1, details={"cause": "lost"})
    chronicle.at(31, What.ATTEMPT_STARTED, job_id=job, attempt=2, task_manager="tm-1")
    chronicle.at(34, What.STATUS, job_id=job, attempt=2, details={"status": "RUNNING"})
    section = (await page(site, f"/jobs/{job}")).partition('id="recoveries"')[2].partition("</section>")[0]
    words = " ".join(re.sub(r"<[^>]+>", " ", section).split())
    assert "loss of the driver" in words
    assert re.search(r"\+ 4 s – 4 s", words)


async def test_a_job_without_events_shows_the_states_that_are_known(site: Site) -> None:
    text = await page(site, f"/jobs/{job_id(2)}")
    assert "data-band=" in text
    assert "Ended " in text


async def test_the_job_s_page_does_without_events_that_cannot_be_read(tmp_path: Path) -> None:
    gateway = FakeGateway()
    gateway.add(job_view(job_id(1), "flights"))
    async with running_site(tmp_path, gateway, chronicle=Unreadable({}, lambda: 0)) as site:
        assert "Events cannot be read now: the events in /storage" in await page(site, f"/jobs/{job_id(1)}")
        assert (await site.get("/events")).status == 503


async def test_filters_and_pages_are_in_the_address(site: Site, chronicle: Clocked) -> None:
    for number in range(130):
        chronicle.at(number // 2, What.EXCEPTION, f"failure {number}.", job_id=job_id(1))
    chronicle.at(99, What.SAVEPOINT, "saved", job_id=job_id(1))
    first = await page(site, f"/jobs/{job_id(1)}/events?type=exception")
    assert ("failure 129." in first, "failure 29." in first, "saved" in first) == (True, False, False)
    (older,) = re.findall(r'<a rel="next" href="([^"]+)"', first)
    second = await page(site, older.replace("&amp;", "&"))
    assert ("failure 29." in second, "failure 0." in second) == (True, True)
    assert 'aria-current="true">exception<' in second


async def test_several_types_who_asked_text_and_time_select_events(site: Site, chronicle: Clocked) -> None:
    job = job_id(1)
    chronicle.at(0, What.SAVEPOINT, "saved early", job_id=job, by="ana")
    chronicle.at(61, What.SAVEPOINT, "saved late", job_id=job, by="ana")
    chronicle.at(62, What.EXCEPTION, "lost on node-7", job_id=job)
    chronicle.at(63, What.MOVING, "leaves node-7", job_id=job, by="ben")
    shown = {}
    for query in (
        "type=savepoint&type=exception",
        "by=Ana",
        "text=NODE-7",
        "since=2026-11-18T11:06&until=2026-11-18T11:06",
    ):
        text = await page(site, f"/jobs/{job}/events?{query}")
        shown[query] = [
            each for each in ("early", "late", "lost", "leaves") if re.search(rf"data-message>[^<]*{each}", text)
        ]
    assert list(shown.values()) == [
        ["early", "late", "lost"],
        ["early", "late"],
        ["lost", "leaves"],
        ["late", "lost", "leaves"],
    ]
    both = await page(site, f"/jobs/{job}/events?type=savepoint&type=exception&by=ana")
    assert f'href="/jobs/{job}/events?type=exception&amp;by=ana" aria-current="true">savepoint<' in both


@pytest.mark.parametrize("query", ["type=leader-started", "type=nonsense", "before=x", "since=yesterday", "until=x"])
async def test_a_filter_that_makes_no_sense_is_refused(site: Site, query: str) -> None:
    assert (await site.get(f"/jobs/{job_id(1)}/events?{query}")).status == 400
