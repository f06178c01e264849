"""The History Server of the JobManager: started on demand, restricted to one application, ended when idle."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from emberkeep.adapters.shared_storage.event_logs import attempt_directory
from emberkeep.base.errors import Absent, InvalidInput, RetryLater
from emberkeep.daemons.jobmanager import spark_history
from emberkeep.daemons.jobmanager.spark_history import IDLE_SECONDS, SparkHistory
from emberkeep.protocol.messages import SparkUiRead
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

    def log(self, job: str, attempt: int = 1, app_id: str = "app-1") -> None:
        place = attempt_directory(self.checkpoints / job, attempt) / f"eventlog_v2_{app_id}"
        place.mkdir(parents=True)
        (place / f"events_1_{app_id}.zstd").touch()

    async def lines(self, path: str, *, attempt: int = 1, base: str = "") -> list[str]:
        page = await self.history.read(JOB, attempt, path, base)
        return page.body.decode().split("\n")


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    monkeypatch.setattr(spark_history, "_LOOK_SECONDS", 0.01)
    script, starts, clock = [SERVER], list[list[str]](), Hands()

    def prepare(directory: Path, logs: Path, key: bytes, environ: Mapping[str, str]) -> list[str]:
        assert len(key) == 32
        starts.append([sys.executable, "-c", script[0], str(logs)])
        return starts[-1]

    directory, checkpoints = tmp_path / "spark-history", tmp_path / "checkpoints"
    history = SparkHistory(directory, checkpoints, prepare, clock)
    bench = Bench(history, checkpoints, directory, script, starts, clock)
    checkpoints.mkdir()
    running = asyncio.create_task(history.run())
    try:
        yield bench
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
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
    pid = bench.history.pid
    assert pid is not None
    psutil.Process(pid).kill()
    async with asyncio.timeout(30):
        while bench.history.pid is not None:  # noqa: ASYNC110 - a process has no events
            await asyncio.sleep(0.01)
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
        await bench.history.read(JOB, attempt, "/", "")
        await bench.history.read(JOB, 1, "/", "")
    copies = (await bench.lines("/static/webui.js"))[2].split(",")
    assert len(copies) == APPLICATIONS
    assert "eventlog_v2_app-1" in copies
    assert "eventlog_v2_app-2" not in copies


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
