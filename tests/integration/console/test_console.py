"""The console as a person uses it: a real browser on a real cluster, whose parts are killed while it is open."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, expect

from emberkeep.base.ids import JobId
from tests.integration.clusters import Cluster
from tests.integration.console.browser import DESKTOP, PHONE, window
from tests.integration.console.conftest import NODES
from tests.integration.console.timeline import mark

pytestmark = [pytest.mark.integration, pytest.mark.long]


@pytest.mark.parametrize(
    ("size", "theme"), [(DESKTOP, "light"), (DESKTOP, "dark"), (PHONE, "light")], ids=["light", "dark", "phone"]
)
def test_no_page_has_anything_wrong(
    browser: Browser, cluster: Cluster, job_id: JobId, size: tuple[int, int], theme: str
) -> None:
    log = next(
        log for log in cluster.ask(lambda client: client.logs.of_job(job_id)).logs if log.kind == "driver-stderr"
    )
    paths = {
        "/": "Task managers",
        "/jobs": "stream.py",
        "/jobs?state=FAILED": "Jobs",
        f"/jobs/{job_id}": "Streaming queries",
        f"/jobs/{job_id}/events": "Attempt 1",
        f"/jobs/{job_id}/logs/{log.id}": "driver",
        f"/jobs/{job_id}/logs": "Process",
        "/savepoints": "Savepoints",
        "/taskmanagers": NODES[0],
        f"/taskmanagers/tm-{NODES[0]}": NODES[0],
        "/nodes": NODES[1],
        f"/nodes/{NODES[1]}": "History",
        "/events": "leader",
        "/leadership": "LEADS",
        "/blobs": "referenced",
        f"/blobs?job={job_id}": "stream.py",
        "/audit": "Audit",
    }
    with window(browser, cluster, size, "dark" if theme == "dark" else "light") as opened:
        found = opened.faults_of_pages(paths)
    assert not found, "\n".join(found)


def test_what_is_not_there_is_said(browser: Browser, cluster: Cluster) -> None:
    with window(browser, cluster) as opened:
        opened.open(f"/jobs/{'0' * 32}")
        opened.sees("0" * 32)
        assert len(opened.problems) == 2, "the status, in the answer and in the console"
        assert all("404" in problem for problem in opened.problems)
        opened.problems.clear()


def test_a_stream_is_plotted_and_read_with_the_keyboard(browser: Browser, cluster: Cluster, job_id: JobId) -> None:
    with window(browser, cluster) as opened:
        opened.open(f"/jobs/{job_id}")
        page = opened.page
        page.locator("#plots canvas").nth(1).wait_for()  # the rate, and the duration by phase
        page.locator("#plots").focus()
        page.keyboard.press("ArrowLeft")
        page.locator("#plot-spoken").filter(has_text=":").wait_for(state="attached")  # the time at the cursor
        timeline = page.locator("#timeline-plot [data-area]")
        timeline.focus()
        whole = page.locator("#timeline-plot [data-span]").inner_text()
        assert not page.locator("#timeline-plot [role=status]").inner_text(), "nothing is said aloud while it grows"
        page.keyboard.press("+")
        page.wait_for_function(
            "text => document.querySelector('#timeline-plot [data-span]').innerText !== text", arg=whole
        )
        assert "?" in page.url, "the part that is shown is in the address"
        page.locator("#timeline-plot [role=status]").filter(has_text="UTC").wait_for(state="attached")
        assert page.title().startswith("RUNNING · stream.py")
        assert page.locator("#icon").get_attribute("href") == "/static/icon-running.svg"


def test_the_usage_of_a_node_is_plotted_and_read_with_the_keyboard(
    browser: Browser, cluster: Cluster, job_id: JobId
) -> None:
    cluster.wait_for_executors(job_id)
    with window(browser, cluster, PHONE, "dark") as opened:
        for path in (f"/taskmanagers/tm-{NODES[0]}", f"/nodes/{NODES[1]}"):
            opened.open(path)
            page = opened.page
            page.locator("#usage-plots canvas").nth(3).wait_for()  # processors, memory, disk, slots
            opened.sees("known since", "#usage-newest")
            page.locator("#usage-plots").focus()
            page.keyboard.press("ArrowLeft")
            page.locator("#usage-spoken").filter(has_text=":").wait_for(state="attached")  # the time at the cursor
            page.locator("#usage summary").click()
            page.locator("#usage-table tr").first.wait_for()
            assert opened.accessibility_problems() == []
            assert not opened.is_too_wide()


def test_the_spark_ui_is_one_click_away_and_its_tabs_work(browser: Browser, cluster: Cluster, job_id: JobId) -> None:
    """The pages of Spark fill their tables with scripts, which ask below the link."""
    executors = cluster.wait_for_executors(job_id)
    with window(browser, cluster) as opened:
        opened.open(f"/jobs/{job_id}")
        with opened.page.context.expect_page() as popup:
            opened.page.get_by_role("link", name="Spark UI", exact=True).click()
        ui = popup.value
        wrong: list[str] = []
        ui.on("pageerror", lambda error: wrong.append(error.message))
        ui.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        for tab, heading in (
            ("Stages", "Stages for All Jobs"),
            ("Structured Streaming", "Streaming Query"),
            ("Executors", "Executors"),
        ):
            ui.get_by_role("link", name=tab, exact=True).first.click()
            ui.get_by_role("heading", name=heading).first.wait_for()
        ui.locator("#active-executors-table tbody tr").nth(len(executors)).wait_for()  # and the driver
        ui.get_by_role("link", name="SQL / DataFrame", exact=True).first.click()
        ui.locator("a[href*='execution/?id=']").first.click()
        ui.locator("#plan-viz-graph svg g.node").first.wait_for()  # drawn from the plan
        ui.get_by_role("link", name="Stages", exact=True).first.click()
        ui.locator("a[href*='stage/?id=']").first.click()
        ui.get_by_text("DAG Visualization").click()
        ui.locator("#dag-viz-graph svg g.node").first.wait_for()
        assert not wrong, "\n".join(wrong)


def test_the_map_shows_who_has_which_slot(browser: Browser, cluster: Cluster, job_id: JobId) -> None:
    (executor,) = cluster.wait_for_executors(job_id)
    node = executor.taskmanager_id.removeprefix("tm-")
    with window(browser, cluster) as opened:
        opened.open("/")
        capacity = opened.page.locator("#capacity")
        expect(capacity.get_by_role("heading")).to_contain_text("1 of 2 free")
        taken = capacity.locator("li.node").filter(has_text=node)
        expect(taken).to_contain_text("1 of 1 slots")
        expect(capacity.locator("li.node").filter(has_text="1 driver")).to_have_count(1)
        expect(capacity.get_by_role("img", name="1 free")).to_have_count(1)
        expect(capacity.get_by_label("Jobs in the map")).to_contain_text("stream.py")
        taken.get_by_role("link", name=f"stream.py {job_id[:8]}: 1 slot").click()
        opened.page.wait_for_url(f"**/jobs/{job_id}")


def test_the_overview_shows_the_trend_of_a_running_job(browser: Browser, cluster: Cluster, job_id: JobId) -> None:
    with window(browser, cluster) as opened:
        opened.open("/")
        trend = opened.page.locator("#running tr").filter(has_text=job_id[:8]).locator("[data-label='Last 10 min']")
        said = re.compile(r"^rows per second in the last .*: newest \d+, lowest \d+, highest [1-9]\d*$")
        trend.get_by_role("img", name=said).wait_for()
        assert re.fullmatch(r"\d+ rows/s", trend.locator(".hint").inner_text())
        line = trend.locator("polyline").get_attribute("points") or ""
        assert len(line.split()) > 1
        expect(trend.locator("polyline")).not_to_have_attribute("points", line, timeout=60_000)  # it is followed


def test_a_node_is_evacuated_on_its_page(browser: Browser, cluster: Cluster, job_id: JobId) -> None:
    """Its driver's. The open overview follows."""
    cluster.wait_for_executors(job_id)
    driver = cluster.job(job_id).emberkeep.driver
    assert driver is not None
    node = driver.taskmanager_id.removeprefix("tm-")
    with window(browser, cluster) as opened:
        overview = opened.page.context.new_page()
        overview.goto(f"{opened.url}/")
        slots = overview.locator("#capacity li.node").filter(has_text=node)
        expect(slots).to_contain_text("1 driver")
        expect(slots).not_to_contain_text("EVACUATED")
        opened.page.bring_to_front()
        opened.open("/nodes")
        row = opened.page.locator("#nodes tr").filter(has_text=node)
        row.get_by_role("button", name="Block…").click()
        dialog = opened.page.get_by_role("dialog")
        dialog.get_by_label("Then").select_option("MARK_BLOCKED_AND_EVACUATE_TASKS")
        dialog.get_by_label("Cause").fill("a fan is loud")
        dialog.get_by_role("button", name="Evacuate", exact=True).click()
        row.get_by_text("a fan is loud").wait_for()
        row.get_by_text("nothing runs here any longer").wait_for(timeout=120_000)
        overview.bring_to_front()
        expect(slots).to_contain_text("EVACUATED")
        expect(slots).to_contain_text("nothing runs here any longer")
        moved = slots.get_by_role("progressbar", name="Executors and drivers that have moved")
        assert moved.evaluate("bar => bar.value === bar.max && bar.max > 0")
        expect(slots).not_to_contain_text("1 driver")
        other = overview.locator("#capacity li.node").filter(has_not_text=node)
        expect(other).to_contain_text("1 driver")
        opened.page.bring_to_front()
        row.get_by_role("button", name="Unblock…").click()
        opened.page.get_by_role("dialog").get_by_role("button", name="Unblock", exact=True).click()
        row.get_by_role("button", name="Block…", exact=True).wait_for()
        expect(slots).not_to_contain_text("EVACUATED")
        opened.open(f"/jobs/{job_id}")
        mark(opened.page, "a move to another node").wait_for()
        opened.page.locator("#recoveries [data-label=After]").filter(has_text=re.compile("^move")).wait_for()


def test_a_lost_connection_is_shown_and_heals(browser: Browser, cluster: Cluster) -> None:
    pid = cluster.daemon("jobmanager").identity.pid
    with window(browser, cluster) as opened:
        opened.open("/")
        opened.page.context.set_offline(True)
        opened.sees("may be out of date", "#notice")
        opened.page.context.set_offline(False)
        opened.page.locator("#notice").wait_for(state="hidden")
        opened.problems.clear()  # the failed requests
    assert cluster.daemon("jobmanager").identity.pid == pid
