"""The life of one job in a browser: its driver is killed twice, an alarm is raised, and it is stopped and restored.

Each test continues where the one before it has ended.
"""

from __future__ import annotations

import os
import re
import shlex
import signal

import pytest
from playwright.sync_api import Browser, expect

from emberkeep.base.ids import JobId
from tests.integration.clusters import Cluster
from tests.integration.conditions import until
from tests.integration.console.browser import PHONE, window
from tests.integration.console.conftest import NODES
from tests.integration.console.logs import downloaded, is_by_time, records
from tests.integration.console.plots import DASHED, move_one_cursor, plotted, see_marks_in_each_plot
from tests.integration.console.timeline import bands, drag, is_at, lanes, mark, marks, zoom_with_the_wheel

pytestmark = [pytest.mark.integration, pytest.mark.long]


def test_an_open_page_follows_its_job(browser: Browser, cluster: Cluster, job_id: JobId) -> None:
    """A savepoint is made with the page's button; then the driver is killed, and comes back."""
    attempt = cluster.job(job_id).emberkeep.attempt
    with window(browser, cluster) as opened:
        opened.open(f"/jobs/{job_id}")
        opened.page.get_by_role("button", name="Savepoint…", exact=True).click()
        opened.page.get_by_role("button", name="Make the savepoint").click()
        opened.sees("emberkeep savepoint restore", "#savepoints")
        began, before = plotted(opened.page)
        logs = opened.page.context.new_page()
        logs.goto(f"{opened.url}/jobs/{job_id}/logs")
        logs.locator(".record").filter(has_text="is stored").first.wait_for()
        opened.page.bring_to_front()
        os.kill(cluster.wait_for_driver(job_id, attempt), signal.SIGKILL)
        opened.page.locator("#attempts tbody tr").nth(attempt).wait_for()
        opened.sees(f"driver stderr, attempt {attempt + 1}", "[data-logs]")
        cluster.wait_for_driver(job_id, attempt + 1)
        opened.sees("RUNNING", "#headline")
        until(lambda: plotted(opened.page)[1] > before, "the plots grow")
        assert plotted(opened.page)[0] == began, "they begin with batches of the killed driver"
        recoveries = opened.page.locator("#recoveries tbody tr")
        expect(recoveries).to_have_count(attempt + 1)
        expect(recoveries.first.locator("[data-label=After]")).to_contain_text("loss of the driver")
        expect(recoveries.first.locator("[data-label=Took]")).to_contain_text(re.compile(r"\d"), timeout=60_000)
        recoveries.first.get_by_role("img", name="until the script began").wait_for()
        expect(recoveries.last.locator("[data-label=After]")).to_contain_text("submission")
        logs.bring_to_front()
        expect(logs.locator("#log-state")).to_contain_text("nothing more follows", timeout=60_000)
        offered = logs.locator("#log-search [name=attempt] option")
        expect(offered).to_have_text([str(number) for number in range(attempt + 1, 0, -1)], timeout=60_000)


def test_an_alarm_is_on_every_page_of_its_job(browser: Browser, cluster: Cluster, job_id: JobId) -> None:
    attempt = cluster.job(job_id).emberkeep.attempt
    assert attempt > 1, "the test before has killed the driver once"
    with window(browser, cluster) as opened:
        opened.open(f"/jobs/{job_id}")
        os.kill(cluster.wait_for_driver(job_id, attempt), signal.SIGKILL)
        why = "the driver was restarted more than once"
        opened.sees(why, "#job-health")
        expect(opened.page).to_have_title(re.compile("^ALARM · stream.py"))
        assert opened.tab() == ("ALARM", "icon-failed.svg"), "without a reload"
        cluster.wait_for_driver(job_id, attempt + 1)
        opened.sees("alarm-raised", "#job-events")
        assert opened.accessibility_problems() == []
        opened.page.add_init_script(DASHED)
        opened.open(f"/jobs/{job_id}")
        see_marks_in_each_plot(opened.page)
        for legend in ("savepoint", "attempt started", "attempt ended", "alarm raised or cleared"):
            opened.sees(legend, "#plot-legend")
        move_one_cursor(opened.page)
        opened.open("/")
        opened.sees("has an alarm", "#health")
        opened.sees(why, "#health")
        opened.open("/jobs")
        opened.sees(f"Alarm: {why}", "#jobs")


def test_each_tab_says_that_a_job_is_in_trouble(browser: Browser, cluster: Cluster, job_id: JobId) -> None:
    logs = cluster.ask(lambda client: client.logs.of_job(job_id)).logs
    with window(browser, cluster) as opened:
        for page in ("", "/events", "/logs", f"/logs/{logs[0].id}"):
            opened.open(f"/jobs/{job_id}{page}")
            assert opened.tab() == ("ALARM", "icon-failed.svg"), page
        lists = ("/", "/jobs", "/savepoints", "/taskmanagers", "/nodes", "/events", "/blobs", "/audit")
        for page in (*lists, "/jobmanager/logs/jobmanager.log"):
            opened.open(page)
            assert opened.tab() == ("Job stream.py has an alarm", "icon-failed.svg"), page
        for page in ("/leadership", f"/nodes/{NODES[0]}", f"/taskmanagers/tm-{NODES[0]}"):
            opened.open(page)
            assert opened.tab()[1] == "icon-running.svg", f"{page} is about something else, which is well"


