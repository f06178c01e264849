"""The console with 1,000 jobs, of which each has a savepoint, 200 nodes and a log of 100 MB."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Route

from emberkeep.base.ids import JobId
from tests.integration.console.browser import Window, chromium, window_with_token
from tests.integration.console.large_site import large_site
from tests.unit.rest.server import TOKEN

pytestmark = [pytest.mark.integration, pytest.mark.long]

JOBS, NODES, LOG_BYTES = 1000, 200, 100_000_000


@pytest.fixture(scope="module")
def opened() -> Iterator[tuple[Window, JobId]]:
    with (
        large_site(JOBS, NODES, LOG_BYTES) as (site, job),
        chromium() as browser,
        window_with_token(browser, site.base, TOKEN) as window,
    ):
        yield window, job


def test_pages_with_many_entries_have_nothing_wrong(opened: tuple[Window, JobId]) -> None:
    window, _ = opened
    found = window.faults_of_pages(
        {
            "/": "600",
            "/jobs": "1000",
            "/jobs?page=10": "orders",
            "/savepoints": "1\u202f000",
            "/savepoints?page=10": "orders",
            "/nodes": "Page 1 of 2",
            "/nodes?page=2": "node-99",
            "/taskmanagers": "Page 1 of 2",
            "/taskmanagers?page=2&state=available": "node-99",
        }
    )
    assert not found, "\n".join(found)


@pytest.mark.parametrize("list_of", ["jobs", "savepoints"])
def test_every_job_and_savepoint_is_on_one_of_the_pages(opened: tuple[Window, JobId], list_of: str) -> None:
    window, _ = opened
    window.open(f"/{list_of}")
    seen: list[str] = []
    while True:
        seen += window.page.locator(f"#{list_of} a[href^='/jobs/']").all_inner_texts()
        older = window.page.get_by_role("link", name="Older")
        if older.count() == 0:
            break
        older.click()
        window.page.wait_for_load_state("load")
    assert len({text for text in seen if text.startswith("orders")}) == JOBS


def test_a_command_stays_marked_as_copied_when_the_table_is_replaced(opened: tuple[Window, JobId]) -> None:
    window, _ = opened
    window.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    window.open("/savepoints")
    first = window.page.locator("#savepoints tbody tr").first
    first.get_by_role("button", name="Copy").click()
    first.get_by_text("Copied").wait_for()
    window.page.route("**/savepoints", fetched_whole)
    window.page.evaluate("document.getElementById('savepoints').isOld = true")
    window.page.evaluate("import('/static/live.js').then((live) => live.refresh())")
    window.page.wait_for_function("() => !document.getElementById('savepoints').isOld")
    window.page.unroute("**/savepoints")
    assert first.locator("[data-copies]").inner_text() == "Copied"


def fetched_whole(route: Route) -> None:
    """The page, whether or not it has changed."""
    route.continue_(headers={name: text for name, text in route.request.headers.items() if name != "if-none-match"})


def test_a_record_near_the_start_of_a_large_log_is_found(opened: tuple[Window, JobId]) -> None:
    window, job = opened
    window.open(f"/jobs/{job}/logs")
    process = window.page.get_by_label("Process")
    process.locator("option", has_text="driver").wait_for(state="attached")
    process.select_option(label="driver")
    window.sees("of 95.4 MiB")
    window.page.get_by_label("Search").fill("needle")
    window.page.locator("mark").filter(has_text="needle").wait_for()
    window.page.get_by_label("Search").fill("")
    window.page.get_by_role("button", name="Older records").click()
    window.page.wait_for_function("document.querySelectorAll('.record').length > 300")
    with window.page.expect_download() as download:
        window.page.get_by_role("link", name="Download").click()
    assert abs(download.value.path().stat().st_size - LOG_BYTES) < 1000


def test_the_slots_of_the_last_day_are_plotted(opened: tuple[Window, JobId]) -> None:
    window, _ = opened
    window.open("/")
    window.page.locator("#slots-plots canvas").wait_for()
    window.sees("of 400 slots taken · at most 299 of 400", "#slots-newest")
    window.page.locator("#slots-plots").focus()
    window.page.keyboard.press("ArrowLeft")
    window.page.locator("#slots-spoken").filter(has_text=":").wait_for(state="attached")
    window.page.locator("#slots-tools").get_by_title("Show the newest hour").click()
    window.page.wait_for_function("location.search.includes('plot')")
    window.page.locator("#slots summary").click()
    assert window.page.locator("#slots-table tr").count() == 60
    assert window.accessibility_problems() == []
    assert window.problems == []
