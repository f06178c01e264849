"""The progress history of a job over REST."""

from __future__ import annotations

from typing import Any

import pytest

from emberkeep.base.errors import Unavailable
from emberkeep.jobs.model import JobStatus
from emberkeep.jobs.progress.history import ProgressLog
from tests.support.progress.records import RECORD, measured, record
from tests.unit.rest.fake_gateway import job_id, job_view
from tests.unit.rest.server import MemoryProgress, Site

PROGRESS = f"/v1/jobs/{job_id(1)}/progress"


@pytest.fixture
def progress(site: Site) -> MemoryProgress:
    """Ten batches of one query and one of another."""
    histories = site.api.progress
    assert isinstance(histories, MemoryProgress)
    log = ProgressLog()
    for number in range(10):
        log.add([measured(number)], 1000 + number)
    log.add([record(3, query_id="q-2", run_id="run-2", name="", watermark_ms=None, sources=())], 2000)
    histories.logs[job_id(1)] = log
    site.gateway.add(job_view(job_id(1), "clicks", job_master="127.0.0.2:41001"))
    return histories


async def read(site: Site, query: str = "") -> Any:
    answer = await site.get(f"{PROGRESS}{query}")
    assert answer.status == 200, answer.body
    return answer.json()


async def test_records_are_read_with_their_gap_and_backlog(site: Site, progress: MemoryProgress) -> None:
    body = await read(site, "?query=q-1&limit=1")
    assert body["queries"] == [
        {"query-id": "q-2", "name": "", "records": 1, "oldest": 2000, "newest": 2000},
        {"query-id": "q-1", "name": "clicks", "records": 10, "oldest": 1000, "newest": 1009},
    ]
    assert body["earlier"] is True
    (one,) = body["records"]
    (source,) = one.pop("sources")
    assert one == {
        "recorded": 1009,
        "query-id": "q-1",
        "run-id": "run-1",
        "name": "clicks",
        "batch-id": 9,
        "triggered": RECORD.triggered_ms + 9000,
        "duration": 800,
        "phases": RECORD.phases,
        "rows": 500,
        "input-rows-per-second": 250.0,
        "processed-rows-per-second": 625.0,
        "state-rows": 42,
        "state-bytes": 4096,
        "state-commit-duration": 31,
        "late-rows": 3,
        "watermark": RECORD.watermark_ms,
        "watermark-gap": 19_000,
        "backlog-rows": 1250,
        "backlog-seconds": 2.0,
    }
    assert (source["end-offset"], source["latest-offset"]) == ('{"clicks":{"0":1000}}', '{"clicks":{"0":2250}}')
    assert source["metrics"] == {"maxOffsetsBehindLatest": 1250}
    assert (source["backlog-rows"], source["backlog-seconds"]) == (1250, 2.0)
    assert progress.asked == [("127.0.0.2:41001", 2)]


async def test_a_history_is_read_page_by_page_in_both_directions(site: Site, progress: MemoryProgress) -> None:
    newest = (await read(site, "?query=q-1&limit=4"))["records"]
    assert [one["batch-id"] for one in newest] == [6, 7, 8, 9]
    before = (await read(site, f"?query=q-1&limit=4&before={newest[0]['recorded']}"))["records"]
    assert [one["batch-id"] for one in before] == [2, 3, 4, 5]
    after = await read(site, f"?query=q-1&after={before[-1]['recorded']}")
    assert [one["batch-id"] for one in after["records"]] == [6, 7, 8, 9]
    assert after["earlier"] is False


async def test_what_is_unknown_is_null(site: Site, progress: MemoryProgress) -> None:
    (one,) = (await read(site, "?query=q-2"))["records"]
    assert (one["watermark"], one["watermark-gap"], one["backlog-rows"], one["backlog-seconds"]) == (None,) * 4


async def test_a_job_without_streaming_queries_has_an_empty_history(site: Site) -> None:
    site.gateway.add(job_view(job_id(1), "batch", JobStatus.FINISHED))
    assert await read(site) == {"queries": [], "records": [], "earlier": False}


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "after=-1", "before=x", "since=1", f"query={'q' * 201}"])
async def test_bad_parameters_are_named(site: Site, progress: MemoryProgress, query: str) -> None:
    answer = await site.get(f"{PROGRESS}?{query}")
    assert (answer.status, answer.problem().field) == (400, query.partition("=")[0])


async def test_an_unknown_job_and_storage_that_is_away_are_told_apart(site: Site, progress: MemoryProgress) -> None:
    assert (await site.get(f"/v1/jobs/{job_id(77)}/progress")).status == 404
    progress.refusal = Unavailable("the storage is away")
    assert (await site.get(PROGRESS)).status == 503
