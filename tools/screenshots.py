"""`make screenshots`: pictures of each page of the console in both themes; the cluster runs a stream and a batch job.

The pictures are for those who change a page, to look at: ``python -m tools.screenshots <directory>`` writes
``<page>-<theme>.png``. ``docs-<name>.png`` are those in ``docs/images``. It takes three to four minutes.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

from playwright.sync_api import Page

from tests.integration.console.browser import chromium

THEMES: Final[tuple[Literal["light", "dark"], ...]] = ("light", "dark")
_SECONDS: Final = 600.0  # for the history of the stream
_BATCHES: Final = 20  # of the stream, so that its plots have a shape
_TASK_MANAGER: Final = "tm-127.0.0.2"
_SIZE: Final = {"width": 1200, "height": 900}
_DOCS_HEIGHT: Final = 1130
_DOCS_PLOTS: Final = 5  # of a part with plots
_CLUSTER: Final = (
    *("--nodes", "127.0.0.2,127.0.0.3", "--slots", "2", "-D", "rest.port=0"),
    *("-D", "taskmanager.standby.drivers=0", "-D", "taskmanager.standby.executors=0"),
)
_JOB: Final = ("-q", "--driver-memory", "512m", "--executor-memory", "512m")

STREAM: Final = """
from pyspark.sql import SparkSession
from pyspark.sql.functions import window

spark = SparkSession.builder.appName("visits per minute").config("spark.sql.shuffle.partitions", "2").getOrCreate()
visits = spark.readStream.format("rate").option("rowsPerSecond", 400).load().withWatermark("timestamp", "10 seconds")
counts = visits.groupBy(window("timestamp", "5 seconds"), visits.value % 100).count()
counts.writeStream.queryName("visits").format("noop").trigger(processingTime="1 second").start().awaitTermination()
"""
BATCH: Final = """
import time

from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("nightly report").config("spark.sql.shuffle.partitions", "8").getOrCreate()
end = time.monotonic() + 100
rows = 200_000
while time.monotonic() < end:
    visits = spark.range(rows).selectExpr("id % 1000 AS page", "uuid() AS visitor")
    print(visits.repartition(8, "visitor").sortWithinPartitions("visitor").groupBy("page").count().count())
    rows = min(2 * rows, 1_600_000)
"""


class Console:
    """A cluster with jobs, driven by the command as a user drives it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def run(self, *words: str) -> str:
        """Run `emberkeep`, and return what it prints. Raises CalledProcessError with what it said if it fails."""
        command = [str(Path(sys.executable).with_name("emberkeep")), *words]
        environment = {**os.environ, "XDG_STATE_HOME": str(self._directory / "state")}
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout.strip()

    def submit(self, name: str, script: str, *options: str, executors: int = 1) -> str:
        """Submit a script, and return the job's id."""
        path = self._directory / name
        path.write_text(script, encoding="utf-8")
        return self.run("submit", *_JOB, "--num-executors", str(executors), *options, str(path))

    def cancel_all(self) -> None:
        """Cancel the jobs that have not ended."""
        for job in json.loads(self.run("list", "--output", "json")):
            if job["state"] not in ("FINISHED", "FAILED", "CANCELED"):
                self.run("cancel", job["jid"])

    def wait_for_batches(self, job_id: str, batches: int = _BATCHES) -> None:
        """Wait until the stream has a history. Raises TimeoutError."""
        deadline = time.monotonic() + _SECONDS
        while self._newest_batch(job_id) < batches:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{job_id} has not committed {batches} batches in {_SECONDS:g} s")
            time.sleep(5)

    def wait_for_end(self, job_id: str) -> None:
        """Wait until the job has finished. Raises TimeoutError."""
        deadline = time.monotonic() + _SECONDS
        while json.loads(self.run("info", job_id, "--output", "json"))["job"]["state"] != "FINISHED":
            if time.monotonic() > deadline:
                raise TimeoutError(f"{job_id} has not finished in {_SECONDS:g} s")
            time.sleep(5)

    def _newest_batch(self, job_id: str) -> int:
        """Return the number of the newest batch; -1 if there is none."""
        found = re.findall(r'"batch-id":\s*(\d+)', self.run("info", job_id, "--output", "json"))
        return max(map(int, found), default=-1)

    def login(self) -> tuple[str, str]:
        """Return the address of the JobManager, and a link that logs one browser in."""
        link = re.search(r"(https?://[^/\s]+)\S*login\S*", self.run("cluster", "status"))
        if link is None:
            raise ValueError("`emberkeep cluster status` prints no link to log in with")
        return link[1], link[0]


@contextmanager
def console(directory: Path) -> Iterator[Console]:
    """Run a cluster below ``directory``."""
    started = Console(directory)
    started.run("cluster", "up", *_CLUSTER)
    try:
        yield started
    finally:
        started.run("cluster", "down")


