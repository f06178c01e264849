"""The page of leaders: who led when, why it changed, and who stands by."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from emberkeep.chronicle.occurrence import What
from emberkeep.chronicle.terms import UNKNOWN_END, LeaderTerm, StoreDoubt
from emberkeep.jobmanager.views.election import ElectionView, ZooKeeperConnection
from emberkeep.web.cluster.leadership import BAR_WIDTH, PER_PAGE, colours_of, job_managers, leaders
from tests.unit.rest.fake_gateway import NOW_MS, FakeGateway
from tests.unit.rest.server import Site, running_site
from tests.unit.security.callers.test_owners_and_namespaces import TokenPerName, bearer
from tests.unit.web.test_event_pages import Clocked, Unreadable, page


def term(epoch: int, began: int, ended: int | None = None, why: str = "", address: str = "jm-1:8081") -> LeaderTerm:
    """``began`` and ``ended`` in seconds."""
    return LeaderTerm(
        epoch=epoch,
        address=address,
        name="",
        began_ms=began * 1000,
        ended_ms=None if ended is None else ended * 1000,
        why_ended=why,
    )


TERMS = (
    term(7, 100, address="jm-2:8081"),
    term(6, 60, 100, UNKNOWN_END),
    term(5, 0, 50, "it was shut down", address="jm-2:8081"),
)


def test_each_term_says_how_long_it_lasted_and_how_long_nobody_led() -> None:
    shown = leaders(TERMS, 7, 130_000, 1)
    assert [(line.epoch, line.leads, line.lasted_ms, line.end_is_known, line.unled_ms) for line in shown.terms] == [
        (7, True, 30_000, False, None),
        (6, False, 40_000, False, None),  # nobody knows when it really ended
        (5, False, 50_000, True, 10_000),
    ]


def test_times_in_doubt_are_listed_and_marked_in_the_bar() -> None:
    doubts = (
        StoreDoubt(epoch=7, began_ms=190_000, reason="no answer"),
        StoreDoubt(epoch=6, began_ms=90_000, reason="no answer"),
        StoreDoubt(epoch=5, began_ms=20_000, ended_ms=30_000, reason="interrupted"),
    )
    shown = leaders(TERMS, 7, 200_000, 1, doubts)
    assert [(line.epoch, line.lasted_ms, line.goes_on) for line in shown.doubts] == [
        (7, 10_000, True),
        (6, None, False),
        (5, 10_000, False),
    ]
    assert [(part.x, part.width) for part in shown.doubts_in_bar] == [(100.0, 50.0), (450.0, 2.0), (950.0, 50.0)]
    assert shown.doubts_in_bar[0].label == "in doubt, for 10 s from 1970-01-01 00:00:20"


async def test_the_page_says_when_the_store_did_not_confirm_the_leader(site: Site, chronicle: Clocked) -> None:
    chronicle.at(0, What.LEADER_STARTED, "leads", details={"address": "jm-1:8081"})
    assert "Job store in doubt" not in await page(site, "/leadership")
    chronicle.at(10, What.STORE_IN_DOUBT, details={"reason": "the session with the job store is interrupted"})
    chronicle.at(14, What.STORE_BACK, details={"seconds": "4.0"})
    text = await page(site, "/leadership")
    assert "The session with the job store is interrupted" in text
    assert '<td data-label="For" class="num">4 s</td>' in text


def test_the_bar_has_each_term_and_each_gap_at_its_place() -> None:
    shown = leaders(TERMS, 7, 200_000, 1)
    assert (shown.bar_from_ms, shown.bar_to_ms) == (0, 200_000)
    assert [(part.x, part.width, part.colour) for part in shown.bar] == [
        (0, 250, 2),
        (250, 50, 0),
        (300, 200, 1),
        (500, 500, 2),
    ]
    assert shown.bar[1].label == "nobody led for 10 s from 1970-01-01 00:00:50"
    assert "for at most 40 s" in shown.bar[2].label


def test_what_is_short_can_still_be_seen_and_stays_in_the_bar() -> None:
    shown = leaders((term(3, 1_000_000), term(2, 0, 999_999, "it was shut down")), 3, 1_000_000_001, 1)
    assert all(part.width >= 2 and 0 <= part.x <= BAR_WIDTH - part.width for part in shown.bar)


def test_clocks_that_differ_make_no_negative_times() -> None:
    shown = leaders((term(3, 100), term(2, 90, 105, "it was shut down"), term(1, 95, 91, "odd")), 3, 99_000, 1)
    assert [(line.lasted_ms, line.unled_ms) for line in shown.terms] == [(0, None), (15_000, 0), (0, 0)]
    assert all(part.x >= 0 and part.x + part.width <= BAR_WIDTH for part in shown.bar)


def test_an_old_leader_does_not_seem_to_lead() -> None:
    """The present one has not recorded its start."""
    (line,) = leaders((term(3, 100),), 4, 200_000, 1).terms
    assert (line.leads, line.ended_ms, line.lasted_ms, line.why_ended) == (False, None, None, UNKNOWN_END)


def test_terms_are_paged() -> None:
    many = [term(epoch, epoch * 10, epoch * 10 + 10, "moved") for epoch in range(PER_PAGE + 20, 0, -1)]
    first, second = leaders(many, 1000, 10**6, 1), leaders(many, 1000, 10**6, 99)
    assert (len(first.terms), len(second.terms), second.number, second.pages) == (PER_PAGE, 20, 2, 2)
    assert second.bar_to_ms == first.bar_from_ms
    assert leaders((), 1, 10, 1).terms == ()


def test_colours_repeat_only_after_the_eighth() -> None:
    assert list(colours_of(f"jm-{number}" for number in range(9)).values()) == [1, 2, 3, 4, 5, 6, 7, 8, 1]


def test_the_leader_comes_first_then_those_that_stand_by() -> None:
    election = ElectionView(
        servers="zk:2181",
        connection=ZooKeeperConnection.CONNECTED,
        queue=("b:1", "a:1", "c:1"),
        known=("gone:1", "a:1"),
    )
    found = [(line.address, line.state) for line in job_managers(election, "b:1", ())]
    assert found == [("b:1", "LEADS"), ("a:1", "STANDS BY"), ("c:1", "STANDS BY"), ("gone:1", "AWAY")]


# --- the page ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def chronicle() -> Clocked:
    return Clocked()


@pytest.fixture
async def site(tmp_path: Path, chronicle: Clocked) -> AsyncIterator[Site]:
    async with running_site(tmp_path, FakeGateway(), chronicle=chronicle, tokens=TokenPerName()) as running:
        yield running


async def words(site: Site) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", await page(site, "/leadership")).split())


async def test_the_page_says_who_led_and_why_it_ended(site: Site, chronicle: Clocked) -> None:
    site.gateway.leading_epoch = 5
    chronicle.at(0, What.LEADER_STARTED, details={"address": "jm-1:8081"})
    chronicle.at(20, What.LEADER_ENDED, details={"reason": "it was shut down"})
    chronicle.begin(4, "store")
    chronicle.at(25, What.LEADER_STARTED, details={"address": "jm-2:8081", "name": "second"})
    chronicle.begin(5, "store")
    chronicle.at(40, What.LEADER_STARTED, details={"address": "jm-1:8081"})
    text = await words(site)
    assert re.search(r"5 jm-1:8081 \S+ \S+ LEADS 1 min – –", text)
    assert re.search(r"4 jm-2:8081 second .* at most 15 s It recorded no end: .* unknown", text)
    assert re.search(r"3 jm-1:8081 .* 20 s It was shut down 5 s", text)


async def test_a_single_job_manager_is_said_to_be_alone(site: Site) -> None:
    text = await words(site)
    assert "none: a single JobManager" in text
    assert "No leader is on record." in text
    assert "standing by" not in text
    assert "ZooKeeper" not in text


async def test_the_page_shows_zookeeper_and_who_stands_by(site: Site) -> None:
    own = site.gateway.address()
    site.gateway.election = ElectionView(
        servers="zk-1:2181,zk-2:2181", connection=ZooKeeperConnection.CONNECTED, queue=(own, "jm-2:8081"), known=(own,)
    )
    text = await words(site)
    assert "CONNECTED zk-1:2181, zk-2:2181" in text
    assert ("1 standing by" in text, "jm-2:8081 STANDS BY" in text, "nobody takes over" in text) == (True, True, False)
    site.gateway.election = ElectionView(servers="zk-1:2181", connection=ZooKeeperConnection.SUSPENDED, queue=(own,))
    text = await words(site)
    assert "SUSPENDED zk-1:2181 The connection broke" in text
    assert "No JobManager stands by" in text


async def test_the_page_does_without_events_that_cannot_be_read(tmp_path: Path) -> None:
    async with running_site(tmp_path, FakeGateway(), chronicle=Unreadable({}, lambda: NOW_MS)) as site:
        text = await words(site)
        assert "Events cannot be read now: the events in /storage" in text
        assert "No leader is on record." not in text


async def test_a_namespace_does_not_see_the_leaders(site: Site) -> None:
    assert (await site.get("/leadership", headers=bearer("alice"))).status == 403
    assert 'href="/leadership"' not in (await site.get("/jobs", headers=bearer("alice"))).body.decode()
    assert '<a class="leader" href="/leadership"' in await page(site, "/jobs")


@pytest.mark.parametrize("number", ["0", "x", "-1", "9" * 9])
async def test_a_page_that_is_none_is_refused(site: Site, number: str) -> None:
    assert (await site.get(f"/leadership?page={number}")).status == 400
