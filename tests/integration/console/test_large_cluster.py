"""A real cluster with 1,000 jobs, 200 nodes and a log of 100 MB in the browser.

A stream and the job with the log run on a real task manager. The other jobs wait for a driver place, which the 199
stub nodes do not have: these register and send heartbeats as task managers do.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import expect

from bench.load.stub_cluster import Order, stub_cluster
from emberkeep.base.ids import JobId
from emberkeep.client.clusters.discovery import local_endpoint
from emberkeep.client.rest_client import RestClient
from emberkeep.client.submission.preparation import Program, prepare, upload
from emberkeep.client.submission.spark_options import SparkOptions
from emberkeep.jobs.model import JobStatus
from tests.integration.clusters import Cluster
from tests.integration.commands import Shell
from tests.integration.conditions import until
from tests.integration.console.browser import Window, chromium, window
from tests.integration.streams import SCRIPT, Stream
from tests.support.no_progress import NoProgress

pytestmark = [pytest.mark.integration, pytest.mark.long]

JOBS, NODES = 1000, 200
WAITING = JOBS - 2
CLIENTS = 8
PLACES = ("-D", "taskmanager.driver-places=2")
NEEDLE = "a needle was lost"
# Argument: a file; it ends once that is there. It writes 100 MB, with one error near the start.
LOUD = f"""
import sys, time
from pathlib import Path

