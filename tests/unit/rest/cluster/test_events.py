"""Events over REST: pages, filters, streams that can be resumed, and who may read them."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from emberkeep.chronicle.occurrence import SETTING, Occurrence, What
from emberkeep.rest.cluster.event_shapes import event_of
from tests.support.chronicle.memory import MemoryChronicle
from tests.unit.rest.fake_gateway import NOW_MS, job_id
from tests.unit.rest.server import Site

JOB = f"/v1/events/jobs/{job_id(1)}"


def chronicle(site: Site) -> MemoryChronicle:
    assert isinstance(site.api.chronicle, MemoryChronicle)
    if not site.api.chronicle.stream():
        site.api.chronicle.begin(7, "store")
        site.api.chronicle.note(Occurrence(what=What.LEADER_STARTED, message="leads", details={SETTING + "a": "1"}))
    return site.api.chronicle


def note(site: Site, *messages: str, what: What = What.STATUS) -> None:
    for message in messages:
        chronicle(site).note(Occurrence(what=what, message=message, job_id=job_id(1), by="ana", attempt=2))


def texts(answer: Any) -> list[str]:
    return [event["message"] for event in answer.json()["events"]]


async def test_events_come_newest_first_page_by_page(site: Site) -> None:
    note(site, "one", "two", "three")
    first = await site.get(JOB, params={"limit": "2"})
    assert texts(first) == ["three", "two"]
    second = await site.get(JOB, params={"limit": "2", "before": first.json()["next"]})
    assert (texts(second), second.json()["next"]) == (["one"], "")


async def test_events_are_selected_by_who_asked_and_by_text(site: Site) -> None:
    note(site, "one", "two")
    assert texts(await site.get(JOB, params={"by": "ANA", "text": "TW"})) == ["two"]
    assert texts(await site.get(JOB, params={"by": "ben"})) == []


async def test_an_event_has_all_facts_and_no_settings_of_leaders(site: Site) -> None:
    note(site, "one")
    (event,) = (await site.get(JOB)).json()["events"]
    assert event == {
        "id": "000000000000007-000000002",
        "timestamp": NOW_MS,
        "type": "status",
        "message": "one",
        "by": "ana",
        "jobid": job_id(1),
        "attempt": 2,
        "task-manager": "",
        "node": "",
        "details": {},
    }
    (leader,) = (await site.get("/v1/events")).json()["events"]
    assert (leader["message"], leader["details"]) == ("leads", {})


async def test_types_select_and_may_be_repeated(site: Site) -> None:
    note(site, "state")
    note(site, "failure", what=What.EXCEPTION)
    note(site, "saved", what=What.SAVEPOINT)
    answer = await site.get(f"{JOB}?type=exception&type=savepoint")
    assert texts(answer) == ["saved", "failure"]


async def test_after_follows_oldest_first(site: Site) -> None:
    note(site, "one", "two")
    answer = await site.get(JOB, params={"after": ""})
    assert texts(answer) == ["one", "two"]
    cursor = answer.json()["next"]
    assert (await site.get(JOB, params={"after": cursor})).json() == {"events": [], "next": cursor}


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("type=NO", "type"),
        ("before=x", "before"),
        ("after=x", "after"),
        ("after=1-1&before=1-1", "before"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("color=red", "color"),
    ],
)
async def test_bad_queries_name_the_parameter(site: Site, query: str, field: str) -> None:
    answer = await site.get(f"{JOB}?{query}")
    assert (answer.status, answer.json()["field"]) == (400, field)


async def test_a_job_that_does_not_exist_has_no_events(site: Site) -> None:
    assert (await site.get(f"/v1/events/jobs/{job_id(99)}")).status == 404


async def next_event(response: Any) -> dict[str, Any]:
    async with asyncio.timeout(60):
        fields: dict[str, str] = {}
        while True:
            line = (await response.content.readline()).decode().rstrip("\n")
            if not line and "data" in fields:
                return {"id": fields["id"], **msgspec.json.decode(fields["data"])}
            name, _, value = line.partition(": ")
            fields[name] = value


async def test_a_stream_sends_what_happens_and_only_that(site: Site) -> None:
    note(site, "before", "just before")
    async with site.open("GET", f"{JOB}/stream") as response:
        assert response.headers["Content-Type"] == "text/event-stream"
        note(site, "one")
        assert (await next_event(response))["message"] == "one"
        note(site, "two", "three")
        assert [(await next_event(response))["message"] for _ in range(2)] == ["two", "three"]


async def test_a_stream_continues_after_the_last_event_that_the_client_has(site: Site) -> None:
    note(site, "one", "two", "three")
    first = chronicle(site).stream(job_id(1))[0].id
    headers = {"Last-Event-ID": first}
    async with site.open("GET", f"{JOB}/stream", headers=headers) as response:
        assert [(await next_event(response))["message"] for _ in range(2)] == ["two", "three"]


async def test_a_filtered_stream_leaves_the_others_out(site: Site) -> None:
    async with site.open("GET", f"{JOB}/stream?type=savepoint&after=") as response:
        note(site, "state")
        note(site, "saved", what=What.SAVEPOINT)
        assert (await next_event(response))["message"] == "saved"


async def test_a_bad_last_event_id_is_refused(site: Site) -> None:
    answer = await site.get(f"{JOB}/stream", headers={"Last-Event-ID": "../x"})
    assert (answer.status, answer.json()["field"]) == (400, "Last-Event-ID")


def test_types_of_newer_releases_are_passed_on() -> None:
    assert event_of(Occurrence(what="grown-wings", message="m")).type == "grown-wings"


async def test_the_stream_of_another_job_is_another(site: Site) -> None:
    note(site, "one")
    assert texts(await site.get(f"/v1/events/jobs/{job_id(2)}")) == []
