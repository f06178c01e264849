"""The logs of a driver and its executors, merged by time over REST."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from emberkeep.base.errors import Conflict, EmberkeepError, InvalidInput, NewerFormat, RetryLater
from emberkeep.base.ids import TaskManagerId
from emberkeep.rest.logs import merged as merged_logs
from emberkeep.rest.logs.sources import search_job_log
from emberkeep.rest.ports import LogEntry, LogFound, LogKind, LogSearch
from emberkeep.rest.serving.log_reader import LogReader
from tests.unit.rest.fake_gateway import job_id, task_manager_view
from tests.unit.rest.server import ListedLogs, Site

MERGED = f"/v1/jobs/{job_id(1)}/merged-logs"
DRIVER = "".join(f"2026-01-31T18:00:{second:02}Z WARN driver {second}\n" for second in range(0, 60, 3))
EXECUTOR = "".join(f"2026-01-31T18:00:{second:02}Z INFO executor {second}\n" for second in range(0, 60, 2))


def add(held: ListedLogs, directory: Path, kind: LogKind, text: str, **about: Any) -> None:
    log_id = f"{about.get('attempt', 2)}-{kind.value}-{about.get('executor_id', '')}"
    path = directory / log_id
    path.write_text(text, encoding="utf-8")
    held.logs[log_id] = LogEntry(
        **{
            "id": log_id,
            "kind": kind,
            "path": path,
            "size": path.stat().st_size,
            "mtime_ms": 5,
            "complete": True,
            "job_id": job_id(1),
            "attempt": 2,
            **about,
        }
    )


@pytest.fixture
def held(site: Site, tmp_path: Path) -> ListedLogs:
    """The driver's logs on task manager 2, those of executors on 2 and 4."""
    site.gateway.add_task_managers(task_manager_view(4))
    del site.gateway.managers[TaskManagerId("tm-127.0.0.3-1")]
    here, there = ListedLogs(), ListedLogs()
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    add(here, tmp_path / "here", LogKind.DRIVER_STDERR, "an old attempt\n", attempt=1)
    add(here, tmp_path / "here", LogKind.DRIVER_STDERR, DRIVER)
    add(here, tmp_path / "here", LogKind.DRIVER_STDOUT, "printed\n")
    add(there, tmp_path / "there", LogKind.EXECUTOR_STDERR, EXECUTOR, executor_id="0")
    for number, logs in ((2, here), (4, there)):
        reader = LogReader(logs, time.monotonic, poll_interval=0.01)
        site.remote_logs.readers[f"127.0.0.{number}:40001"] = reader
    return there


def lines(body: Any) -> list[str]:
    return [record["text"] for record in body["records"]]


EXPECTED = sorted((DRIVER + EXECUTOR).splitlines(), key=lambda line: (line[:20], "driver" not in line))


async def test_all_records_of_the_newest_attempt_by_time(site: Site, held: ListedLogs) -> None:
    body = (await site.get(MERGED)).json()

    assert lines(body) == EXPECTED
    assert (body["attempt"], body["at-start"], body["at-end"], body["complete"]) == (2, True, True, False)
    assert body["unreachable"] == ["tm-127.0.0.3-1"]
    logs = {record["log"] for record in body["records"]}
    assert logs == {"tm-127.0.0.2-1~2-driver-stderr-", "tm-127.0.0.4-1~2-executor-stderr-0"}


async def test_all_is_complete_when_all_logs_have_ended_and_answer(site: Site, held: ListedLogs) -> None:
    site.gateway.change(job_id(1), attempts=(), status_report=None)  # none ran on a task manager that is gone

    assert (await site.get(f"{MERGED}?limit=1000")).json()["complete"] is True
    held.logs["2-executor-stderr-0"] = msgspec.structs.replace(held.logs["2-executor-stderr-0"], complete=False)
    body = (await site.get(MERGED)).json()
    assert (body["at-end"], body["complete"]) == (True, False)


async def test_requests_continue_in_both_directions(
    site: Site, held: ListedLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merged_logs, "_LEAST_BYTES", 300)
    monkeypatch.setattr(merged_logs, "_MOST_BYTES", 1)
    found, body = list[str](), {"next": "", "at-end": False}
    while not body["at-end"]:
        body = (await site.get(f"{MERGED}?limit=7&after={body['next']}")).json()
        found += lines(body)
    assert found == EXPECTED

    newest = (await site.get(f"{MERGED}?limit=7&before=")).json()
    body, found = newest, lines(newest)
    while not body["at-start"]:
        body = (await site.get(f"{MERGED}?limit=7&before={body['previous']}")).json()
        found = lines(body) + found
    assert found == EXPECTED
    assert lines((await site.get(f"{MERGED}?after={newest['next']}")).json()) == []


async def test_selections_and_other_logs(site: Site, held: ListedLogs) -> None:
    assert lines((await site.get(f"{MERGED}?level=warn")).json()) == DRIVER.splitlines()
    assert lines((await site.get(f"{MERGED}?text=executor%204")).json()) == [
        f"2026-01-31T18:00:{second:02}Z INFO executor {second}" for second in (4, 40, 42, 44, 46, 48)
    ]
    assert lines((await site.get(f"{MERGED}?stdout=true")).json())[0] == "printed"
    assert lines((await site.get(f"{MERGED}?attempt=1")).json()) == ["an old attempt"]


async def test_an_attempt_with_one_log_is_read_as_others_are(site: Site, held: ListedLogs) -> None:
    """Each attempt begins with one: the driver's. Its task manager sends no more of one log than a step may find."""
    for query in ("attempt=1", "attempt=1&before="):
        assert lines((await site.get(f"{MERGED}?{query}")).json()) == ["an old attempt"]
    downloaded = await site.get(f"{MERGED}/download?attempt=1")
    assert downloaded.body.decode().splitlines()[0] == "driver       | an old attempt"


