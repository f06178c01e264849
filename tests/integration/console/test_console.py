"""The console as a person uses it: a real browser on a real cluster, whose parts are killed while it is open."""

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
from tests.integration.console.browser import DESKTOP, PHONE, window
from tests.integration.console.conftest import NODES
from tests.integration.console.logs import LOGGING, downloaded, is_by_time, records
from tests.integration.console.plots import DASHED, move_one_cursor, plotted, see_marks_in_each_plot
from tests.integration.console.timeline import bands, drag, is_at, lanes, mark, marks, middle, zoom_with_the_wheel
from tests.integration.streams import Stream

pytestmark = [pytest.mark.integration, pytest.mark.long]

ALARMED = ("-D", "watchdog.restarts.max=1")  # the second kill of the driver raises an alarm


@pytest.fixture(scope="module")
def job_id(cluster: Cluster) -> JobId:
    """A stream that runs."""
    stream = Stream(cluster.shell.directory / "stream")
    cluster.shell.write("stream.py", LOGGING)
    job_id = cluster.submit("stream.py", *ALARMED, arguments=(str(stream.place),))
    cluster.wait_for_executors(job_id)
    until(lambda: stream.batches() >= 3, lambda: f"three batches: {cluster.story(job_id)}")
    return job_id


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
        left, _ = middle(loss)
        span = page.locator("#timeline-plot [data-span]")
        whole = span.inner_text()
        zoom_with_the_wheel(page, loss, turns=3)
        expect(page).to_have_url(re.compile("[?&]from=.*&to="))
        until(lambda: is_at(loss, left), "it stays under the pointer", seconds=10)
        drag(page, loss, 60)
        until(lambda: is_at(loss, left + 60), "it follows the pointer", seconds=10)
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