def pictures(stream: str, batch: str, log: str) -> dict[str, str]:
    """Return the path of the page of each picture. ``stream``, ``batch``: ids of jobs; ``log``: path of a log."""
    paths = {"overview": "/", "stream": f"/jobs/{stream}", "batch": f"/jobs/{batch}"}
    paths |= {"job-events": f"/jobs/{stream}/events", "task-manager": f"/taskmanagers/{_TASK_MANAGER}"}
    paths |= {name: f"/{name}" for name in ("jobs", "savepoints", "events", "audit", "taskmanagers", "nodes")}
    paths |= {"blobs": "/blobs", "job-blobs": f"/blobs?job={stream}", "leadership": "/leadership"}
    paths |= {"node": "/nodes/127.0.0.2", "logs": f"/jobs/{stream}/logs", "log": log}
    paths |= {"jobmanager-log": "/jobmanager/logs/jobmanager.log"}
    return paths | {"task-manager-log": f"/taskmanagers/{_TASK_MANAGER}/logs/taskmanager.log"}


def path_of_log(page: Page, url: str, job_id: str) -> str:
    """Return the path of the page of one of the job's logs. Raises ValueError if its page has no link to one."""
    page.goto(f"{url}/jobs/{job_id}", wait_until="load")
    link = page.locator(f"a[href^='/jobs/{job_id}/logs/']").first
    path = link.get_attribute("href")
    if path is None:
        raise ValueError(f"the page of job {job_id} has no link to a log")
    return path


def photograph(page: Page, url: str, paths: dict[str, str], target: Path, theme: str, status: int = 200) -> None:
    """Write a picture of each page, of its whole height. Raises ValueError if one is not answered with ``status``."""
    for name, path in paths.items():
        answer = page.goto(f"{url}{path}", wait_until="load")
        if answer is None or answer.status != status:
            raise ValueError(f"{path} is not shown: {answer.status_text if answer else 'no answer'}")
        page.wait_for_timeout(1500)  # plots are drawn after the page has loaded
        page.screenshot(path=target / f"{name}-{theme}.png", full_page=True)
        print(f"{target}/{name}-{theme}.png", flush=True)


def photograph_part(page: Page, url: str, path: str, selector: str, target: Path) -> None:
    """Write a picture of one part of a page, for the documentation."""
    page.goto(f"{url}{path}", wait_until="load")
    page.locator(selector).wait_for()
    page.wait_for_timeout(1500)
    page.locator(selector).screenshot(path=target)
    print(target, flush=True)


def photograph_for_docs(page: Page, url: str, stream: str, batch: str, target: Path) -> None:
    """Write the pictures that `docs/images` has: in the light theme, of a screen or of some plots."""
    parts = (("overview", "/", "main"), ("job", stream, "main"), ("stream", stream, "#streams"))
    for name, path, selector in (*parts, ("work", batch, "#course")):
        page.goto(f"{url}{path}", wait_until="load")
        page.locator(selector).wait_for()
        page.wait_for_timeout(1500)
        box = page.locator(selector).bounding_box()
        if box is None:
            raise ValueError(f"{path} does not show {selector}")
        top, bottom = 0.0, min(_DOCS_HEIGHT, box["y"] + box["height"])
        if selector != "main":
            last = page.locator(f"{selector} figure").nth(_DOCS_PLOTS - 1).bounding_box()
            if last is None:
                raise ValueError(f"{path} has fewer than {_DOCS_PLOTS} plots")
            top, bottom = box["y"] - 12, last["y"] + last["height"]
        clip = {"x": 0, "y": top, "width": _SIZE["width"], "height": bottom - top}
        page.screenshot(path=target / f"docs-{name}.png", full_page=True, clip=clip)  # type: ignore[arg-type]
        print(f"{target}/docs-{name}.png", flush=True)


def main(target: Path) -> None:
    """Run a cluster with jobs, and photograph its pages."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="emberkeep-screenshots-") as directory, console(Path(directory)) as cluster:
        print("starting two jobs …", flush=True)
        stream, batch = cluster.submit("visits.py", STREAM), cluster.submit("report.py", BATCH)
        cluster.wait_for_batches(stream)
        cluster.wait_for_end(batch)
        cluster.run("savepoint", "create", stream)
        cluster.run("savepoint", "verify", cluster.run("savepoint", "create", stream))
        with chromium() as browser:
            for theme in THEMES:
                url, link = cluster.login()
                context = browser.new_context(ignore_https_errors=True, color_scheme=theme, viewport=_SIZE)  # type: ignore[arg-type]
                page = context.new_page()
                photograph(page, url, {"login": "/login"}, target, theme)
                page.goto(link)
                page.wait_for_url(f"{url}/")
                paths = pictures(stream, batch, path_of_log(page, url, stream))
                photograph(page, url, paths, target, theme)
                photograph(page, url, {"error": f"/jobs/{'0' * 32}"}, target, theme, status=404)
                photograph_part(page, url, paths["stream"], "#streams", target / f"stream-progress-{theme}.png")
                if theme == "light":
                    photograph_for_docs(page, url, paths["stream"], paths["batch"], target)
                context.close()
        cluster.run("cancel", stream)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "screenshots"))
