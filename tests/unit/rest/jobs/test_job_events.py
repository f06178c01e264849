"""The live view of a job."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec

from emberkeep.jobs.model import JobStatus
from emberkeep.rest.serving.waiting import WaitingRoom
from tests.unit.rest.fake_gateway import NOW_MS, FakeGateway, job_id
from tests.unit.rest.server import Site, eventually, running_site

EVENTS = f"/v1/jobs/{job_id(1)}/events"


async def next_event(response: Any) -> tuple[str, Any]:
    """The next event's name and data."""
    async with asyncio.timeout(120):
        name = (await response.content.readline()).decode().removeprefix("event: ").strip()
        data = (await response.content.readline()).removeprefix(b"data: ")
        await response.content.readline()
    return name, msgspec.json.decode(data)


async def test_changes_are_sent_and_the_end_ends_the_stream(site: Site) -> None:
    async with site.open("GET", EVENTS) as response:
        assert response.headers["Content-Type"] == "text/event-stream"
        name, first = await next_event(response)
        assert (name, first["state"]) == ("job", "RUNNING")

        site.gateway.change(job_id(1), status=JobStatus.CANCELLING)
        assert (await next_event(response))[1]["state"] == "CANCELLING"

        site.gateway.change(job_id(1), status=JobStatus.CANCELED, ended_ms=NOW_MS)
        assert (await next_event(response))[1]["state"] == "CANCELED"
        assert await next_event(response) == ("end", {})
        assert await response.content.read() == b""


async def test_an_ended_job_is_sent_once(site: Site) -> None:
    answer = await site.get(f"/v1/jobs/{job_id(2)}/events")

    assert answer.body.startswith(b"event: job\n")
    assert answer.body.endswith(b"event: end\ndata: {}\n\n")


async def test_a_job_that_expires_ends_the_stream(site: Site) -> None:
    async with site.open("GET", EVENTS) as response:
        await next_event(response)

        del site.gateway.views[job_id(1)]

        assert await next_event(response) == ("end", {})


async def test_a_client_that_goes_gives_its_place_back(site: Site) -> None:
    async with site.open("GET", EVENTS) as response:
        await next_event(response)
        assert site.api.waiting.taken == 1
        response.close()

    def noticed() -> bool:
        site.gateway.change(job_id(1), driver_pid=site.gateway.views[job_id(1)].driver_pid + 1)
        return site.api.waiting.taken == 0

    await eventually(noticed)


async def test_streams_are_bounded(tmp_path: Path, gateway: FakeGateway) -> None:
    async with running_site(tmp_path, gateway, waiting=WaitingRoom(0)) as site:
        assert (await site.get(EVENTS)).problem().status == 503


async def test_a_stopping_server_ends_streams(tmp_path: Path, gateway: FakeGateway) -> None:
    async with running_site(tmp_path, gateway) as site, site.open("GET", EVENTS) as response:
        await next_event(response)

        site.api.closing.set()

        async with asyncio.timeout(120):
            assert await response.content.read() == b""
