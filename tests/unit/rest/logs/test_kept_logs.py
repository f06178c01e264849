"""Logs of jobs whose task managers are gone, over HTTP, from real files in the storage."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from emberkeep.adapters.kept_logs.files import KeepLimits
from emberkeep.adapters.kept_logs.store import KeptLogStore
from emberkeep.base.clock import SystemClock
from emberkeep.base.errors import EmberkeepError, RetryLater, Unavailable
from emberkeep.base.ids import JobId, TaskManagerId
from emberkeep.daemons.jobmanager.stored_logs import StoredLogs
from emberkeep.jobmanager.views.cluster import TaskManagerView
from emberkeep.jobs.model import AttemptRecord, JobStatus
from emberkeep.kept_logs.model import KeptLogKey, writer_of
from emberkeep.rest.logs import sources
from emberkeep.rest.ports import LogChunk, LogEntry, LogKind, LogQuery
from emberkeep.rest.serving.log_reader import LogReader
from tests.support.kept_logs.pieces import key, piece
from tests.unit.rest.fake_gateway import FakeGateway, job_id
from tests.unit.rest.server import ListedLogs, Site, running_site

JOB = job_id(1)
LOST, HERE = "tm-127.0.0.9-1", "tm-127.0.0.2-1"
FIRST = b"26/01/31 18:00:00 WARN A: one\n26/01/31 18:00:01 ERROR B: two\n\tat Main\n"
SECOND = b"26/01/31 18:00:02 INFO C: three\n"
FAR = 4000


def log_key(task_manager: str = LOST, name: str = "driver.stderr", attempt: int = 1) -> KeptLogKey:
    return key(name, job_id=JOB, attempt=attempt, task_manager=task_manager)


def path_of(log: KeptLogKey) -> str:
    return f"/v1/jobs/{JOB}/logs/{log.task_manager}~{log.log_id}"


class Storage:
    def __init__(self, root: Path) -> None:
        self.problem: EmberkeepError | None = None
        limits = KeepLimits(most_bytes=1024**2, keep_ms=0)
        self.store = KeptLogStore(root, limits, SystemClock(), lambda: self.problem)

    async def keep(self, log: KeptLogKey, *parts: bytes, offset: int = 0, is_last: bool = False) -> None:
        for number, part in enumerate(parts):
            last = is_last and number == len(parts) - 1
            await self.store.keep(1, log, piece(offset, part, is_last=last, until_ms=7000 + number))
            offset += len(part)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(tmp_path / "kept")


@pytest.fixture
async def served(tmp_path: Path, gateway: FakeGateway, storage: Storage) -> AsyncIterator[Site]:
    """A job in its second attempt; the first one ran on a task manager that is lost."""
    first = AttemptRecord(attempt=1, task_manager=TaskManagerId(LOST), started_ms=1, ended_ms=2)
    gateway.change(JOB, attempts=(first,), attempt=2, status_report=None)
    gateway.managers.pop(TaskManagerId("tm-127.0.0.3-1"), None)  # it would not answer
    async with running_site(tmp_path, gateway, kept_logs=StoredLogs(storage.store)) as site:
        site.remote_logs.readers["127.0.0.2:40001"] = LogReader(ListedLogs(), time.monotonic, poll_interval=0.01)
        yield site


def hold(site: Site, log: KeptLogKey, file: Path, job: JobId = JOB) -> None:
    """Let the task manager that is there hold a log."""
    held, writer = ListedLogs(), writer_of(log.name)
    assert writer is not None
    held.logs[log.log_id] = LogEntry(
        id=log.log_id,
        kind=LogKind(writer.kind),
        executor_id=writer.executor_id,
        path=file,
        size=file.stat().st_size,
        mtime_ms=5,
        complete=False,
        job_id=job,
        attempt=log.attempt,
    )
    site.remote_logs.readers["127.0.0.2:40001"] = LogReader(held, time.monotonic, poll_interval=0.01)


async def test_the_logs_of_a_lost_task_manager_are_listed(served: Site, storage: Storage) -> None:
    assert (await served.get(f"/v1/jobs/{JOB}/logs")).json()["unreachable"] == [LOST]

    await storage.keep(log_key(), FIRST, SECOND)
    await storage.keep(log_key(name="executor-3.stdout"), b"x\n", is_last=True)
    body = (await served.get(f"/v1/jobs/{JOB}/logs")).json()

    assert body["unreachable"] == []
    assert body["problem"] == ""
    assert [
        (log["kind"], log["executor-id"], log["size"], log["complete"], log["kept"], log["kept-until"], log["mtime"])
        for log in body["logs"]
    ] == [
        ("driver-stderr", "", len(FIRST + SECOND), True, True, 7001, 7001),
        ("executor-stdout", "3", 2, True, True, 0, 7000),
    ]


async def test_a_lost_log_is_read_searched_and_downloaded(served: Site, storage: Storage) -> None:
    await storage.keep(log_key(), FIRST, SECOND)
    path = path_of(log_key())

    read = await served.get(path)
    assert read.body == FIRST + SECOND
    assert (read.headers["X-Log-Complete"], read.headers["X-Log-Kept-Until"]) == ("true", "7001")
    assert (await served.get(f"{path}?offset=-5")).body == SECOND[-5:]
    assert (await served.get(f"{path}?range=3-9")).body == FIRST[3:10]

    found = (await served.get(f"{path}/records?level=error")).json()
    assert [record["text"] for record in found["records"]] == ["26/01/31 18:00:01 ERROR B: two\n\tat Main"]
    assert (found["complete"], found["kept-until"]) == (True, 7001)

    whole = await served.get(f"{path}/download")
    assert whole.body == FIRST + SECOND
    assert whole.headers["X-Log-Kept-Until"] == "7001"


async def test_a_log_that_was_kept_to_its_end_lacks_nothing(served: Site, storage: Storage) -> None:
    await storage.keep(log_key(), FIRST, is_last=True)

    read = await served.get(path_of(log_key()))

    assert read.headers["X-Log-Complete"] == "true"
    assert "X-Log-Kept-Until" not in read.headers


async def test_a_gap_is_passed_over_and_told(served: Site, storage: Storage) -> None:
    await storage.keep(log_key(), FIRST)
    await storage.keep(log_key(), SECOND, offset=FAR)
    path = path_of(log_key())
    told = b"--- Emberkeep: %d bytes of this log are not kept" % (FAR - len(FIRST))

    first = await served.get(path)
    assert first.body == FIRST
    assert first.headers["X-Log-Complete"] == "false"
    second = await served.get(f"{path}?offset={len(FIRST)}")
    assert int(second.headers["X-Log-Offset"]) + len(second.body) == FAR + len(SECOND)
    assert second.body.startswith(told)
    assert second.body.endswith(SECOND)
    assert (await served.get(f"{path}/download")).body == FIRST + second.body


async def test_logs_of_lost_and_present_task_managers_are_merged(
    served: Site, storage: Storage, tmp_path: Path
) -> None:
    await storage.keep(log_key(), FIRST, SECOND)
    file = tmp_path / "executor"
    file.write_bytes(b"26/01/31 18:00:01 INFO E: between\n")
    log = log_key(HERE, "executor-1.stderr")
    hold(served, log, file)

    body = (await served.get(f"/v1/jobs/{JOB}/merged-logs?attempt=1")).json()

    assert [record["text"].split(": ")[-1].split("\n")[0] for record in body["records"]] == [
        "one",
        "two",
        "between",
        "three",
    ]
    assert (body["kept-until"], body["unreachable"], body["problem"]) == (7001, [], "")


async def test_merging_does_not_ask_for_the_task_managers_again_for_each_log(
    served: Site, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, asked = served.gateway.task_managers, 0

    async def count() -> list[TaskManagerView]:
        nonlocal asked
        asked += 1
        return await ask()

    monkeypatch.setattr(served.gateway, "task_managers", count)
    counts = []
    for executors in (1, 30):
        for number in range(executors):
            await storage.keep(log_key(name=f"executor-{number}.stderr"), FIRST)
        asked = 0
        body = (await served.get(f"/v1/jobs/{JOB}/merged-logs?attempt=1")).json()
        assert len({record["log"] for record in body["records"]}) == executors
        counts.append(asked)

    assert counts[0] == counts[1]


class TestRunningAttempt:
    """Its task manager may come back: what is kept is not all."""

    LOG = log_key(attempt=2)

    async def test_a_reader_waits_for_more(self, served: Site, storage: Storage) -> None:
        await storage.keep(self.LOG, FIRST)

        read = await served.get(path_of(self.LOG))
        assert (read.body, read.headers["X-Log-Complete"]) == (FIRST, "false")

        more = await served.get(f"{path_of(self.LOG)}?offset={len(FIRST) + 100}&wait=0.05")
        assert (more.body, more.headers["X-Log-Offset"]) == (b"", str(len(FIRST) + 100)), "its lines are not kept"
        assert more.headers["X-Log-Complete"] == "false"

    async def test_until_the_job_has_ended(self, served: Site, storage: Storage) -> None:
        await storage.keep(self.LOG, FIRST)
        served.gateway.change(JOB, status=JobStatus.FAILED)

        assert (await served.get(path_of(self.LOG))).headers["X-Log-Complete"] == "true"


class TestTaskManagerThatIsThere:
    async def test_its_own_log_comes_first(self, served: Site, storage: Storage, tmp_path: Path) -> None:
        log, file = log_key(HERE), tmp_path / "live"
        await storage.keep(log, FIRST)
        file.write_bytes(FIRST + SECOND)
        hold(served, log, file)

        read = await served.get(path_of(log))

        assert read.body == FIRST + SECOND
        assert "X-Log-Kept-Until" not in read.headers
        (listed,) = (await served.get(f"/v1/jobs/{JOB}/logs")).json()["logs"]
        assert (listed["kept"], listed["size"]) == (False, len(FIRST + SECOND))

    async def test_a_log_that_it_has_deleted_is_read_from_the_storage(self, served: Site, storage: Storage) -> None:
        await storage.keep(log_key(HERE), FIRST)

        read = await served.get(path_of(log_key(HERE)))

        assert (read.body, read.headers["X-Log-Complete"]) == (FIRST, "true")

    async def test_while_it_does_not_answer_the_log_may_go_on(self, served: Site, storage: Storage) -> None:
        await storage.keep(log_key(HERE), FIRST)
        served.remote_logs.readers.clear()

        read = await served.get(path_of(log_key(HERE)))

        assert (read.body, read.headers["X-Log-Complete"]) == (FIRST, "false")
        assert HERE in (await served.get(f"/v1/jobs/{JOB}/logs")).json()["unreachable"]

    async def test_when_it_answers_again_it_waits_for_the_rest_of_the_time(
        self, served: Site, storage: Storage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        waits: list[float] = []

        async def read(log_id: str, query: LogQuery) -> LogChunk:
            waits.append(query.wait)
            if len(waits) == 1:
                raise RetryLater("the task manager does not answer")
            return LogChunk(data=SECOND, offset=len(FIRST), size=len(FIRST + SECOND), complete=False)

        await storage.keep(log_key(HERE), FIRST)
        monkeypatch.setattr(sources, "_POLL_SECONDS", 0.01)
        monkeypatch.setattr(served.remote_logs.readers["127.0.0.2:40001"], "read", read)

        answer = await served.get(f"{path_of(log_key(HERE))}?offset={len(FIRST)}&wait=20")

        assert answer.body == SECOND
        assert waits[0] == 20.0
        assert 0.0 < waits[1] < 20.0


async def test_a_storage_that_cannot_be_read_is_not_an_empty_one(served: Site, storage: Storage) -> None:
    await storage.keep(log_key(), FIRST)
    storage.problem = Unavailable("the storage is not mounted")

    assert (await served.get(path_of(log_key()))).problem().status == 503
    body = (await served.get(f"/v1/jobs/{JOB}/logs")).json()
    assert "not mounted" in body["problem"]
    assert body["unreachable"] == [LOST]
    assert (await served.get(f"/v1/jobs/{JOB}/merged-logs")).problem().status == 503


class TestUnreadableLog:
    """One kept log that cannot be read does not hide the others."""

    @pytest.fixture
    async def bad(self, storage: Storage, tmp_path: Path) -> KeptLogKey:
        """The driver's log in the first attempt."""
        await storage.keep(log_key(), FIRST)
        await storage.keep(log_key(name="executor-3.stderr"), SECOND)
        (segment,) = (tmp_path / "kept" / JOB / "1" / f"{LOST}~driver.stderr").iterdir()
        segment.unlink()
        segment.mkdir()  # reading it fails, also for root
        return log_key()

    async def test_it_is_listed_with_what_is_wrong(self, served: Site, bad: KeptLogKey) -> None:
        body = (await served.get(f"/v1/jobs/{JOB}/logs")).json()

        first, second = body["logs"]
        assert (first["kind"], first["size"], first["complete"], first["kept"]) == ("driver-stderr", 0, False, True)
        assert "cannot be read now" in first["problem"]
        assert (second["kind"], second["size"], second["problem"]) == ("executor-stderr", len(SECOND), "")
        assert (body["problem"], body["unreachable"]) == ("", [])
        assert "cannot be read now" in (await served.get(path_of(bad))).problem().detail

    async def test_the_task_managers_own_copy_is_no_problem(
        self, served: Site, storage: Storage, tmp_path: Path
    ) -> None:
        log, file = log_key(HERE), tmp_path / "live"
        await storage.keep(log, FIRST)
        (segment,) = (tmp_path / "kept").rglob("*.segment")
        segment.unlink()
        segment.mkdir()
        file.write_bytes(FIRST)
        hold(served, log, file)

        (listed,) = (await served.get(f"/v1/jobs/{JOB}/logs")).json()["logs"]

        assert (listed["kept"], listed["problem"], listed["size"]) == (False, "", len(FIRST))

    async def test_the_others_are_merged(self, served: Site, storage: Storage, bad: KeptLogKey) -> None:
        await storage.keep(log_key(attempt=2), FIRST)
        merged = f"/v1/jobs/{JOB}/merged-logs"

        body = (await served.get(f"{merged}?attempt=1")).json()
        assert [record["text"] for record in body["records"]] == SECOND.decode().splitlines()
        assert "driver.stderr is missing here: " in body["problem"]
        assert (body["at-end"], body["complete"], body["unreachable"]) == (True, False, [])
        assert "driver.stderr is missing here: " in (await served.get(f"{merged}/download?attempt=1")).body.decode()
        assert (await served.get(f"{merged}?attempt=2")).json()["problem"] == "", "that attempt lacks nothing"

    async def test_it_alone_is_not_absent(self, served: Site, storage: Storage, tmp_path: Path) -> None:
        await storage.keep(log_key(), FIRST)
        (segment,) = (tmp_path / "kept").rglob("*.segment")
        segment.unlink()
        segment.mkdir()

        answer = (await served.get(f"/v1/jobs/{JOB}/merged-logs")).problem()

        assert (answer.status, "driver.stderr is missing here: " in answer.detail) == (503, True)

    async def test_a_whole_attempt(self, served: Site, storage: Storage, tmp_path: Path) -> None:
        await storage.keep(log_key(attempt=2), FIRST)
        (tmp_path / "kept" / JOB / "1").touch()

        body = (await served.get(f"/v1/jobs/{JOB}/logs")).json()

        assert [log["attempt"] for log in body["logs"]] == [2]
        assert body["problem"].startswith("logs in the shared storage are missing here: attempt 1: ")


async def test_what_is_not_kept_is_absent_as_before(served: Site) -> None:
    assert (await served.get(path_of(log_key()))).problem().status == 404
    assert (await served.get(f"/v1/jobs/{JOB}/logs/{LOST}~else")).problem().status == 404


async def test_the_log_of_another_job_is_not_shown(served: Site, storage: Storage) -> None:
    other = msgspec.structs.replace(log_key(), job_id=job_id(2))
    await storage.keep(other, FIRST)

    answer = await served.get(f"/v1/jobs/{JOB}/logs/{LOST}~{other.log_id}")

    assert answer.problem().status == 404
