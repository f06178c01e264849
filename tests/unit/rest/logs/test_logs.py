"""Logs through the JobManager: listed from registered task managers, read by id, followed."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from emberkeep.base.errors import InvalidInput
from emberkeep.base.ids import JobId, TaskManagerId
from emberkeep.jobmanager.views.cluster import TaskManagerView
from emberkeep.protocol.rest_logs import LogInfo
from emberkeep.rest.cluster import expected
from emberkeep.rest.ports import LogEntry, LogKind
from emberkeep.rest.serving.log_reader import LogReader
from emberkeep.rest.serving.waiting import WaitingRoom
from tests.unit.rest.fake_gateway import FakeGateway, job_id, task_manager_view
from tests.unit.rest.server import Answer, ListedLogs, Site, eventually, running_site

J1 = f"/v1/jobs/{job_id(1)}"
STDOUT = "attempt-2-driver-stdout"


def entry(path: Path, log_id: str, kind: LogKind, owner: JobId | None = None, *, complete: bool = False) -> LogEntry:
    return LogEntry(
        id=log_id,
        kind=kind,
        path=path,
        size=path.stat().st_size,
        mtime_ms=5,
        complete=complete,
        job_id=owner,
        attempt=2 if owner else 0,
    )


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "stdout"
    path.write_bytes(b"0123456789")
    return path


@pytest.fixture
def catalogue(site: Site, log: Path) -> ListedLogs:
    """What task manager 2 holds."""
    held = ListedLogs()
    for one in (
        entry(log, "taskmanager.log", LogKind.TASK_MANAGER),
        entry(log, STDOUT, LogKind.DRIVER_STDOUT, job_id(1), complete=True),
        entry(log, "other", LogKind.DRIVER_STDOUT, job_id(2)),
    ):
        held.logs[one.id] = one
    site.remote_logs.readers["127.0.0.2:40001"] = LogReader(held, time.monotonic, poll_interval=0.01)
    return held


async def test_a_jobs_logs_are_collected_from_all_task_managers(site: Site, catalogue: ListedLogs) -> None:
    body = (await site.get(f"{J1}/logs")).json()

    assert [(log["id"], log["kind"], log["attempt"], log["size"]) for log in body["logs"]] == [
        (f"tm-127.0.0.2-1~{STDOUT}", "driver-stdout", 2, 10)
    ]
    # One does not answer, another with an executor is gone.
    assert body["unreachable"] == ["tm-127.0.0.3-1", "tm-127.0.0.4-1"]


async def test_a_task_manager_that_refuses_does_not_hide_the_logs_of_the_others(
    site: Site, catalogue: ListedLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = site.remote_logs.entries

    async def refusing(address: str, job: JobId | None) -> list[LogInfo]:
        if address.startswith("127.0.0.3"):
            raise InvalidInput("ListLogs: no such field")
        return await entries(address, job)

    monkeypatch.setattr(site.remote_logs, "entries", refusing)
    answer = await site.get(f"{J1}/logs")
    assert answer.status == 200
    assert [log["id"] for log in answer.json()["logs"]] == [f"tm-127.0.0.2-1~{STDOUT}"]
    assert "tm-127.0.0.3-1" in answer.json()["unreachable"]
    assert answer.json()["problem"] == "task manager tm-127.0.0.3-1 does not list its logs: ListLogs: no such field"


async def test_a_task_manager_that_is_gone_is_named_where_it_had_a_driver(site: Site, catalogue: ListedLogs) -> None:
    del site.gateway.managers[TaskManagerId("tm-127.0.0.3-1")]

    assert "tm-127.0.0.3-1" in (await site.get(f"{J1}/logs")).json()["unreachable"]


def led_since_now(site: Site) -> TaskManagerView:
    """A new leader; returns the task manager that has not registered with it yet."""
    site.gateway.led_for_ms = 0
    return site.gateway.managers.pop(TaskManagerId("tm-127.0.0.2-1"))


async def two_who_wait(site: Site, late: TaskManagerView) -> tuple[asyncio.Task[Answer], asyncio.Task[Answer]]:
    """For the list of the job's logs, and for one of them."""
    listing = asyncio.create_task(site.get(f"{J1}/logs"))
    reading = asyncio.create_task(site.get(f"{J1}/logs/{late.info.id}~{STDOUT}"))
    await eventually(lambda: site.api.waiting.taken == 2)
    return listing, reading


