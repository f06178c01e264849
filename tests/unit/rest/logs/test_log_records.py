"""Search in logs over REST: what is found, how it continues, and what is refused."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from emberkeep.base.ids import TaskManagerId
from emberkeep.rest.ports import LogEntry, LogKind
from emberkeep.rest.serving.log_reader import LogReader
from tests.unit.rest.fake_gateway import job_id
from tests.unit.rest.server import ListedLogs, Site, eventually

LOG = f"/v1/jobs/{job_id(1)}/logs/tm-127.0.0.2-1~driver/records"
OWN = "/v1/jobmanager/logs/jobmanager.log/records"
WARNING = b"2026-01-31T18:00:00Z WARN A: odd\n"
FAILURE = b"2026-01-31T18:00:01Z ERROR Executor: it failed\n\tat A \xff\n"
TEXT = WARNING + FAILURE


def show(logs: ListedLogs, path: Path, log_id: str, *, complete: bool = True) -> None:
    """Make the log's current content known."""
    logs.logs[log_id] = LogEntry(
        id=log_id,
        kind=LogKind.DRIVER_STDERR,
        path=path,
        size=path.stat().st_size,
        mtime_ms=5,
        complete=complete,
        job_id=job_id(1),
        attempt=1,
    )


@pytest.fixture
def log(site: Site, tmp_path: Path) -> Path:
    """The log of a driver on task manager 2, which is also the JobManager's own."""
    path = tmp_path / "log"
    path.write_bytes(TEXT)
    held = ListedLogs()
    show(held, path, "driver")
    show(site.own_logs, path, "jobmanager.log")
    site.remote_logs.readers["127.0.0.2:40001"] = LogReader(held, time.monotonic, poll_interval=0.01)
    return path


async def test_records_have_a_level_a_time_and_all_their_lines(site: Site, log: Path) -> None:
    expected = {
        "records": [
            {"offset": 0, "size": 33, "time": 1_769_882_400_000, "level": "warn", "text": WARNING.decode()[:-1]},
            {
                "offset": 33,
                "size": len(FAILURE),
                "time": 1_769_882_401_000,
                "level": "error",
                "text": "2026-01-31T18:00:01Z ERROR Executor: it failed\n\tat A \ufffd",
            },
        ],
        "start": 0,
        "end": len(TEXT),
        "size": len(TEXT),
        "complete": True,
        "kept-until": 0,
    }
    for path in (LOG, OWN, "/v1/taskmanagers/tm-127.0.0.2-1/logs/driver/records"):
        body = (await site.get(path)).json()
        for record in body["records"]:
            assert record.pop("log") == ""
        assert body == expected


@pytest.mark.parametrize(
    ("query", "offsets"),
    [
        ("text=FAILED", [33]),
        ("text=failed&text=odd", []),
        ("level=warn", [0, 33]),
        ("level=error", [33]),
        ("since=1769882401000", [33]),
        ("until=1769882400000", [0]),
        ("offset=33", [33]),
        ("limit=1", [0]),
        ("before=33", [0]),
        ("before=99999&limit=1", [33]),
        ("offset=99999", [0, 33]),
    ],
)
async def test_queries(site: Site, log: Path, query: str, offsets: list[int]) -> None:
    assert [record["offset"] for record in (await site.get(f"{LOG}?{query}")).json()["records"]] == offsets


@pytest.mark.parametrize(
    "query",
    [
        *("text=", f"text={'x' * 201}", "&".join(["text=x"] * 11), "level=warning", "since=x", "until=-1"),
        *("limit=0", "limit=1001", "offset=-1", "before=-1", "before=1&offset=1", "before=1&wait=1", "wait=61"),
    ],
)
async def test_bad_queries_name_the_parameter(site: Site, log: Path, query: str) -> None:
    answer = await site.get(f"{LOG}?{query}")

    assert (answer.status, str(answer.problem().field).partition("[")[0]) == (400, query.partition("=")[0])


async def test_a_log_that_is_not_there(site: Site, log: Path) -> None:
    assert (await site.get(LOG.replace("~driver", "~other"))).problem().status == 404
    assert (await site.get(LOG.replace("127.0.0.2-1~", "127.0.0.3-1~"))).problem().status == 503
    del site.gateway.managers[TaskManagerId("tm-127.0.0.2-1")]
    assert (await site.get(LOG)).problem().status == 404


async def test_a_follower_gets_a_line_when_it_is_whole(site: Site, log: Path) -> None:
    show(site.own_logs, log, "jobmanager.log", complete=False)
    waiting = asyncio.create_task(site.get(f"{OWN}?offset={len(TEXT)}&wait=60"))
    await eventually(lambda: site.api.waiting.taken == 1)

    log.write_bytes(TEXT + b"2026-01-31T18:00:02Z INFO half")
    show(site.own_logs, log, "jobmanager.log", complete=False)
    await asyncio.sleep(0)
    log.write_bytes(TEXT + b"2026-01-31T18:00:02Z INFO whole\n")
    show(site.own_logs, log, "jobmanager.log", complete=False)

    async with asyncio.timeout(120):
        body = (await waiting).json()
    assert [record["text"] for record in body["records"]] == ["2026-01-31T18:00:02Z INFO whole"]
    assert (body["end"], body["complete"]) == (len(TEXT) + 32, False)
