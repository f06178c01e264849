"""Filters, logs and dialogs in the browser, and the way in and out of the console."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.integration.console.browser import PHONE, Window, window_with_token
from tests.integration.console.large_site import BATCH, BUSY, JOINED, NEEDLE, large_site
from tests.unit.rest.server import TOKEN, Site

pytestmark = [pytest.mark.integration, pytest.mark.long]


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with large_site(20, 5, 500_000) as (site, _):
        yield site


@pytest.fixture
def opened(browser: Browser, site: Site) -> Iterator[Window]:
    with window_with_token(browser, site.base, TOKEN) as window:
        yield window


def test_events_are_narrowed_by_types_text_and_time(opened: Window) -> None:
    page = opened.page
    opened.open(f"/jobs/{BATCH}/events")
    page.get_by_role("link", name="savepoint", exact=True).click()
    page.get_by_role("link", name="exception", exact=True).click()
    rows = page.locator("#events tbody tr")
    opened.sees("task 3 of stage 20", "#events")
    assert set(page.locator("#events tbody .badge").all_inner_texts()) == {"savepoint", "exception"}
    page.get_by_label("Search").fill("(293)")
    page.get_by_role("button", name="Search").click()
    expect(rows).to_have_count(1)
    assert "type=savepoint&type=exception" in page.url
    page.get_by_label("From (UTC)").fill("2026-11-18T11:05")
    page.get_by_role("button", name="Search").click()
    opened.sees("No such events.")
    assert not opened.accessibility_problems()


def test_jobs_nodes_and_audit_are_narrowed(opened: Window) -> None:
    page = opened.page
    opened.open("/jobs")
    page.get_by_role("link", name="FINISHED").click()
    page.get_by_label("Search").fill("orders 0007")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("#jobs tbody tr")).to_have_count(1)
    opened.open("/nodes")
    page.get_by_label("Search").fill("node-3")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("#nodes tbody tr")).to_have_count(1)
    opened.open("/audit")
    page.get_by_label("Outcome").select_option("done")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**/audit?*outcome=done*")
    opened.open("/blobs")
    opened.sees("By state")


def test_a_full_disk_is_said_with_its_time(opened: Window) -> None:
    said = "The disk of node node-6 is nearly full since 2026-11-18 11:05:40: 2 GiB are free"
    opened.open("/")
    opened.sees(said[1:], "#health")
    opened.open("/nodes/node-6")
    opened.sees(said, "#facts")
    assert not opened.accessibility_problems()
    opened.open("/taskmanagers/tm-127.0.0.6-1")
    opened.sees(said, "#facts")


def test_a_log_is_narrowed_by_level_followed_and_switched(opened: Window) -> None:
    page = opened.page
    opened.open(f"/jobs/{BATCH}/logs")
    process = page.get_by_label("Process")
    process.locator("option", has_text="executor 1").wait_for(state="attached")
    process.select_option(label="executor 1")
    opened.sees("this is executor-stderr.1")
    page.locator("#log-search [name=attempt]").select_option("1")
    opened.sees("this is driver-stderr.0")
    page.locator("#log-search [name=attempt]").select_option("2")
    opened.sees("Log of the driver, attempt 2")
    page.get_by_label("Level").select_option("error")
    opened.sees(NEEDLE.partition(" ERROR ")[2].strip())
    expect(page.locator(".record")).to_have_count(1)
    page.get_by_label("Follow").uncheck()
    assert "level=error" in page.url
    assert "follow=no" in page.url


def test_a_dialog_is_used_with_the_keyboard(opened: Window) -> None:
    page = opened.page
    opened.open(f"/jobs/{BUSY}")
    button = page.get_by_role("button", name="Cancel job…")
    button.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    dialog.wait_for()
    assert page.evaluate("document.querySelector('dialog[open]').contains(document.activeElement)")
    assert not opened.accessibility_problems()
    page.keyboard.press("Escape")
    dialog.wait_for(state="hidden")
    expect(button).to_be_focused()


def test_the_zoom_and_the_query_are_in_the_address(opened: Window) -> None:
    page = opened.page
    opened.open(f"/jobs/{BUSY}")
    plot = page.locator("#plots .u-over").first
    plot.wait_for()
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 4, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 40, steps=5)
    page.mouse.up()
    page.wait_for_function("location.search.includes('plot-from=')")
    page.mouse.dblclick(box["x"] + box["width"] / 2, box["y"] + 40)
    page.wait_for_function("!location.search.includes('plot-from=')")


def test_a_stream_with_two_sources_has_a_line_for_each(opened: Window) -> None:
    page = opened.page
    opened.open(f"/jobs/{JOINED}")
    plot = page.locator("[data-plot=source-backlog]")
    plot.locator("canvas").first.wait_for()
    expect(plot.locator(".plot-entry")).to_have_text([re.compile(r"^KafkaV2.* \d+"), re.compile(r"^FileStream.* –$")])
    expect(page.locator("[data-plot=source-rate] .plot-entry")).to_have_count(2)
    expect(page.locator("[data-plot=backlog]")).to_have_count(0)  # it is unknown of the files
    opened.sees("the source with the largest backlog is KafkaV2[Subscribe[clicks]]", "#stream-newest")
    page.locator("#streams summary").click()
    expect(page.locator("#stream-table td[data-label=Backlog]").first).to_have_text(
        re.compile(r"^– \([\d\u202f]+ \+ –\)$")
    )
    assert not opened.accessibility_problems()
    page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    opened.open(f"/jobs/{JOINED}")
    plot.locator("canvas").first.wait_for()
    assert not opened.is_too_wide()
    opened.open(f"/jobs/{BUSY}")
    page.locator("[data-plot=backlog] canvas").first.wait_for()
    expect(plot).to_have_count(0)


def test_the_ways_in_and_out_are_accessible(opened: Window) -> None:
    opened.open("/jobs?state=NONSENSE")
    opened.sees("is not the state of a job")
    assert not opened.accessibility_problems()
    assert all("400" in problem for problem in opened.problems)
    opened.problems.clear()
    opened.page.get_by_role("button", name="Log out").click()
    opened.page.get_by_label("Token").wait_for()
    assert not opened.accessibility_problems()
    opened.page.goto(f"{opened.url}/jobs")
    opened.page.get_by_label("Token").wait_for()
    opened.problems.clear()
