"""Filters, logs and dialogs in the browser, and the way in and out of the console."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import datetime

import pytest
from playwright.sync_api import Browser, expect

from emberkeep.base.errors import RetryLater
from tests.integration.conditions import until
from tests.integration.console.browser import PHONE, Window, window_with_token
from tests.integration.console.large_site import BATCH, BUSY, IDLE, JOINED, LOG_ID, NEEDLE, large_site
from tests.integration.console.plots import DASHED, move_one_cursor, see_marks_in_each_plot
from tests.integration.console.timeline import is_at, middle
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
    page.get_by_label("From (UTC)").fill("2020-01-31T18:00")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**/audit?*since=2020-01-31T18%3A00*outcome=done*")
    expect(page.get_by_label("From (UTC)")).to_have_value("2020-01-31T18:00")
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
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    merged = download.value.path().read_text(encoding="utf-8")
    assert "executor 1   | 26/11/26 10:00:00 INFO Log: this is executor-stderr.1" in merged
    assert "driver       | " in merged
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


def test_an_address_of_what_the_job_does_not_have_shows_nothing_else_under_its_name(opened: Window) -> None:
    page = opened.page
    opened.open(f"/jobs/{BATCH}/logs?attempt=9")
    opened.sees("has no attempt 9")
    opened.problems.clear()  # the status of the page
    opened.open(f"/jobs/{BATCH}/logs/{LOG_ID.replace('driver', 'nothing')}")
    opened.sees("The log cannot be read", "#log-state")
    opened.problems.clear()
    opened.open(f"/jobs/{BUSY}?query=9c4e")
    opened.sees("The address names the query 9c4e, of which the history has no records.", "#stream-problem")
    drawn = page.locator("#stream-query option:checked").text_content()
    opened.sees(f"The plots show the query “{drawn}” instead.", "#stream-problem")
    assert not opened.accessibility_problems()
    opened.open(f"/jobs/{BUSY}")
    page.locator("#plots canvas").first.wait_for()
    expect(page.locator("#stream-problem")).to_be_hidden()


def test_a_list_of_logs_that_cannot_be_made_is_made_again(opened: Window) -> None:
    opened.page.route(f"**/jobs/{BATCH}/logs", lambda request: request.abort(), times=1)
    opened.open(f"/jobs/{BATCH}")
    opened.sees("The logs cannot be listed", "[data-logs]")
    opened.sees("executor 1 stderr, attempt 2", "[data-logs]")
    opened.problems.clear()  # the request that was cut off


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


def test_one_cursor_moves_over_all_plots_and_each_has_the_marks(opened: Window) -> None:
    page = opened.page
    page.add_init_script(DASHED)
    opened.open(f"/jobs/{BUSY}")
    see_marks_in_each_plot(page)
    opened.sees("alarm raised or cleared", "#plot-legend")
    opened.sees("executors ended", "#plot-legend")
    move_one_cursor(page)


def test_the_zoom_of_a_nodes_plots_is_in_the_address(opened: Window) -> None:
    page = opened.page
    opened.open("/nodes/node-6?plot-from=1794999600000&plot-to=1794999900000")
    page.locator("#usage-plots canvas").nth(3).wait_for()
    assert "plot-from=1794999600000" in page.url
    plot = page.locator("#usage-plots .u-over").first
    plot.scroll_into_view_if_needed()
    plot.dblclick()
    expect(page).not_to_have_url(re.compile("plot-from="))


def test_a_day_of_a_node_is_plotted_and_the_last_hour_is_one_click_away(opened: Window) -> None:
    page = opened.page
    opened.open("/nodes/node-6")
    page.locator("#usage-plots canvas").nth(3).wait_for()
    tools = page.get_by_role("group", name="Part of the time that the plots show")
    spans = [hours_shown(tools.locator("[data-span]").inner_text())]
    tools.get_by_title("Show the newest hour").click()
    expect(page).to_have_url(re.compile("plot-from="))
    spans.append(hours_shown(tools.locator("[data-span]").inner_text()))
    assert [round(span) for span in spans] == [24, 1]
    expect(page.locator("#usage-plots canvas[role=img], #usage-plots [role=img]").first).to_have_attribute(
        "aria-label", re.compile("CPU, 63[67] samples")
    )
    assert not opened.accessibility_problems()


def hours_shown(text: str) -> float:
    """Return how long the part of the time is that ``text`` names."""
    begin, end = (datetime.fromisoformat(one) for one in text.removesuffix(" UTC").split(" – "))
    return (end - begin).total_seconds() / 3600


def test_plots_are_zoomed_with_buttons_and_keys(opened: Window) -> None:
    """On a phone there is no other way, and without a pointer neither."""
    page = opened.page
    page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    opened.open(f"/jobs/{IDLE}")
    tools = page.get_by_role("group", name="Part of the time that the plots show")
    span = tools.locator("[data-span]")
    whole = span.inner_text()
    tools.get_by_title("Zoom in (+)").click()
    expect(page).to_have_url(re.compile("plot-from="))
    newest_half, end = span.inner_text(), whole.partition(" – ")[2]
    assert newest_half != whole
    assert newest_half.endswith(end)
    page.locator("#plots").focus()
    page.keyboard.press("+")
    page.locator("#plot-spoken").filter(has_text="UTC").wait_for(state="attached")
    assert span.inner_text() != newest_half
    tools.get_by_title("Earlier").click()
    assert not span.inner_text().endswith(end)
    page.locator("#plots").focus()
    page.keyboard.press("ArrowLeft")  # to the newest batch, which is not shown
    expect(span).to_have_text(re.compile(re.escape(end) + "$"))
    page.keyboard.press("0")
    expect(page).not_to_have_url(re.compile("plot-from="))
    expect(span).to_have_text(whole)
    assert not opened.is_too_wide()
    assert not opened.accessibility_problems()


def test_the_work_and_cost_of_a_job_are_plotted_over_its_whole_time(opened: Window) -> None:
    page = opened.page
    opened.open(f"/jobs/{BATCH}")
    page.locator("[data-plot=executors] canvas").first.wait_for()
    expect(page.locator("#course-plots figure")).to_have_count(6)
    caption = page.locator("[data-plot=spill] figcaption")
    expect(caption).to_contain_text("to disks 1.4 KiB")
    opened.sees("11 800 tasks done since", "#course-newest")
    page.get_by_text("The samples as a table").click()
    expect(page.locator("#course-table tr")).to_have_count(60)
    page.get_by_role("group", name="Part of the job’s time that the plots show").get_by_title("Zoom in (+)").click()
    expect(page).to_have_url(re.compile("course-from="))
    assert not opened.is_too_wide()
    assert not opened.accessibility_problems()


def test_late_rows_and_the_state_are_plotted_where_there_are_some(opened: Window) -> None:
    page = opened.page
    opened.open(f"/jobs/{JOINED}")
    page.locator("[data-plot=late] canvas").first.wait_for()
    expect(page.locator("[data-plot=rows] figcaption")).to_contain_text(re.compile(r"read [\d\u202f]+"))
    expect(page.locator("[data-plot=commit] figcaption")).to_contain_text(re.compile(r"took \d+ ms"))
    opened.open(f"/jobs/{BUSY}")
    page.locator("[data-plot=rate] canvas").first.wait_for()
    expect(page.locator("[data-plot=late]")).to_have_count(0)


def test_a_page_about_a_job_manager_that_is_not_ready_heals(opened: Window, site: Site) -> None:
    site.gateway.refusal = RetryLater("the JobManager reads its jobs")
    try:
        opened.open("/jobs")
        opened.sees("the JobManager reads its jobs")
        opened.sees("HTTP status 503", "#notice")
        assert opened.page.title().startswith("No connection · ")
    finally:
        site.gateway.refusal = None
    opened.sees("orders 0001", "#jobs")
    assert opened.page.title().endswith("Jobs · Emberkeep")
    assert all("503" in problem for problem in opened.problems)
    opened.problems.clear()


def test_a_page_that_nobody_touches_asks_less_often_until_something_changes(opened: Window, site: Site) -> None:
    page, asked = opened.page, list[float]()
    opened.open("/jobs")
    page.mouse.move(100, 100)
    page.on("request", lambda request: asked.append(time.monotonic()) if request.url.endswith("/jobs") else None)

    def asks_twice(within: float) -> None:
        began = time.monotonic()
        while sum(at > began for at in asked) < 2:
            assert time.monotonic() - began < within, "it does not ask as often as at first"
            page.wait_for_timeout(100)

    def is_calm() -> bool:
        page.wait_for_timeout(1000)
        return len(asked) > 2 and asked[-1] - asked[-2] > 6

    until(is_calm, "the pauses grow")
    page.mouse.move(200, 100)
    asks_twice(within=10)
    until(is_calm, "the pauses grow again")
    site.gateway.change(IDLE, name="orders of today")
    opened.sees("orders of today", "#jobs")
    asks_twice(within=13)


def test_an_action_that_does_not_reach_the_job_manager_says_so(opened: Window) -> None:
    page = opened.page
    opened.open(f"/jobs/{BUSY}")
    page.get_by_role("button", name="Cancel job…").click()
    page.context.set_offline(True)
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Cancel the job").click()
    expect(dialog.locator("[data-error]")).to_have_text("the JobManager cannot be reached")
    page.context.set_offline(False)
    page.locator("#notice").wait_for(state="hidden")
    opened.problems.clear()  # the failed requests


@pytest.mark.parametrize("path", ["/", "/audit", f"/jobs/{BATCH}/logs/tm-127.0.0.2-1~{LOG_ID}"])
def test_a_lost_connection_is_in_the_title_and_the_icon_and_heals(opened: Window, path: str) -> None:
    page = opened.page
    opened.open(path)
    if LOG_ID in path:
        opened.sees("Log of the driver, attempt 2", "#log-name")
    title, icon = page.title(), page.locator("#icon").get_attribute("href")
    page.context.set_offline(True)
    expect(page).to_have_title(re.compile("^No connection · "), timeout=60_000)  # a log waits 20 s for more
    opened.sees("may be out of date", "#notice")
    if LOG_ID not in path:
        opened.sees("the JobManager cannot be reached", "#notice")
    expect(page.locator("#icon")).to_have_attribute("href", re.compile("^data:image/svg"))
    page.context.set_offline(False)
    page.locator("#notice").wait_for(state="hidden")
    assert (page.title(), page.locator("#icon").get_attribute("href")) == (title, icon)
    if LOG_ID in path:
        expect(page.locator("#log-state")).not_to_contain_text("cannot be read")
    opened.problems.clear()  # the failed requests


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
    expect(page).to_have_url(re.compile("plot-from="))
    page.mouse.dblclick(box["x"] + box["width"] / 2, box["y"] + 40)
    expect(page).not_to_have_url(re.compile("plot-from="))


def test_a_timeline_that_is_out_of_date_is_zoomed_around_the_pointer(opened: Window) -> None:
    page = opened.page
    page.clock.install()
    opened.open(f"/jobs/{BUSY}")
    marks = page.locator("#timeline-plot path.mark")
    marks.first.wait_for()
    drawn = marks.filter(has_text=marks.nth(marks.count() // 2).text_content() or "")
    drawn.scroll_into_view_if_needed()
    page.context.set_offline(True)
    page.clock.fast_forward("10:00:00")
    left, top = middle(drawn)
    page.mouse.move(left, top)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -100)
    expect(page).to_have_url(re.compile("[?&]from=.*&to="))
    assert is_at(drawn, left), "what is under the pointer stays there"
    page.context.set_offline(False)
    opened.problems.clear()  # the failed requests


def test_a_stream_with_two_sources_has_a_line_for_each(opened: Window) -> None:
    page = opened.page
    opened.open(f"/jobs/{JOINED}")
    plot = page.locator("[data-plot=source-backlog]")
    plot.locator("canvas").first.wait_for()
    expect(plot.locator(".plot-entry")).to_have_text([re.compile(r"^KafkaV2.* \d+"), re.compile(r"^FileStream.* –$")])
    expect(page.locator("[data-plot=source-rate] .plot-entry")).to_have_count(2)
    expect(page.locator("[data-plot=backlog]")).to_have_count(0)  # it is unknown of the files
    for unit, text in (("files", r"\d+"), ("bytes", r"\d+(\.\d)? MiB")):
        counted = page.locator(f"[data-plot=backlog-{unit}]")
        expect(counted.locator(".plot-entry")).to_have_text([re.compile(rf"^FileStream.* {text}$")])
    expect(page.locator("[data-plot=backlog-time]")).to_have_count(0)
    opened.sees("the source with the largest backlog is KafkaV2[Subscribe[clicks]]", "#stream-newest")
    page.locator("#streams summary").click()
    expect(page.locator("#stream-table td[data-label=Backlog]").first).to_have_text(
        re.compile(r"^– \([\d\u202f]+ \+ \d+ files, \d+(\.\d)? MiB\)$")
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
