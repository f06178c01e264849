"""What a person does with a job, a task manager and savepoints on their pages, and that the cluster has done it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator

from emberkeep.base.ids import JobId, TaskManagerId
from emberkeep.blocklist.model import BlockAction
from emberkeep.jobs.model import JobStatus
from emberkeep.lifecycle.model import Procedure
from emberkeep.protocol.rest_blocklist import BlockedTaskManagerInfo
from tests.integration.clusters import Cluster
from tests.integration.conditions import until
from tests.integration.console.browser import DESKTOP, PHONE, Window, window
from tests.integration.console.conftest import NODES
from tests.integration.streams import SCRIPT, Stream

pytestmark = [pytest.mark.integration, pytest.mark.long]

EMPTY = "There are no jobs, so there are no savepoints."


def started(cluster: Cluster, name: str) -> JobId:
    """Start a stream, and wait until it works."""
    stream = Stream(cluster.shell.directory / name)
    cluster.shell.write(f"{name}.py", SCRIPT)
    job_id = cluster.submit(f"{name}.py", arguments=(str(stream.place),))
    cluster.wait_for_executors(job_id)
    until(lambda: stream.batches() >= 2, lambda: f"two batches: {cluster.story(job_id)}")
    return job_id


@pytest.fixture(scope="module")
def orders(cluster: Cluster) -> JobId:
    """A stream that runs until it is drained."""
    return started(cluster, "orders")


def asked(window: Window, button: str, title: str) -> Locator:
    """Press a button, and return the dialog, which names what it is about. It is accessible, and not too wide."""
    window.page.get_by_role("button", name=button, exact=True).click()
    dialog = window.page.get_by_role("dialog")
    dialog.filter(has_text=title).wait_for()
    assert not window.accessibility_problems()
    assert not window.is_too_wide()
    return dialog


def blocked(cluster: Cluster, identifier: TaskManagerId) -> BlockedTaskManagerInfo | None:
    return cluster.ask(lambda client: client.blocklist()).blocked_task_managers.get(identifier)


def test_a_list_without_savepoints_says_what_to_do(browser: Browser, cluster: Cluster) -> None:
    with window(browser, cluster) as opened:
        opened.page.get_by_role("link", name="Savepoints", exact=True).click()
        opened.sees(EMPTY)
        opened.sees("emberkeep submit app.py")


def test_a_task_manager_is_blocked_evacuated_and_unblocked(browser: Browser, cluster: Cluster, orders: JobId) -> None:
    identifier = TaskManagerId(cluster.wait_for_executors(orders)[0].taskmanager_id)
    with window(browser, cluster, PHONE) as opened:
        opened.open(f"/taskmanagers/{identifier}")
        dialog = asked(opened, "Block…", f"Block task manager {identifier}?")
        dialog.get_by_label("Cause").fill("a fan is loud")
        dialog.get_by_label("For").select_option("2")
        dialog.get_by_role("button", name="Block", exact=True).click()
        opened.sees("a fan is loud", "#facts")
        entry = blocked(cluster, identifier)
        assert entry is not None
        assert (entry.action, entry.cause) == (BlockAction.MARK_BLOCKED, "a fan is loud")
        assert entry.end_timestamp - entry.start_timestamp < 2.1 * 3_600_000

        dialog = asked(opened, "Evacuate…", f"Evacuate task manager {identifier}?")
        dialog.get_by_label("Cause").fill("now it smokes")
        dialog.get_by_role("button", name="Evacuate", exact=True).click()
        opened.sees("EVACUATED", "#facts")
        opened.page.locator("#facts").get_by_text("nothing runs here any longer").wait_for(timeout=120_000)
        entry = blocked(cluster, identifier)
        assert entry is not None
        assert entry.action is BlockAction.MARK_BLOCKED_AND_EVACUATE_TASKS
        moved = cluster.wait_for_executors(orders)
        assert identifier not in {executor.taskmanager_id for executor in moved}

        dialog = asked(opened, "Unblock…", f"Unblock task manager {identifier}?")
        opened.sees("now it smokes", "#unblock")
        dialog.get_by_role("button", name="Keep it blocked").click()
        assert blocked(cluster, identifier) is not None
        dialog = asked(opened, "Unblock…", f"Unblock task manager {identifier}?")
        dialog.get_by_role("button", name="Unblock", exact=True).click()
        opened.page.get_by_role("button", name="Block…", exact=True).wait_for()
        assert blocked(cluster, identifier) is None


def test_savepoints_are_filtered_verified_and_copied(browser: Browser, cluster: Cluster, orders: JobId) -> None:
    cluster.wait_for_driver(orders, cluster.job(orders).emberkeep.attempt)
    paths = [cluster.shell.done("savepoint", "create", orders).out.strip() for _ in range(2)]
    with window(browser, cluster) as opened:
        page = opened.page
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        opened.open("/savepoints")
        rows = page.locator("#savepoints tbody tr")
        assert [path in row for path, row in zip(reversed(paths), rows.all_inner_texts(), strict=True)] == [True, True]

        page.get_by_label("Search").fill(Path(paths[0]).name)
        page.get_by_role("button", name="Search").click()
        page.wait_for_url(re.compile(r"/savepoints\?text=savepoint-"))
        address = page.url
        opened.open("/")
        page.goto(address)  # the address is the filter
        assert rows.count() == 1
        opened.open(f"/savepoints?kind=savepoint&job={orders}")
        assert rows.count() == 2
        opened.open("/savepoints?kind=drain")
        opened.sees("No such savepoints.")

        page.goto(address)
        opened.sees("not verified since this JobManager leads", "#savepoints")
        rows.get_by_role("button", name="Verify").click()
        rows.get_by_text("intact: ").wait_for()
        found = cluster.ask(lambda client: client.savepoints.all()).savepoints
        assert [each.verification is not None for each in found] == [False, True]
        page.reload()
        rows.get_by_text(re.compile("intact: .*; read ")).wait_for()  # the cluster remembers it

        rows.get_by_role("button", name="Copy").click()
        rows.get_by_text("Copied").wait_for()
        copied = page.evaluate("navigator.clipboard.readText()")
        script = str(cluster.shell.work / "orders.py")
        assert shlex.split(copied) == ["emberkeep", "savepoint", "restore", paths[0], script]


def test_a_job_is_drained_on_its_page(browser: Browser, cluster: Cluster, orders: JobId) -> None:
    """The last test of the stream: it ends."""
    with window(browser, cluster) as opened:
        opened.open(f"/jobs/{orders}")
        dialog = asked(opened, "Stop with savepoint…", "orders.py")
        dialog.get_by_role("button", name="Drain and stop").click()
        opened.sees("FINISHED", "#headline")
        assert cluster.job(orders).state is JobStatus.FINISHED
        newest = cluster.ask(lambda client: client.savepoints.all()).savepoints[0]
        manifest = cluster.ask(lambda client: client.savepoints.manifest(newest.path))
        assert (newest.kind, manifest.procedure) == ("drain", Procedure.DRAIN)
        opened.open("/savepoints?kind=drain")
        opened.sees(newest.path, "#savepoints")


def test_a_job_is_cancelled_on_its_page(browser: Browser, cluster: Cluster) -> None:
    job_id = started(cluster, "visits")
    with window(browser, cluster) as opened:
        opened.open(f"/jobs/{job_id}")
        dialog = asked(opened, "Cancel job…", "visits.py")
        dialog.get_by_role("button", name="Keep it running").click()
        assert cluster.job(job_id).state is JobStatus.RUNNING
        dialog = asked(opened, "Cancel job…", "visits.py")
        dialog.get_by_role("button", name="Cancel the job").click()
        opened.sees("CANCELED", "#headline")
        assert cluster.job(job_id).state is JobStatus.CANCELED


@pytest.mark.parametrize(
    ("size", "theme"), [(DESKTOP, "light"), (DESKTOP, "dark"), (PHONE, "light")], ids=["light", "dark", "phone"]
)
def test_the_pages_have_nothing_wrong(
    browser: Browser, cluster: Cluster, orders: JobId, size: tuple[int, int], theme: str
) -> None:
    paths = {
        "/savepoints": "intact: ",
        f"/savepoints?job={orders}&kind=drain": "orders.py",
        "/savepoints?text=nothing": "No such savepoints.",
        f"/jobs/{orders}": "Savepoints of all jobs",
        f"/taskmanagers/tm-{NODES[0]}": "Slots",
    }
    with window(browser, cluster, size, "dark" if theme == "dark" else "light") as opened:
        found = opened.faults_of_pages(paths)
    assert not found, "\n".join(found)
