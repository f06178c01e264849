"""Pages about what has ended and about the cluster's own processes, and the actions of the pages of nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from playwright.sync_api import Browser, Page, expect

from emberkeep.base.ids import JobId
from emberkeep.blocklist.model import BlockAction
from emberkeep.jobs.model import JobStatus
from emberkeep.protocol.rest_blocklist import BlockedNodeInfo
from tests.integration.clusters import Cluster
from tests.integration.console.browser import DESKTOP, PHONE, window
from tests.integration.console.conftest import NODES

pytestmark = [pytest.mark.integration, pytest.mark.long]

# Arguments: "raises" to fail at the end.
REPORT = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
keys = spark.range(1000).selectExpr("id % 10 AS key").groupBy("key").count().count()
print("keys:", keys, flush=True)
if sys.argv[1] == "raises":
    raise ValueError("no such column")
spark.stop()
"""


@dataclass(frozen=True)
class Reports:
    good: JobId
    bad: JobId


@pytest.fixture(scope="module")
def reports(cluster: Cluster) -> Reports:
    """Two batch jobs that have ended."""
    cluster.shell.write("report.py", REPORT)
    good = cluster.submit("report.py", "--name", "good report", arguments=("ends",))
    bad = cluster.submit("report.py", "--name", "bad report", arguments=("raises",))
    cluster.wait_for_end(good)
    cluster.wait_for_end(bad, JobStatus.FAILED)
    return Reports(good, bad)


@pytest.mark.parametrize(
    ("size", "theme"), [(DESKTOP, "light"), (DESKTOP, "dark"), (PHONE, "light")], ids=["light", "dark", "phone"]
)
def test_pages_of_ended_jobs_and_of_daemons_have_nothing_wrong(
    browser: Browser, cluster: Cluster, reports: Reports, size: tuple[int, int], theme: str
) -> None:
    manager = f"/taskmanagers/tm-{NODES[0]}"
    paths = {
        "/": "bad report",
        "/jobs?state=FAILED": "bad report",
        f"/jobs/{reports.good}": "FINISHED",
        f"/jobs/{reports.bad}": "no such column",
        f"/jobs/{reports.bad}/events?type=exception&type=attempt-ended": "no such column",
        f"/jobs/{reports.bad}/logs": "no such column",
        "/savepoints": "Savepoints",
        "/jobmanager/logs/jobmanager.log": "task manager",
        f"{manager}/logs/taskmanager.log": "registered",
    }
    with window(browser, cluster, size, "dark" if theme == "dark" else "light") as opened:
        found = opened.faults_of_pages(paths)
    assert not found, "\n".join(found)


def test_each_tab_says_that_a_job_has_failed(browser: Browser, cluster: Cluster, reports: Reports) -> None:
    logs = cluster.ask(lambda client: client.logs.of_job(reports.bad)).logs
    with window(browser, cluster) as opened:
        for page in ("", "/events", "/logs", f"/logs/{logs[0].id}"):
            opened.open(f"/jobs/{reports.bad}{page}")
            assert opened.tab() == ("FAILED", "icon-failed.svg"), page
        opened.open(f"/jobs/{reports.good}")
        assert opened.tab() == ("FINISHED", "icon-finished.svg")
        lists = ("/", "/jobs", "/savepoints", "/taskmanagers", "/nodes", "/events", "/blobs", "/audit")
        for page in (*lists, f"/taskmanagers/tm-{NODES[0]}/logs/taskmanager.log"):
            opened.open(page)
            assert opened.tab() == ("Job bad report has failed", "icon-failed.svg"), page


@dataclass(frozen=True)
class Listed:
    """A list as an address narrows it. ``fields``: its form, by label. ``current``: links that are marked as chosen."""

    address: str
    rows: str
    shown: tuple[str, ...]
    fields: dict[str, str] = field(default_factory=dict)
    current: tuple[str, ...] = ()

    def is_what(self, page: Page) -> None:
        """Fails unless the page shows it."""
        expect(page.locator(self.rows)).to_have_count(len(self.shown))
        for row, text in zip(page.locator(self.rows).all(), self.shown, strict=True):
            expect(row).to_contain_text(text)
        for label, value in self.fields.items():
            expect(page.get_by_label(re.compile(f"^{label}"))).to_have_value(value)
        for link in self.current:
            expect(page.get_by_role("link", name=re.compile(f"^{link}"))).to_have_attribute("aria-current", "true")


