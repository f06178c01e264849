"""The History Server of the JobManager: started on demand, restricted to one application, ended when idle."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from emberkeep.adapters.shared_storage import event_log_copier
from emberkeep.adapters.shared_storage.event_logs import attempt_directory, copy_event_log
from emberkeep.base.errors import Absent, Conflict, InvalidInput, RetryLater
from emberkeep.daemons import spark_page_pieces, spark_pages
from emberkeep.daemons.jobmanager import spark_history
from emberkeep.daemons.jobmanager.spark_history import IDLE_SECONDS, SparkHistory
from emberkeep.protocol.messages.job_masters import SparkUiRead
from emberkeep.spark.jvm.history_server import APPLICATIONS
from tests.unit.rest.fake_gateway import job_id

pytestmark = pytest.mark.anyio

JOB = job_id(1)
# Answers each request with its path, the base and the logs that are there, as Spark's server does with pages. At first,
# as Spark's server, it answers everything with its list.
SERVER = """
import http.server, os, sys
asked = []
class Pages(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        asked.append(self.path)
        assert self.headers["Authorization"].startswith("Bearer ey")
        logs = ",".join(sorted(os.listdir(sys.argv[1])))
        if len(asked) > 3 and self.path == "/history/-/":
            self.send_error(404)
            return
        parts = (self.path, self.headers.get("X-Forwarded-Context", ""), logs)
        body = "\\n".join(parts if len(asked) > 3 else ("the list of all applications",)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.HTTPServer(("127.0.0.1", 0), Pages).serve_forever()
"""


class Hands:
    """A clock that a test turns."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Bench:
    history: SparkHistory
    checkpoints: Path
    directory: Path
    script: list[str]
    starts: list[list[str]]
    clock: Hands
    staging: Path
    keys: list[bytes]
    slow: list[int] = field(default_factory=list)  # attempts whose logs are on a storage that hangs
    copies: list[int] = field(default_factory=list)  # attempts whose logs a copy was begun of
    running: asyncio.Task[None] = field(init=False)

    async def copying(self, attempt: int) -> None:
        async with asyncio.timeout(30):
            while attempt not in self.copies:  # noqa: ASYNC110 - a thread has no events
                await asyncio.sleep(0.01)

    async def kill(self) -> None:
        """Kill the server, and wait until its end is known."""
        pid = self.history.pid
        assert pid is not None
        psutil.Process(pid).kill()
        async with asyncio.timeout(30):
            while self.history.pid is not None:  # noqa: ASYNC110 - a process has no events
                await asyncio.sleep(0.01)

    def log(self, job: str, attempt: int = 1, app_id: str = "app-1") -> None:
        place = attempt_directory(self.checkpoints / job, attempt) / f"eventlog_v2_{app_id}"
        place.mkdir(parents=True)
        (place / f"events_1_{app_id}.zstd").touch()

    async def lines(self, path: str, *, attempt: int = 1, base: str = "") -> list[str]:
        page = await self.history.read(JOB, attempt, path, base)
        return page.body.decode().split("\n")


@pytest.fixture
def hung() -> Iterator[threading.Event]:
    """Set when the storage answers again."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hung: threading.Event) -> AsyncIterator[Bench]:
    monkeypatch.setattr(spark_history, "_LOOK_SECONDS", 0.01)
    script, starts, clock, keys = [SERVER], list[list[str]](), Hands(), list[bytes]()

    def prepare(directory: Path, logs: Path, key: bytes, environ: Mapping[str, str]) -> list[str]:
        assert len(key) == 32
        keys.append(key)
        starts.append([sys.executable, "-c", script[0], str(logs)])
        return starts[-1]

    directory, checkpoints = tmp_path / "spark-history", tmp_path / "checkpoints"
    history = SparkHistory(directory, checkpoints, prepare, clock)
    bench = Bench(history, checkpoints, directory, script, starts, clock, tmp_path / "spark-history-copies", keys)

    def copy(root: Path, attempt: int, into: Path) -> str:
        bench.copies.append(attempt)
        if attempt in bench.slow:
            hung.wait()
        return copy_event_log(root, attempt, into)

    monkeypatch.setattr(event_log_copier, "copy_event_log", copy)
    checkpoints.mkdir()
    bench.running = running = asyncio.create_task(history.run())
    try:
        yield bench
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        hung.set()
        assert history.pid is None
        assert not directory.exists()


async def test_it_starts_with_the_first_page_and_shows_only_the_attempts_application(bench: Bench) -> None:
    bench.log(JOB, 1, "app-1")
    bench.log(job_id(2), 1, "app-2")
    moved = await bench.history.read(JOB, 1, "/jobs/", "/ticket")
    assert moved == SparkUiRead(status=302, content_type="", location="/history/app-1/jobs/", body=b"")
    assert bench.starts == [], "a redirect needs no server"
    assert await bench.lines("/history/app-1/jobs/?id=1", base="/ticket") == [
        "/history/app-1/jobs/?id=1",
        "/ticket",
        "eventlog_v2_app-1",
    ]
    await bench.history.read(job_id(2), 1, "/history/app-2/", "")
    for path in ("/history/app-2/jobs/", "/api/v1/applications", "/api/v1/applications/app-2/jobs"):
        with pytest.raises(Absent):
            await bench.history.read(JOB, 1, path, "")
    with pytest.raises(InvalidInput):
        await bench.history.read(JOB, 1, "//evil.example/", "")
    assert len(bench.starts) == 1


async def test_without_a_log_no_server_is_started(bench: Bench) -> None:
    with pytest.raises(Absent, match="left no event log"):
        await bench.history.read(JOB, 1, "/", "")
    assert bench.starts == []


async def test_it_ends_when_it_is_idle_and_starts_again(bench: Bench) -> None:
    bench.log(JOB)
    await bench.lines("/static/webui.js")
    pid = bench.history.pid
    assert pid is not None
    bench.clock.now += IDLE_SECONDS
    async with asyncio.timeout(30):
        while bench.directory.exists():  # noqa: ASYNC110 - a process has no events
            await asyncio.sleep(0.01)
    assert not psutil.pid_exists(pid)
    assert (await bench.lines("/static/webui.js"))[2] == "eventlog_v2_app-1"
    assert len(bench.starts) == 2


async def test_one_that_was_killed_is_replaced(bench: Bench) -> None:
    bench.log(JOB)
    await bench.lines("/static/webui.js")
    await bench.kill()
    bench.clock.now += 1
    assert (await bench.lines("/static/webui.js"))[0] == "/static/webui.js"


async def test_one_that_cannot_start_says_why_and_is_not_tried_again_at_once(bench: Bench) -> None:
    bench.log(JOB)
    bench.script[0] = "import sys; sys.exit('no memory')"
    with pytest.raises(RetryLater, match="has ended at its start: no memory"):
        await bench.lines("/static/webui.js")
    with pytest.raises(RetryLater, match="has just failed to start"):
        await bench.lines("/static/webui.js")
    assert len(bench.starts) == 1
    bench.script[0] = SERVER
    bench.clock.now += 11
    assert (await bench.lines("/static/webui.js"))[0] == "/static/webui.js"


async def test_the_least_recently_used_copy_makes_room(bench: Bench) -> None:
    for attempt in range(1, APPLICATIONS + 2):
        bench.log(JOB, attempt, f"app-{attempt}")
        await bench.lines("/static/webui.js", attempt=attempt)
        await bench.history.read(JOB, 1, "/", "")
    copies = (await bench.lines("/static/webui.js"))[2].split(",")
    assert len(copies) == APPLICATIONS
    assert "eventlog_v2_app-1" in copies
    assert "eventlog_v2_app-2" not in copies


async def test_a_storage_that_hangs_holds_up_one_thread_and_no_other_page(bench: Bench, hung: threading.Event) -> None:
    bench.log(JOB, 1, "app-1")
    bench.log(JOB, 2, "app-2")
    await bench.lines("/static/webui.js")
    bench.slow.append(2)
    before = threading.active_count()
    waiting = [asyncio.create_task(bench.lines("/static/webui.js", attempt=2)) for _ in range(5)]
    async with asyncio.timeout(30):
        while threading.active_count() == before:  # noqa: ASYNC110 - a thread has no events
            await asyncio.sleep(0.01)
    for one in waiting[1:]:
        one.cancel()
    await asyncio.wait(waiting[1:])
    assert threading.active_count() == before + 1
    assert (await bench.lines("/static/webui.js"))[0] == "/static/webui.js"
    bench.log(JOB, 3, "app-3")
    with pytest.raises(RetryLater, match="another event log is being copied"):
        await bench.lines("/static/webui.js", attempt=3)
    hung.set()
    assert "eventlog_v2_app-2" in (await waiting[0])[2]


async def test_a_slow_copy_continues_when_nobody_waits_and_is_shown_later(bench: Bench, hung: threading.Event) -> None:
    bench.log(JOB)
    bench.slow.append(1)
    first = asyncio.create_task(bench.lines("/static/webui.js"))
    await bench.copying(1)
    first.cancel()
    await asyncio.wait([first])
    second = asyncio.create_task(bench.lines("/static/webui.js"))
    hung.set()
    assert (await second)[2] == "eventlog_v2_app-1"
    assert len(bench.copies) == 1


async def test_the_end_of_a_term_does_not_wait_for_a_copy_which_shows_nothing(
    bench: Bench, hung: threading.Event
) -> None:
    bench.log(JOB)
    bench.slow.append(1)
    first = asyncio.create_task(bench.lines("/static/webui.js"))
    await bench.copying(1)
    bench.running.cancel()
    async with asyncio.timeout(30):
        await asyncio.wait([bench.running])
    hung.set()
    with pytest.raises(RetryLater):
        await first
    assert bench.starts == []
    async with asyncio.timeout(30):
        while bench.staging.exists():  # noqa: ASYNC110 - a thread has no events
            await asyncio.sleep(0.01)


async def test_logs_of_one_name_from_two_jobs_are_never_in_one_server(bench: Bench) -> None:
    """A job's user chooses the name of a log, and a server answers by this name from its memory."""
    bench.log(JOB, 1, "app-1")
    bench.log(job_id(2), 1, "app-1")
    await bench.lines("/static/webui.js")
    for number, job in ((2, job_id(2)), (3, JOB)):
        await bench.history.read(job, 1, "/history/app-1/jobs/", "")
        await bench.history.read(job, 1, "/history/app-1/stages/", "")
        assert len(bench.starts) == number, "a server of its own"


async def test_a_name_stays_its_owners_after_the_copy_has_made_room(bench: Bench) -> None:
    for attempt in range(1, APPLICATIONS + 2):
        bench.log(JOB, attempt, f"app-{attempt}")
        await bench.lines("/static/webui.js", attempt=attempt)
    bench.log(job_id(2), 1, "app-1")
    await bench.history.read(job_id(2), 1, "/history/app-1/", "")
    assert len(bench.starts) == 2


async def test_a_log_that_ends_the_server_is_not_there_when_others_start_it(bench: Bench) -> None:
    bench.log(JOB, 1, "app-1")
    bench.log(JOB, 2, "app-poisoned")
    bench.script[0] = (
        "import os, sys\nif any('poisoned' in name for name in os.listdir(sys.argv[1])): sys.exit('no memory')\n"
        + SERVER
    )
    with pytest.raises(RetryLater, match="no memory"):
        await bench.lines("/static/webui.js", attempt=2)
    bench.clock.now += 11
    assert (await bench.lines("/static/webui.js"))[2] == "eventlog_v2_app-1"


async def test_each_start_has_a_key_of_its_own(bench: Bench) -> None:
    bench.log(JOB)
    for _ in range(2):
        await bench.lines("/static/webui.js")
        await bench.kill()
    assert len(set(bench.keys)) == 2


async def test_a_start_that_the_end_of_the_term_overtakes_leaves_no_process(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.log(JOB)
    create, processes = asyncio.create_subprocess_exec, list[asyncio.subprocess.Process]()

    async def create_late(*arguments: str, **settings: Any) -> asyncio.subprocess.Process:
        bench.running.cancel()
        await asyncio.wait([bench.running])
        bench.directory.mkdir()  # the working directory of the process
        processes.append(await create(*arguments, **settings))
        bench.directory.rmdir()
        return processes[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", create_late)
    with pytest.raises(RetryLater, match="not the leader any more"):
        await bench.lines("/static/webui.js")
    assert processes[0].returncode is not None
    with pytest.raises(RetryLater, match="not the leader any more"):
        await bench.lines("/static/webui.js")


async def test_it_ends_with_its_jobmanager(tmp_path: Path) -> None:
    """The process that stands between is the JobManager here: it is killed, and can end nothing itself."""
    code = (
        "import subprocess, sys, os, time\n"
        "child = subprocess.Popen([sys.executable, '-m', 'emberkeep.daemons.history_server', str(os.getpid()), "
        "sys.executable, '-c', 'import time; print(1, flush=True); time.sleep(600)'], stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\nprint(child.pid, flush=True)\ntime.sleep(600)\n"
    )
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    assert parent.stdout is not None
    child = psutil.Process(int(await parent.stdout.readline()))
    parent.kill()
    await parent.wait()
    await asyncio.to_thread(psutil.wait_procs, [child], timeout=30)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


async def test_a_large_page_comes_in_pieces_which_are_of_its_attempt(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_page_pieces, "SPARK_UI_BYTES", 20)
    bench.log(JOB, 1, "app-1")
    bench.log(job_id(2), 1, "app-2")
    path = "/history/app-1/jobs/?id=1"
    first = await bench.history.read(JOB, 1, path, "", in_pieces=True)
    assert (first.body.decode(), bool(first.more)) == (path[:20], True)
    with pytest.raises(Absent):
        await bench.history.following(job_id(2), 1, first.more)
    rest = await bench.history.following(JOB, 1, first.more)
    assert (rest.body.decode().splitlines()[0], rest.more) == (path[20:], "")
    monkeypatch.setattr(spark_pages, "SPARK_UI_BYTES", 20)
    with pytest.raises(Conflict, match="has more than"):
        await bench.history.read(JOB, 1, path, "")
