"""A page that has not changed is not sent again, although time passes: the browser sets the texts that say how long."""

from __future__ import annotations

from pathlib import Path

import pytest

from emberkeep.base.clock import SystemClock
from emberkeep.chronicle.occurrence import Occurrence, What
from emberkeep.jobs.checkpoints import JobPointers
from emberkeep.web.formats import span
from tests.support.chronicle.memory import MemoryChronicle
from tests.support.contracts.job_store import savepoint
from tests.unit.rest.fake_gateway import NOW_MS, FakeGateway, job_id, job_view, task_manager_view
from tests.unit.rest.server import running_site
from tests.unit.web.conftest import JavaScript
from tests.unit.web.test_pages import note_events

JOB = job_id(1)


class SettableClock(SystemClock):
    def __init__(self) -> None:
        self.time_ms = NOW_MS

    def now_ms(self) -> int:
        return self.time_ms


@pytest.mark.parametrize("path", ["/", "/jobs", f"/jobs/{JOB}", "/savepoints", "/leadership", "/taskmanagers"])
async def test_the_same_page_is_not_sent_again(tmp_path: Path, path: str) -> None:
    gateway, clock = FakeGateway(), SettableClock()
    gateway.add(job_view(JOB, "flights", pointers=JobPointers(savepoints=(savepoint(1),))))
    gateway.add_task_managers(task_manager_view(2))
    async with running_site(tmp_path, gateway, clock=clock) as site:
        first = await site.get(path)
        clock.time_ms += 65_000
        known = {"headers": {"If-None-Match": first.headers["ETag"]}}
        again = await site.get(path, **known)
        assert (again.status, again.body) == (304, b"")
        assert again.headers["Emberkeep-Time"] == str(clock.time_ms)
        gateway.change(JOB, waiting="2 slots are missing", name="flights of today")
        gateway.address = lambda: "127.0.0.9:8081"  # type: ignore[method-assign]
        changed = await site.get(path, **known)
        assert (changed.status, b"127.0.0.9" in changed.body) == (200, True)


async def test_a_timeline_that_the_browser_shows_is_not_sent_again(tmp_path: Path) -> None:
    gateway = FakeGateway()
    gateway.add(job_view(JOB, "flights"))
    async with running_site(tmp_path, gateway) as site:
        note_events(site)
        whole = (await site.get(f"/jobs/{JOB}")).body.decode()
        tag = whole.partition(' data-tag="')[2].partition('"')[0]
        known = (await site.get(f"/jobs/{JOB}", headers={"Emberkeep-Known": tag})).body.decode()
        assert 'id="timeline-data" data-live data-known></div>' in known
        assert ("data-band" in whole, "data-band" in known) == (True, False)
        assert len(known) < len(whole)
        other = Occurrence(what=What.EXCEPTION, job_id=JOB, message="lost")
        chronicle = site.api.chronicle
        assert isinstance(chronicle, MemoryChronicle)
        chronicle.note(other)
        again = (await site.get(f"/jobs/{JOB}", headers={"Emberkeep-Known": tag})).body.decode()
        assert "data-band" in again
        assert f'data-tag="{tag}"' not in again


def test_the_browser_writes_durations_as_the_server_does(javascript: JavaScript) -> None:
    spans = [-5, 0, 850, 999, 1000, 59_999, 60_000, 62_500, 3_600_000, 3_605_000, 7_260_000, 86_400_000, 200_000_000]
    assert javascript(["formats"], f"{spans}.map(formats.lasted)") == [span(each) for each in spans]


def test_bytes_are_round_where_the_number_is(javascript: JavaScript) -> None:
    sizes = [512, 1024, 1536, 16 * 1024**2, 3 * 1024**3, 2048 * 1024**4]
    assert javascript(["formats"], f"{sizes}.map(formats.bytes)") == [
        "512 B",
        "1 KiB",
        "1.5 KiB",
        "16 MiB",
        "3 GiB",
        "2048 TiB",
    ]