def test_filters_are_in_the_address(browser: Browser, cluster: Cluster, reports: Reports) -> None:
    """An address shows the same to whoever opens it, once more after a reload, and when somebody comes back to it."""
    bad = f"/jobs/{reports.bad}/events"
    jobs, nodes, managers = "#jobs tbody tr", "#nodes tbody tr", "#task-managers tbody tr"
    lists = [
        Listed("/jobs?state=FAILED&name=REPORT", jobs, ("bad report",), {"Search": "REPORT"}, ("FAILED",)),
        Listed("/jobs?state=FINISHED", jobs, ("good report",), {"Search": ""}, ("FINISHED",)),
        Listed("/jobs?state=CANCELED", jobs, ()),
        Listed("/nodes?state=available&text=0.0.3", nodes, (NODES[1],), {"Search": "0.0.3"}, ("available",)),
        Listed("/taskmanagers?text=0.0.2", managers, (f"tm-{NODES[0]}",), {"Search": "0.0.2"}),
        Listed(f"{bad}?type=attempt-ended", "#events tbody tr", ("no such column",), {}, ("attempt-ended",)),
        Listed(f"{bad}?type=submitted&text=nothing", "#events tbody tr", (), {"Search": "nothing"}),
        Listed("/audit?identity=no&outcome=done", "#entries tr", (), {"Identity": "no", "Outcome": "done"}),
    ]
    with window(browser, cluster) as opened:
        page = opened.page
        for listed in lists:
            opened.open(listed.address)
            listed.is_what(page)
            page.reload()
            listed.is_what(page)
        for listed in reversed(lists):
            listed.is_what(page)
            page.go_back()

        opened.open("/jobs")
        page.get_by_role("link", name=re.compile("^FAILED")).click()
        page.get_by_label("Search", exact=True).fill("bad")
        page.get_by_role("button", name="Search").click()
        found = Listed(page.url, jobs, ("bad report",), {"Search": "bad"}, ("FAILED",))
        found.is_what(page)
        page.locator(jobs).get_by_role("link").first.click()
        opened.sees("no such column")
        page.go_back()
        assert page.url == found.address
        found.is_what(page)
        page.evaluate("new Promise((seen) => document.addEventListener('emberkeep:refreshed', seen, {once: true}))")
        found.is_what(page)
        page.go_back()
        assert page.url.endswith("/jobs?state=FAILED")
        Listed(page.url, jobs, ("bad report",), {"Search": ""}, ("FAILED",)).is_what(page)


def test_the_spark_ui_of_a_job_that_has_ended_is_one_click_away(
    browser: Browser, cluster: Cluster, reports: Reports
) -> None:
    """It is Spark's History Server, which the JobManager starts now; its pages fill their tables with scripts."""
    with window(browser, cluster) as opened:
        opened.open(f"/jobs/{reports.good}")
        with opened.page.context.expect_page() as popup:
            opened.page.locator("#attempts").get_by_role("link", name="Open").click()
        ui = popup.value
        wrong: list[str] = []
        ui.on("pageerror", lambda error: wrong.append(error.message))
        ui.get_by_role("heading", name="Spark Jobs").wait_for()
        for tab, heading in (("Stages", "Stages for All Jobs"), ("Executors", "Executors"), ("SQL / DataFrame", "SQL")):
            ui.get_by_role("link", name=tab, exact=True).first.click()
            ui.get_by_role("heading", name=heading).first.wait_for()
        assert not wrong, "\n".join(wrong)


def entry(cluster: Cluster, node: str) -> BlockedNodeInfo | None:
    return cluster.ask(lambda client: client.blocklist()).blocked_nodes.get(node)


@pytest.fixture
def node(cluster: Cluster) -> Iterator[str]:
    """A node that is not blocked, before and afterwards."""
    yield NODES[1]
    assert entry(cluster, NODES[1]) is None


def test_a_node_is_blocked_evacuated_and_unblocked_on_its_own_page(
    browser: Browser, cluster: Cluster, node: str
) -> None:
    with window(browser, cluster, PHONE) as opened:
        page = opened.page
        dialog = page.get_by_role("dialog")
        opened.open(f"/nodes/{node}")
        page.get_by_role("button", name="Block…", exact=True).click()
        assert not opened.accessibility_problems()
        dialog.get_by_label("Cause").fill("a fan is loud")
        dialog.get_by_role("button", name="Block", exact=True).click()
        opened.sees("a fan is loud", "#facts")
        opened.sees("a fan is loud", "#node-events")
        blocked = entry(cluster, node)
        assert blocked is not None
        assert blocked.action is BlockAction.MARK_BLOCKED
        page.get_by_role("button", name="Evacuate…", exact=True).click()
        dialog.get_by_label("Cause").fill("now it smokes")
        dialog.get_by_role("button", name="Evacuate", exact=True).click()
        page.locator("#facts").get_by_text("nothing runs here any longer").wait_for()
        blocked = entry(cluster, node)
        assert blocked is not None
        assert blocked.action is BlockAction.MARK_BLOCKED_AND_EVACUATE_TASKS
        page.get_by_role("button", name="Unblock…", exact=True).click()
        dialog.get_by_role("button", name="Unblock", exact=True).click()
        page.get_by_role("button", name="Block…", exact=True).wait_for()


def test_a_node_that_is_not_there_yet_is_blocked_by_its_name(browser: Browser, cluster: Cluster) -> None:
    with window(browser, cluster) as opened:
        page = opened.page
        dialog = page.get_by_role("dialog")
        opened.open("/nodes")
        page.locator(".headline").get_by_role("button", name="Block…").click()
        dialog.get_by_label("Id").fill("node-to-come")
        dialog.get_by_label("Cause").fill("it is being repaired")
        dialog.get_by_role("button", name="Block", exact=True).click()
        row = page.locator("#nodes tr").filter(has_text="node-to-come")
        row.get_by_text("it is being repaired").wait_for()
        assert entry(cluster, "node-to-come") is not None
        row.get_by_role("button", name="Unblock…").click()
        dialog.get_by_role("button", name="Unblock", exact=True).click()
        row.wait_for(state="detached")
        assert entry(cluster, "node-to-come") is None
