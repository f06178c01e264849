"""What a person does with a job, a task manager and savepoints on their pages, and that the cluster has done it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, expect

from emberkeep.base.identity import Role
from emberkeep.base.ids import JobId, TaskManagerId
from emberkeep.blocklist.model import BlockAction
from emberkeep.jobs.model import JobStatus
from emberkeep.lifecycle.model import Procedure
from emberkeep.protocol.rest_blocklist import BlockedTaskManagerInfo
from tests.integration.clusters import Cluster
from tests.integration.conditions import until
from tests.integration.console.browser import DESKTOP, PHONE, Window, window, window_with_token
from tests.integration.console.conftest import NODES
from tests.integration.streams import SCRIPT, Stream

pytestmark = [pytest.mark.integration, pytest.mark.long]

EMPTY = "There are no jobs, so there are no savepoints."


def started(cluster: Cluster, name: str, *options: str) -> JobId:
    """Start a stream, and wait until it works."""
    stream = Stream(cluster.shell.directory / name)
    cluster.shell.write(f"{name}.py", SCRIPT)
    job_id = cluster.submit(f"{name}.py", *options, arguments=(str(stream.place),))
    cluster.wait_for_executors(job_id)
    until(lambda: stream.batches() >= 2, lambda: f"two batches: {cluster.story(job_id)}")
    return job_id


def token_of(cluster: Cluster, role: Role) -> Path:
    """Make a token that has the role's name; return its file."""
    file = cluster.shell.directory / f"{role}.token"
    file.touch(0o600)
    file.write_text(cluster.shell.done("token", "create", role, "--role", role).out)
    return file


@pytest.fixture(scope="module")
def tokens(cluster: Cluster) -> dict[Role, str]:
    """A named token for each role."""
    return {role: token_of(cluster, role).read_text().strip() for role in Role if role is not Role.METRICS}


@pytest.fixture(scope="module")
def orders(cluster: Cluster, tokens: dict[Role, str]) -> JobId:
    """A stream of the submitter that runs until it is drained."""
    file = cluster.shell.directory / f"{Role.SUBMITTER}.token"
    return started(cluster, "orders", "-D", f"security.token-file={file}")


@pytest.fixture
def seen_by(browser: Browser, cluster: Cluster, tokens: dict[Role, str]) -> Iterator[Callable[[Role], Window]]:
    """Returns the window of a holder of a role. Fails when anything went wrong on a page."""
    with ExitStack() as windows:
        url = cluster.record.url
        yield lambda role: windows.enter_context(window_with_token(browser, url, tokens[role]))


def actions(opened: Window, path: str) -> set[str]:
    """Open a page once its lists are there, and return the buttons on it that change something."""
    opened.open(path)
    opened.sees(" · ", "header")
    shown = opened.page.get_by_role("button").all_inner_texts()
    return {text for text in shown if text.endswith("…") or text == "Verify"}


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
        words = shlex.split(copied)
        assert words[:4] == ["emberkeep", "savepoint", "restore", paths[0]]
        assert "spark.executor.instances=1" in words
        assert words[-2:] == [str(cluster.shell.work / "orders.py"), str(cluster.shell.directory / "orders")]
        assert copied in cluster.shell.done("savepoint", "show", paths[0]).out


def pages(cluster: Cluster, job: JobId) -> list[str]:
    log = cluster.ask(lambda client: client.logs.of_job(job)).logs[0]
    of_cluster = ["/", "/jobs", "/savepoints", "/taskmanagers", "/nodes", "/leadership", "/events", "/blobs"]
    of_nodes = [f"/taskmanagers/tm-{NODES[0]}", f"/nodes/{NODES[0]}", "/jobmanager/logs/jobmanager.log"]
    return [*of_cluster, *of_nodes, f"/jobs/{job}", f"/jobs/{job}/events", f"/jobs/{job}/logs/{log.id}"]


def test_a_viewer_sees_the_pages_and_acts_on_nothing(
    cluster: Cluster, orders: JobId, seen_by: Callable[[Role], Window]
) -> None:
    opened = seen_by(Role.VIEWER)
    for path in pages(cluster, orders):
        assert actions(opened, path) == set(), path
        assert opened.page.get_by_role("link", name="Audit log").count() == 0
    opened.sees("viewer · viewer", "header")
    status = opened.page.evaluate(
        "path => fetch(path, {method: 'PATCH'}).then(answer => answer.status)", f"/v1/jobs/{orders}"
    )
    assert status == 403
    assert cluster.job(orders).state is JobStatus.RUNNING
    opened.open("/audit")
    opened.sees("needs the role admin, and 'viewer' has the role viewer")
    opened.sees("emberkeep token create viewer --role admin")
    assert all("403" in problem for problem in opened.problems)
    opened.problems.clear()


def test_a_submitter_acts_on_own_jobs_and_not_on_nodes(
    cluster: Cluster, orders: JobId, seen_by: Callable[[Role], Window]
) -> None:
    opened = seen_by(Role.SUBMITTER)
    before = len(cluster.ask(lambda client: client.savepoints.all()).savepoints)
    opened.open(f"/jobs/{orders}")
    dialog = asked(opened, "Savepoint…", "orders.py")
    dialog.get_by_role("button", name="Make the savepoint").click()
    rows = opened.page.locator("#savepoints tbody tr")
    expect(rows).to_have_count(before + 1, timeout=60_000)
    rows.first.get_by_role("button", name="Verify").click()
    rows.first.get_by_text("intact: ").wait_for()
    for path in pages(cluster, orders):
        expected = {
            "/savepoints": {"Verify"},
            f"/jobs/{orders}": {"Savepoint…", "Stop with savepoint…", "Cancel job…", "Verify"},
        }
        assert actions(opened, path) == expected.get(path, set()), path


@pytest.mark.parametrize(("role", "audits"), [(Role.OPERATOR, False), (Role.ADMIN, True)])
def test_who_may_operate_acts_on_jobs_and_nodes_of_all(
    cluster: Cluster, orders: JobId, seen_by: Callable[[Role], Window], role: Role, audits: bool
) -> None:
    opened = seen_by(role)
    assert actions(opened, f"/jobs/{orders}") >= {"Savepoint…", "Stop with savepoint…", "Cancel job…"}
    for path in ("/nodes", f"/nodes/{NODES[0]}", f"/taskmanagers/tm-{NODES[0]}"):
        assert actions(opened, path) >= {"Block…"}, path
    links = opened.page.get_by_role("link", name="Audit log")
    assert links.count() == audits
    if audits:
        links.click()
        row = opened.page.locator("#entries tbody tr").filter(has_text="submitter").filter(has_text="web page").first
        expect(row).to_contain_text("done")


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


def test_a_job_is_cancelled_on_its_page(browser: Browser, cluster: Cluster, seen_by: Callable[[Role], Window]) -> None:
    job_id = started(cluster, "visits")
    assert actions(seen_by(Role.SUBMITTER), f"/jobs/{job_id}") == set(), "it is not the submitter's job"
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