class TestNewLeader:
    """Task managers register one after the other with a JobManager that leads since a moment ago."""

    async def test_who_asks_for_logs_waits_for_those_that_hold_them(self, site: Site, catalogue: ListedLogs) -> None:
        late = led_since_now(site)
        listing, reading = await two_who_wait(site, late)

        site.gateway.add_task_managers(late, task_manager_view(4))  # both ran processes of the job

        assert [log["name"] for log in (await listing).json()["logs"]] == [STDOUT]
        assert (await reading).body == b"0123456789"

    async def test_for_as_long_as_they_may_be_late(self, site: Site, catalogue: ListedLogs) -> None:
        late = led_since_now(site)
        listing, reading = await two_who_wait(site, late)

        site.gateway.led_for_ms = 3_600_000

        assert late.info.id in (await listing).json()["unreachable"]
        assert (await reading).problem().status == 404

    async def test_then_one_is_told_to_ask_again(
        self, site: Site, catalogue: ListedLogs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(expected, "LONGEST_WAIT", 0.0)
        late = led_since_now(site)

        assert late.info.id in (await site.get(f"{J1}/logs")).json()["unreachable"]
        assert (await site.get(f"{J1}/logs/{late.info.id}~{STDOUT}")).problem().status == 503

    async def test_who_does_not_matter_is_not_waited_for(self, site: Site, catalogue: ListedLogs) -> None:
        site.gateway.led_for_ms = 0
        site.gateway.change(job_id(1), attempts=(), status_report=None)
        del site.gateway.managers[TaskManagerId("tm-127.0.0.3-1")]

        assert (await site.get(f"{J1}/logs")).json()["unreachable"] == []


async def test_a_log_is_read_in_pieces(site: Site, catalogue: ListedLogs) -> None:
    answer = await site.get(f"{J1}/logs/tm-127.0.0.2-1~{STDOUT}?offset=2&limit=3")
    rest = await site.get(f"{J1}/logs/tm-127.0.0.2-1~{STDOUT}?offset=5")

    assert answer.body == b"234"
    assert [answer.headers[f"X-Log-{name}"] for name in ("Offset", "Size", "Complete")] == ["2", "10", "false"]
    assert (rest.body, rest.headers["X-Log-Complete"]) == (b"56789", "true")
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.req("BLOB-20")
@pytest.mark.parametrize(
    ("byte_range", "body", "offset", "complete"),
    [
        ("2-4", b"234", "2", "false"),
        ("7-", b"789", "7", "true"),
        ("-4", b"6789", "6", "true"),
        ("8-100", b"89", "8", "true"),
        ("50-60", b"", "50", "true"),
        ("0-0", b"0", "0", "false"),
    ],
)
async def test_ranges_of_bytes(
    site: Site, catalogue: ListedLogs, byte_range: str, body: bytes, offset: str, complete: str
) -> None:
    answer = await site.get(f"{J1}/logs/tm-127.0.0.2-1~{STDOUT}?range={byte_range}")

    assert (answer.status, answer.body) == (200, body)
    assert [answer.headers[f"X-Log-{name}"] for name in ("Offset", "Size", "Complete")] == [offset, "10", complete]


@pytest.mark.parametrize(
    "query", ["range=5-2", "range=x", "range=-", "range=-0", "range=1-2&offset=1", "range=1-&limit=5"]
)
async def test_wrong_ranges_are_refused(site: Site, catalogue: ListedLogs, query: str) -> None:
    answer = await site.get(f"{J1}/logs/tm-127.0.0.2-1~{STDOUT}?{query}")

    assert (answer.status, answer.problem().field) == (400, "range")


async def test_a_log_of_another_job_is_not_shown(site: Site, catalogue: ListedLogs) -> None:
    assert (await site.get(f"{J1}/logs/tm-127.0.0.2-1~other")).problem().status == 404
    assert (await site.get(f"{J1}/logs/tm-127.0.0.2-1~taskmanager.log")).problem().status == 404


async def test_only_registered_task_managers_are_asked(site: Site, catalogue: ListedLogs) -> None:
    answer = await site.get(f"{J1}/logs/169.254.169.254~latest")

    assert answer.problem().status == 404
    assert site.remote_logs.asked == []


@pytest.mark.parametrize("name", ["x", "~x", "tm~", "tm-127.0.0.2-1~..%2Fetc%2Fpasswd", "tm-127.0.0.2-1~.hidden"])
async def test_log_ids_are_no_paths(site: Site, catalogue: ListedLogs, name: str) -> None:
    assert (await site.get(f"{J1}/logs/{name}")).status in (400, 404)
    assert site.remote_logs.asked == []


async def test_a_task_managers_logs(site: Site, catalogue: ListedLogs) -> None:
    listed = (await site.get("/v1/taskmanagers/tm-127.0.0.2-1/logs")).json()["logs"]
    answer = await site.get("/v1/taskmanagers/tm-127.0.0.2-1/logs/taskmanager.log?offset=-3")

    assert [log["name"] for log in listed] == ["taskmanager.log", STDOUT, "other"]
    assert (answer.body, answer.headers["X-Log-Offset"]) == (b"789", "7")


async def test_a_task_manager_that_does_not_answer(site: Site) -> None:
    assert (await site.get("/v1/taskmanagers/tm-127.0.0.3-1/logs")).problem().status == 503


async def test_the_job_managers_own_logs(site: Site, log: Path) -> None:
    site.own_logs.logs["jobmanager.log"] = entry(log, "jobmanager.log", LogKind.JOB_MANAGER)

    listed = (await site.get("/v1/jobmanager/logs")).json()["logs"]
    answer = await site.get("/v1/jobmanager/logs/jobmanager.log")

    assert [log["name"] for log in listed] == ["jobmanager.log"]
    assert answer.body == b"0123456789"
    assert (await site.get("/v1/jobmanager/logs/other")).problem().status == 404


@pytest.mark.parametrize("query", ["offset=x", "limit=0", "limit=99999999", "wait=61", "wait=-1", "wait=nan", "tail=1"])
async def test_bad_ranges_name_the_parameter(site: Site, catalogue: ListedLogs, query: str) -> None:
    answer = await site.get(f"{J1}/logs/tm-127.0.0.2-1~{STDOUT}?{query}")

    assert (answer.status, answer.problem().field) == (400, query.partition("=")[0])


async def test_a_follower_gets_new_bytes_as_soon_as_they_are_there(site: Site, log: Path) -> None:
    site.own_logs.logs["jobmanager.log"] = entry(log, "jobmanager.log", LogKind.JOB_MANAGER)
    waiting = asyncio.create_task(site.get("/v1/jobmanager/logs/jobmanager.log?offset=10&wait=60"))
    await eventually(lambda: site.api.waiting.taken == 1)

    log.write_bytes(b"0123456789ab")
    site.own_logs.logs["jobmanager.log"] = entry(log, "jobmanager.log", LogKind.JOB_MANAGER)

    async with asyncio.timeout(120):
        answer = await waiting
    assert (answer.body, answer.headers["X-Log-Offset"]) == (b"ab", "10")


async def test_waiting_requests_are_bounded(tmp_path: Path, gateway: FakeGateway, log: Path) -> None:
    async with running_site(tmp_path, gateway, waiting=WaitingRoom(0)) as site:
        site.own_logs.logs["jobmanager.log"] = entry(log, "jobmanager.log", LogKind.JOB_MANAGER)

        assert (await site.get("/v1/jobmanager/logs/jobmanager.log?wait=1")).problem().status == 503
        assert (await site.get("/v1/jobmanager/logs/jobmanager.log")).status == 200
