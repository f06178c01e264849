"""The console while the leader dies: open pages go on at the next leader, which knows jobs that have ended."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import Shell
from tests.integration.conditions import until
from tests.integration.console.browser import chromium, window
from tests.integration.console.plots import plotted
from tests.integration.console.timeline import lanes, marks
from tests.integration.streams import SCRIPT, Stream

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.req("HA-12")]

COUNTING = SCRIPT.replace("    aside.rename(", '    print("count", number, flush=True)\n    aside.rename(')

REPORT = """
from pyspark.sql import SparkSession

spark = SparkSession.builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
print(spark.range(1000).selectExpr("id % 10 AS key").groupBy("key").count().count(), flush=True)
spark.stop()
"""


@pytest.fixture
def cluster(tmp_path: Path, class_archive: Path) -> Iterator[Cluster]:
    cluster = Cluster(Shell(tmp_path, class_archive.parent))
    try:
        session = "high-availability.zookeeper.client.session-timeout=4s"
        cluster.up("--ha", "--job-managers", "2", "--task-managers", "1", "-D", session, *QUICK)
        yield cluster
        cluster.cancel_all()
    finally:
        cluster.close()


def newest_count(page: Page) -> int:
    """The number in the last record of the open log, once there is one."""
    return int(page.locator(".record").last.inner_text().removeprefix("count "))


def follows(page: Page) -> None:
    """Fails unless a record arrives that is not in what was first shown of the log."""
    first = newest_count(page)
    until(lambda: newest_count(page) >= first + 2, "later records arrive")


def test_open_pages_go_on_at_the_next_leader(cluster: Cluster) -> None:
    cluster.shell.write("report.py", REPORT)
    report = cluster.submit("report.py")
    cluster.wait_for_end(report)
    done = cluster.ask(lambda client: client.job(report)).emberkeep.work
    assert done is not None
    stream = Stream(cluster.shell.directory / "stream")
    cluster.shell.write("counting.py", COUNTING)
    job_id = cluster.submit("counting.py", arguments=(str(stream.place),))
    cluster.wait_for_driver(job_id)
    until(lambda: stream.batches() >= 3, lambda: f"three batches: {cluster.story(job_id)}")
    log = next(
        log for log in cluster.ask(lambda client: client.logs.of_job(job_id)).logs if log.kind == "driver-stdout"
    )
    leading = cluster.ask(lambda client: client.overview()).emberkeep.job_manager
    record = cluster.record
    address_of = dict(zip((record.url, *record.standby_urls), record.job_managers, strict=True))
    old_url, old = next((url, each) for url, each in address_of.items() if urlsplit(url).netloc == leading)
    new_url = next(url for url in address_of if url != old_url)

    task_manager = cluster.ask(lambda client: client.task_managers())[0].id
    storage = cluster.shell.directory
    until(lambda: list(storage.rglob("nodes/*.record")), "the usage of the node is stored")

    with chromium() as browser, window(browser, cluster) as opened:
        opened.url = old_url
        opened.open(f"/taskmanagers/{task_manager}")
        known_since = (
            opened.page.locator("#usage-newest", has_text="known since").inner_text().partition("known since")[2]
        )
        opened.open(f"/jobs/{job_id}?view=all")
        opened.sees("RUNNING", "#headline")
        began, before = plotted(opened.page)
        other = opened.page.context.new_page()
        other.goto(f"{old_url}/jobs/{job_id}/logs/{log.id}?q=count")
        other.get_by_text("count 1", exact=True).first.wait_for()
        follows(other)
        opened.page.bring_to_front()
        with opened.page.expect_response(lambda answer: "emberkeep-session-pass" in answer.headers):
            pass  # until the page has a pass
        os.kill(old.identity.pid, signal.SIGKILL)

        opened.page.wait_for_url(f"{new_url}/jobs/{job_id}?view=all", timeout=120_000)
        opened.sees("RUNNING", "#headline")
        assert opened.page.locator("header .leader").inner_text() == urlsplit(new_url).netloc
        until(lambda: plotted(opened.page)[1] > before, "the plots grow")
        assert plotted(opened.page)[0] == began, "the plots begin with batches of the dead leader's time"
        until(lambda: "Leaders" in lanes(opened.page), "the timeline has the new leader")
        happened = marks(opened.page)
        assert (happened["leader-started"], happened["reattached"], happened["attempt-started"]) == (1, 1, 1)
        other.bring_to_front()
        other.wait_for_url(f"{new_url}/jobs/{job_id}/logs/{log.id}**", timeout=120_000)
        follows(other)
        opened.page.bring_to_front()
        opened.url = new_url
        opened.open(f"/taskmanagers/{task_manager}")
        opened.sees(f"known since{known_since}", "#usage-newest")  # the next leader continues the history
        opened.open("/leadership")
        terms = opened.page.locator("#terms tbody tr")
        expect(terms).to_have_count(2)
        expect(terms.nth(0)).to_contain_text(urlsplit(new_url).netloc)
        expect(terms.nth(0)).to_contain_text("LEADS")
        expect(terms.nth(1)).to_contain_text(urlsplit(old_url).netloc)
        expect(terms.nth(1)).not_to_contain_text("LEADS")
        managers = opened.page.locator("#job-managers tbody tr")
        expect(managers.filter(has_text=urlsplit(old_url).netloc)).to_contain_text("AWAY")
        opened.sees("nobody takes over", "#job-managers")
        assert opened.accessibility_problems() == []
        opened.open(f"/jobs/{report}")  # it ended under the dead leader
        opened.sees(f"{done.tasks_finished} of {done.tasks_finished} tasks done", "#work")
        opened.page.locator("#work tbody tr").first.wait_for()
        opened.page.locator("#executors tbody tr").first.wait_for()
        assert cluster.ask(lambda client: client.job(report)).emberkeep.work == done
        opened.problems.clear()  # requests that the dead leader did not answer
