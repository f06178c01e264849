"""`make screenshots`: pictures of a cluster in trouble, with real jobs.

A stream restarts, a batch job waits for slots, a node is being evacuated, and the page has lost its connection:
``python -m tools.trouble_screenshots <directory>`` writes ``trouble-<name>-<theme>.png``. ``docs-<name>.png`` are those
in ``docs/images``. It takes about two minutes.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Page

from tests.integration.console.browser import chromium
from tools.screenshots import STREAM, THEMES, Console, console, photograph

_SECONDS: Final = 600.0
_BATCHES: Final = 5  # of the stream, before its driver is killed
_SIZE: Final = {"width": 1200, "height": 760}
NODES: Final = ("127.0.0.2", "127.0.0.3")
_RESTARTS_LATER: Final = (
    *("-D", "restart-strategy.type=fixed-delay", "-D", "restart-strategy.fixed-delay.delay=1 h"),
    *("-D", "restart-strategy.fixed-delay.attempts=10"),
)
WAITING: Final = """
import time

from pyspark.sql import SparkSession

context = SparkSession.builder.appName("nightly report").getOrCreate().sparkContext
context.parallelize(range(12), 12).map(lambda part: time.sleep(3600)).count()
"""


def _job(cluster: Console, job_id: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.run("info", job_id, "--output", "json"))["job"]
    return found


def _until(look: Callable[[], object], what: str) -> None:
    """Wait. Raises TimeoutError."""
    deadline = time.monotonic() + _SECONDS
    while not look():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} is not so after {_SECONDS:g} s")
        time.sleep(1)


def make_trouble(cluster: Console) -> dict[str, str]:
    """Bring the cluster into trouble that stays. Return the path of the page of each picture."""
    stream = cluster.submit("visits.py", STREAM, *_RESTARTS_LATER)
    cluster.wait_for_batches(stream, _BATCHES)
    waiting = cluster.submit("report.py", WAITING, executors=6)

    def registered() -> int:
        return sum(executor["registered"] for executor in _job(cluster, waiting)["emberkeep"]["executors"])

    _until(lambda: registered() == 3 and _job(cluster, waiting)["emberkeep"]["waiting"], "the report waits for slots")
    driver = _job(cluster, stream)["emberkeep"]["driver"]
    # The stream's driver stays where it is: one that leaves its node in time is no trouble.
    node = next(each for each in NODES if driver["taskmanager-id"] != f"tm-{each}")
    cluster.run("node", "evacuate", node, "--cause", "a fan is loud", "--drivers", "wait")
    os.kill(driver["pid"], signal.SIGKILL)
    _until(lambda: _job(cluster, stream)["state"] == "RESTARTING", "the stream restarts")
    return {
        "overview": "/",
        "restarting": f"/jobs/{stream}",
        "waiting": f"/jobs/{waiting}",
        "evacuated": f"/nodes/{node}",
        "nodes": "/nodes",
    }


def photograph_screen(page: Page, url: str, path: str, target: Path, *, is_lost: bool = False) -> None:
    """Write a picture of what a screen shows of a page. ``is_lost``: after the connection has been cut."""
    page.goto(f"{url}{path}", wait_until="load")
    page.wait_for_timeout(1500)
    if is_lost:
        page.context.set_offline(True)
        page.locator("#notice").filter(has_text="may be out of date").wait_for()
    page.screenshot(path=target)
    page.context.set_offline(False)
    print(target, flush=True)


def main(target: Path) -> None:
    """Run a cluster, bring it into trouble, and photograph its pages."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="emberkeep-screenshots-") as directory, console(Path(directory)) as cluster:
        print("making trouble …", flush=True)
        try:
            paths = make_trouble(cluster)
            with chromium() as browser:
                for theme in THEMES:
                    url, link = cluster.login()
                    context = browser.new_context(ignore_https_errors=True, color_scheme=theme, viewport=_SIZE)  # type: ignore[arg-type]
                    page = context.new_page()
                    page.goto(link)
                    page.wait_for_url(f"{url}/")
                    photograph(page, url, {f"trouble-{name}": path for name, path in paths.items()}, target, theme)
                    photograph_screen(page, url, "/", target / f"trouble-lost-{theme}.png", is_lost=True)
                    if theme == "light":
                        for name in ("overview", "restarting", "waiting", "evacuated"):
                            photograph_screen(page, url, paths[name], target / f"docs-trouble-{name}.png")
                    context.close()
        finally:
            cluster.cancel_all()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "screenshots"))