record = "26/11/26 10:00:00 INFO DAGScheduler: Submitting stage {{:>9}} of the query, which has no missing parents\\n"
for number in range(100_000_000 // len(record.format(0))):
    if number == 2000:
        sys.stderr.write("26/11/26 10:00:00 ERROR TaskSetManager: {NEEDLE}\\n")
    sys.stderr.write(record.format(number))
sys.stderr.flush()
print("written", flush=True)
while not Path(sys.argv[1]).exists():
    time.sleep(0.2)
"""


@dataclass(frozen=True)
class Site:
    window: Window
    cluster: Cluster
    stream: JobId
    loud: JobId


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, class_archive: Path) -> Iterator[Cluster]:
    cluster = Cluster(Shell(tmp_path_factory.mktemp("large"), class_archive.parent))
    cluster.shell.environment["EMBERKEEP_SECURITY__ENCRYPTION"] = "none"  # as the stub nodes
    try:
        cluster.up("--ha", "--job-managers", "1", "--slots", "1", "-D", "rest.port=0", *PLACES)
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(scope="module")
def site(cluster: Cluster) -> Iterator[Site]:
    shell, stream = cluster.shell, Stream(cluster.shell.directory / "stream")
    shell.write("stream.py", SCRIPT)
    shell.write("loud.py", LOUD)
    shell.write("waits.py", "print('it runs')\n")
    running = cluster.submit("stream.py", arguments=(str(stream.place),))
    loud = cluster.submit("loud.py", arguments=(str(shell.directory / "finish"),))
    until(lambda: stream.batches() >= 2, lambda: cluster.story(running))
    until(lambda: "written" in cluster.output(loud), lambda: cluster.story(loud))
    endpoint = local_endpoint(cluster.record, shell.state)
    settings = ["security.encryption=none", f"emberkeep.state-dir={shell.state}"]
    order = Order(settings, endpoint.token, cluster.address, NODES - 1, 0, 1, 0)
    with stub_cluster(order):
        cluster.ask(lambda client: submit_waiting(client, shell.work / "waits.py"))
        until(lambda: len(cluster.ask(lambda client: client.task_managers())) == NODES, "all nodes are registered")
        with chromium() as browser, window(browser, cluster) as opened:
            yield Site(opened, cluster, running, loud)


async def submit_waiting(client: RestClient, script: Path) -> None:
    numbers = iter(range(1, WAITING + 1))

    async def go_on() -> None:
        for number in numbers:
            job = prepare(Program(str(script), None, ()), SparkOptions(name=f"orders {number:04}"), {}, {})
            await client.submit(await upload(client, job, NoProgress()))

    async with asyncio.TaskGroup() as group:
        for _ in range(CLIENTS):
            group.create_task(go_on())


def test_pages_with_many_jobs_and_nodes_have_nothing_wrong(site: Site) -> None:
    found = site.window.faults_of_pages(
        {
            "/": "orders",
            "/jobs": str(JOBS),
            "/jobs?page=10": "stream.py",
            "/jobs?state=CREATED": str(WAITING),
            f"/jobs/{site.stream}": "Streaming queries",
            "/nodes": "Page 1 of 2",
            "/nodes?page=2": "stub-",
            "/taskmanagers": "Page 1 of 2",
            "/taskmanagers?page=2": "stub-",
            "/events": "Events",
            "/blobs": "referenced",
        }
    )
    assert not found, "\n".join(found)


def test_every_job_is_on_one_of_the_pages(site: Site) -> None:
    page, seen = site.window.page, set()
    site.window.open("/jobs")
    while True:
        names = page.locator("#jobs tbody a.name")
        seen |= {link.rpartition("/")[2] for link in names.evaluate_all("all => all.map(one => one.href)")}
        older = page.get_by_role("link", name="Older")
        if older.count() == 0:
            break
        older.click()
        page.wait_for_load_state("load")
    assert seen == {job.jid for job in site.cluster.ask(lambda client: client.jobs())}


def test_one_of_many_jobs_is_found_and_cancelled_and_the_list_follows(site: Site) -> None:
    page = site.window.page
    site.window.open("/jobs?state=CREATED")
    canceled = page.context.new_page()
    canceled.goto(f"{site.window.url}/jobs?state=CANCELED")
    canceled.get_by_text("No such jobs.").wait_for()
    page.bring_to_front()
    page.get_by_label("Search").fill("orders 0500")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("link", name="orders 0500").click()
    page.get_by_role("button", name="Cancel job…").click()
    page.get_by_role("button", name="Cancel the job").click()
    site.window.sees("CANCELED", "#headline")
    canceled.bring_to_front()
    canceled.get_by_role("link", name="orders 0500").wait_for()  # without a reload
    canceled.close()
    jobs = site.cluster.ask(lambda client: client.jobs())
    assert [job.name for job in jobs if job.state is JobStatus.CANCELED] == ["orders 0500"]


def test_the_page_and_the_list_say_why_a_job_waits(site: Site) -> None:
    page = site.window.page
    why = re.compile(r"no place for the driver \(\d+ MiB\): all 2 driver places are taken")
    site.window.open("/")
    expect(page.locator("#health")).to_contain_text(why)
    site.window.open("/jobs?state=CREATED")
    rows = page.locator("#jobs tbody tr")
    expect(rows).to_have_count(100)
    expect(rows.locator(".why").filter(has_text=why)).to_have_count(100)
    rows.first.locator("a.name").click()
    expect(page.locator("#job-health")).to_contain_text(why)


def test_one_of_many_nodes_is_found_and_blocked(site: Site) -> None:
    page = site.window.page
    site.window.open("/nodes")
    page.get_by_label("Search").fill("stub-150")
    page.get_by_role("button", name="Search").click()
    row = page.locator("#nodes tbody tr")
    row.get_by_role("button", name="Block…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Cause").fill("a fan is loud")
    dialog.get_by_role("button", name="Block", exact=True).click()
    row.get_by_text("a fan is loud").wait_for()
    assert set(site.cluster.ask(lambda client: client.blocklist()).blocked_nodes) == {"stub-150"}
    row.get_by_role("button", name="Unblock…").click()
    dialog.get_by_role("button", name="Unblock", exact=True).click()
    row.get_by_role("button", name="Block…", exact=True).wait_for()


def test_a_record_near_the_start_of_a_log_of_100_mb_is_found(site: Site) -> None:
    page = site.window.page
    site.window.open(f"/jobs/{site.loud}/logs")
    process = page.get_by_label("Process")
    process.locator("option", has_text="driver").wait_for(state="attached")
    process.select_option(label="driver")
    page.locator("#log-state").filter(has_text=re.compile(r"of 95\.\d MiB")).wait_for()
    page.get_by_label("Search").fill("needle")
    page.locator("mark").filter(has_text="needle").wait_for()
    page.get_by_label("Search").fill("")
    page.get_by_role("button", name="Older records").click()
    page.wait_for_function("document.querySelectorAll('.record').length > 300")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    text = download.value.path().read_text()
    assert text.count(NEEDLE) == 1
    assert len(text) > 99_900_000