async def test_a_task_manager_that_does_not_answer_is_named(site: Site, held: ListedLogs) -> None:
    del site.remote_logs.readers["127.0.0.4:40001"]

    body = (await site.get(MERGED)).json()

    assert lines(body) == DRIVER.splitlines()
    assert body["unreachable"] == ["tm-127.0.0.3-1", "tm-127.0.0.4-1"]


@pytest.mark.parametrize(
    ("error", "expected"),
    [(InvalidInput("it serves no logs"), 409), (Conflict("not it"), 409), (NewerFormat("newer"), 409)],
)
async def test_one_log_that_cannot_be_read_does_not_hide_the_others(
    site: Site, held: ListedLogs, monkeypatch: pytest.MonkeyPatch, error: EmberkeepError, expected: int
) -> None:
    async def refuse(log_id: str, wanted: LogSearch) -> LogFound:
        raise error

    monkeypatch.setattr(site.remote_logs.readers["127.0.0.4:40001"], "search", refuse)

    body: Any = None
    for direction in ("", "before="):
        body = (await site.get(f"{MERGED}?{direction}")).json()
        assert lines(body) == DRIVER.splitlines()
        assert body["unreachable"] == ["tm-127.0.0.3-1", "tm-127.0.0.4-1"]
        assert body["problem"] == f"task manager tm-127.0.0.4-1 does not send its logs: {error.message}"
    downloaded = (await site.get(f"{MERGED}/download")).body.decode()
    assert downloaded.endswith(f"--- Emberkeep: {body['problem']} ---\n")

    monkeypatch.setattr(site.remote_logs.readers["127.0.0.2:40001"], "search", refuse)
    site.gateway.change(job_id(1), attempts=(), status_report=None)  # none ran on a task manager that is gone
    nothing = await site.get(f"{MERGED}?before=")
    assert (nothing.status, error.message in nothing.problem().detail) == (expected, True)


async def test_no_log_can_be_read_now_but_perhaps_later(
    site: Site, held: ListedLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(log_id: str, wanted: LogSearch) -> LogFound:
        raise RetryLater("too many searches") if log_id.startswith("2-driver") else Conflict("not it")

    for reader in site.remote_logs.readers.values():
        monkeypatch.setattr(reader, "search", refuse)
    nothing = await site.get(MERGED)
    assert (nothing.status, "not it" in nothing.problem().detail) == (503, True)


@pytest.mark.parametrize(
    ("query", "field"),
    [("after=d", "after"), ("before=x", "before"), ("before=&after=d:1", "before"), ("after=d:1,,", "after")],
)
async def test_bad_cursors_are_refused(site: Site, held: ListedLogs, query: str, field: str) -> None:
    answer = await site.get(f"{MERGED}?{query}")

    assert (answer.status, answer.problem().field) == (400, field)


async def test_an_attempt_without_logs(site: Site, held: ListedLogs) -> None:
    assert (await site.get(f"{MERGED}?attempt=9")).problem().status == 404


async def test_too_many_logs_are_not_merged(site: Site, held: ListedLogs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merged_logs, "MOST_LOGS", 1)

    assert (await site.get(MERGED)).problem().status == 409


async def test_all_of_an_attempt_is_downloaded_with_who_wrote_it(
    site: Site, held: ListedLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merged_logs, "_MOST_BYTES", 1)
    monkeypatch.setattr(merged_logs, "_LEAST_BYTES", 200)  # several steps
    answer = await site.get(f"{MERGED}/download")
    assert answer.status == 200
    assert answer.headers["Content-Disposition"] == f'attachment; filename="{job_id(1)[:8]}-attempt-2.txt"'
    *written, note = answer.body.decode().splitlines()
    assert note == "--- Emberkeep: logs on task manager tm-127.0.0.3-1 are missing here ---"
    found = [line.partition(" | ") for line in written]
    assert [text for _, _, text in found] == EXPECTED
    assert {(name.strip(), "driver" in text) for name, _, text in found} == {("driver", True), ("executor 0", False)}
    narrowed = await site.get(f"{MERGED}/download?level=warn&text=DRIVER%206&stdout=true&attempt=2")
    assert narrowed.body.decode().splitlines() == ["driver       | 2026-01-31T18:00:06Z WARN driver 6", note]
    assert (await site.get(f"{MERGED}/download?attempt=7")).status == 404
    assert (await site.get(f"{MERGED}/download?limit=7")).status == 400


async def test_a_download_ends_where_the_logs_ended_when_it_began(
    site: Site, held: ListedLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merged_logs, "_MOST_BYTES", 1)
    monkeypatch.setattr(merged_logs, "_LEAST_BYTES", 200)

    async def grows(*given: Any, **named: Any) -> Any:
        """The log grows by more with each look than a look reads."""
        ((name, log),) = held.logs.items()
        with log.path.open("a", encoding="utf-8") as file:
            file.write("2026-01-31T18:30:00Z INFO executor later\n" * 100)
        held.logs[name] = msgspec.structs.replace(log, size=log.path.stat().st_size, complete=False)
        return await search_job_log(*given, **named)

    monkeypatch.setattr(merged_logs, "search_job_log", grows)
    del site.remote_logs.readers["127.0.0.2:40001"]
    answer = await site.get(f"{MERGED}/download")
    found = [line for line in answer.body.decode().splitlines() if "later" not in line]
    assert [line.partition(" | ")[2] for line in found[:-2]] == EXECUTOR.splitlines()
    assert [line.partition("tm-")[2] for line in found[-2:]] == [
        "127.0.0.2-1 are missing here ---",
        "127.0.0.3-1 are missing here ---",
    ]