def test_logs_of_attempts_and_processes_are_switched_in_place(
    browser: Browser, cluster: Cluster, job_id: JobId
) -> None:
    """The drivers of two attempts were killed."""
    cluster.wait_for_executors(job_id)
    newest = cluster.job(job_id).emberkeep.attempt
    with window(browser, cluster) as opened:
        page = opened.page
        attempt, process = page.locator("#log-search [name=attempt]"), page.get_by_label("Process")
        level, search = page.get_by_label("Level"), page.get_by_label("Search")
        title, state, shown = page.locator("#log-name"), page.locator("#log-state"), page.locator(".record")
        opened.open(f"/jobs/{job_id}/logs")
        expect(title).to_have_text(f"Logs of attempt {newest}, by time")
        page.evaluate("window.isSame = true")

        attempt.select_option("1")
        expect(title).to_have_text("Logs of attempt 1, by time")
        expect(state).to_contain_text("nothing more follows")
        found = records(page)
        assert is_by_time(found)
        writers = "".join("d" if writer == "driver" else "e" for writer, _ in found)
        assert "ede" in writers, "the driver's records are between those of the executor"
        level.select_option("error")
        expect(shown.filter(has_text="ERROR Store: batch 1 is stored")).to_have_count(1)
        assert set(shown.evaluate_all("all => all.map((one) => one.className)")) <= {"record error", "record fatal"}
        search.fill("batch 1 IS")
        expect(shown.locator("mark")).to_have_text(["batch 1 is"])
        assert downloaded(page).rstrip("\n") == " | ".join((f"{'driver':12}", records(page)[0][1]))

        search.fill("")
        level.select_option("")
        process.select_option(label="executor 0")
        expect(title).to_have_text("Log of executor 0, attempt 1")
        opened.sees("Executor: Finished task", "#log")
        assert records(page)[-1][1] in downloaded(page)
        attempt.select_option(str(newest))
        expect(title).to_have_text(f"Log of executor 0, attempt {newest}")
        opened.sees("Executor: Finished task", "#log")
        assert page.evaluate("window.isSame"), "no page was loaded"
        page.go_back()
        expect(title).to_have_text("Log of executor 0, attempt 1")
        page.go_back()
        expect(title).to_have_text("Logs of attempt 1, by time")
        page.reload()
        expect(title).to_have_text("Logs of attempt 1, by time")


def test_the_timeline_shows_what_has_happened_and_is_zoomed(browser: Browser, cluster: Cluster, job_id: JobId) -> None:
    attempt = cluster.job(job_id).emberkeep.attempt
    with window(browser, cluster, PHONE) as opened:
        page = opened.page
        opened.open(f"/jobs/{job_id}")
        assert bands(page) >= {"queued", "starting", "running", "restarting"}
        happened = marks(page)
        assert (happened["attempt-started"], happened["attempt-ended"]) == (attempt, attempt - 1)
        assert happened.keys() >= {"savepoint", "alarm-raised"}
        assert {"Attempts", "Requests", "Alarms"} < set(lanes(page))

        loss = mark(page, "attempt-ended")
        span = page.locator("#timeline-plot [data-span]")
        whole = span.inner_text()
        left = zoom_with_the_wheel(page, loss, turns=3)
        until(lambda: is_at(loss, left), "it stays under the pointer")
        drag(page, loss, 60)
        until(lambda: is_at(loss, left + 60), "it follows the pointer")
        part = span.inner_text()
        assert part != whole
        assert bands(page) >= {"starting", "running"}
        assert marks(page)["attempt-started"] < attempt, "the first one is not shown"
        page.reload()
        expect(span).to_have_text(part)
        assert is_at(loss, left + 60), "the address says what is shown"
        page.locator("#timeline-plot").get_by_title("Show all of it (0)").click()
        expect(page).not_to_have_url(re.compile("from="))
        assert marks(page) >= happened
        assert not opened.accessibility_problems()


def test_a_job_is_stopped_on_its_page_and_restored_with_the_command_there(
    browser: Browser, cluster: Cluster, job_id: JobId
) -> None:
    """The last test of the stream: it ends."""
    place = cluster.shell.directory / "stream"
    before = len(list(place.glob("batch-*")))
    until(lambda: len(list(place.glob("batch-*"))) >= before + 2, lambda: f"two more: {cluster.story(job_id)}")
    with window(browser, cluster) as opened:
        opened.open(f"/jobs/{job_id}")
        opened.page.get_by_role("button", name="Stop with savepoint…").click()
        opened.page.get_by_role("button", name="Stop the job").click()
        opened.sees("FINISHED", "#headline")
        assert opened.page.title().startswith("FINISHED · stream.py")
        newest = opened.page.locator("#savepoints tbody tr").first
        newest.get_by_role("button", name="Verify").click()
        newest.get_by_text("intact: ").wait_for()
        command, *words = shlex.split(newest.locator("code").inner_text())
        assert command == "emberkeep"
        assert words[-1] == str(place)
        restored = cluster.shell.done(*words[:3], "-q", *words[3:])  # with the options of the job
        opened.sees("started from it: stream.py", "#savepoints")
        opened.page.get_by_role("link", name="stream.py").first.click()
        opened.page.wait_for_url(f"**/jobs/{restored.out.strip()}")
        opened.sees("RUNNING", "#headline")
