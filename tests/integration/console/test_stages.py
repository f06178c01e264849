"""The stages of a batch job on its page, while they run and once they have ended."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, expect

from emberkeep.base.ids import JobId
from emberkeep.protocol.progress.rest_work import WorkInfo
from emberkeep.protocol.rest_jobs import JobDetailsInfo
from emberkeep.web.formats import byte_size
from tests.integration.clusters import Cluster
from tests.integration.conditions import DEADLINE, until
from tests.integration.console.browser import Window, window

pytestmark = [pytest.mark.integration, pytest.mark.long]

# Arguments: a directory. Each stage has a task that waits for a file there. The last one has a task that fails once.
REPORT = """
import os, sys, time
from pyspark import TaskContext
from pyspark.sql import SparkSession

place = sys.argv[1]

def wait(name):
    while not os.path.exists(f"{place}/{name}"):
        time.sleep(0.1)

def load(index, numbers):
    wait("first" if index == 0 else "rest")
    return ((number % 4, number) for number in numbers)

def check(index, pairs):
    if index == 1 and TaskContext.get().attemptNumber() == 0:
        raise ValueError("a damaged row")
    if index == 3:
        wait("last")
    return pairs

spark = SparkSession.builder.appName("report").getOrCreate()
numbers = spark.sparkContext.parallelize(range(100), 20)
sums = numbers.mapPartitionsWithIndex(load).reduceByKey(lambda one, other: one + other, 4)
print(sorted(sums.mapPartitionsWithIndex(check).collect()), flush=True)
spark.stop()
"""

# Arguments: a directory. Sorts more than fits into the memory of its tasks, prints Spark's own numbers, and waits.
SORT = """
import json, os, sys, time
from pyspark.sql import SparkSession

place = sys.argv[1]
spark = SparkSession.builder.appName("sort").getOrCreate()
texts = spark.range(0, 600_000, 1, 2).selectExpr("id", "uuid() AS text")
texts.sort("text").write.format("noop").mode("overwrite").save()
store = spark.sparkContext._jsc.sc().statusStore()
nothing = spark.sparkContext._jvm.java.util.ArrayList()
doubles = spark.sparkContext._gateway.new_array(spark.sparkContext._jvm.double, 0)
stages = store.stageList(nothing, False, False, doubles, nothing)
stages = [stages.apply(index) for index in range(stages.size())]
NAMES = "shuffleReadBytes", "shuffleWriteBytes", "memoryBytesSpilled", "diskBytesSpilled"
print(json.dumps([sum(getattr(stage, name)() for stage in stages) for name in NAMES]), flush=True)
while not os.path.exists(f"{place}/looked"):
    time.sleep(0.1)
spark.stop()
"""
LITTLE_MEMORY = ("--conf", "spark.memory.fraction=0.1")  # of the heap beyond 300 MiB, for all tasks of an executor

WAIT_MS = DEADLINE * 1000  # for what the job's processes must do first

# Keeps each number of tasks that the page has shown, by what it counts.
WATCH = """() => {
  window.seen = {};
  const look = () => {
    for (const bar of document.querySelectorAll("#work progress")) {
      const numbers = (window.seen[bar.getAttribute("aria-label")] ??= []);
      if (numbers.at(-1) !== bar.value) numbers.push(bar.value);
    }
    for (const cell of document.querySelectorAll("#work [data-label=Failed]")) {
      const numbers = (window.seen[`failed of ${cell.parentElement.firstElementChild.innerText}`] ??= []);
      if (numbers.at(-1) !== Number(cell.innerText)) numbers.push(Number(cell.innerText));
    }
  };
  look();
  new MutationObserver(look).observe(document.querySelector("main"), { childList: true, subtree: true });
}"""


@pytest.fixture
def gates(tmp_path: Path) -> Path:
    """Jobs wait for files there."""
    return tmp_path


def stage(opened: Window, called: str) -> Locator:
    return opened.page.locator("#work tbody tr").filter(has_text=called)


def cell(row: Locator, label: str) -> Locator:
    return row.locator(f"[data-label='{label}']")


def submitted(cluster: Cluster, gates: Path) -> JobId:
    cluster.shell.write("report.py", REPORT)
    return cluster.submit("report.py", arguments=(str(gates),))


def test_the_stages_of_a_batch_job_are_followed_on_its_page(browser: Browser, cluster: Cluster, gates: Path) -> None:
    job_id = submitted(cluster, gates)
    with window(browser, cluster) as opened:
        opened.open(f"/jobs/{job_id}")
        opened.page.evaluate(WATCH)

        loading = stage(opened, "reduceByKey at ")
        expect(cell(loading, "State")).to_have_text("ACTIVE", timeout=WAIT_MS)
        expect(cell(loading, "Tasks")).to_contain_text("0 of 20", timeout=WAIT_MS)
        expect(cell(loading, "Running")).to_have_text("1", timeout=WAIT_MS)
        expect(cell(loading, "Skew")).to_have_text("–")
        expect(cell(loading, "Time left")).to_have_text("–")
        expect(opened.page.locator("#work h2")).to_contain_text("1 active")

        (gates / "first").touch()  # its task is now known to take a while, and 19 others are left
        expect(cell(loading, "Tasks")).to_contain_text("1 of 20", timeout=WAIT_MS)
        expect(cell(loading, "Time left")).to_contain_text("about ", timeout=WAIT_MS)
        expect(cell(loading, "Median task")).to_contain_text(re.compile(r"\d"))
        total = opened.page.locator("#work .hint").first  # Spark adds up executors, with their next heartbeats
        expect(total).to_contain_text("left of the active Spark jobs", timeout=WAIT_MS)
        assert opened.accessibility_problems() == []

        (gates / "rest").touch()
        checking = stage(opened, "collect at ")
        expect(cell(checking, "State")).to_have_text("ACTIVE", timeout=WAIT_MS)
        expect(cell(checking, "Tasks")).to_contain_text("3 of 4", timeout=WAIT_MS)
        expect(cell(checking, "Failed")).to_have_text("1")
        expect(cell(checking, "Time left")).to_contain_text("unknown: a task has run for ", timeout=WAIT_MS)
        expect(cell(checking, "Skew").locator(".why")).to_contain_text(re.compile(r"\d ×"), timeout=WAIT_MS)
        expect(cell(loading, "State")).to_have_text("COMPLETE")
        expect(cell(loading, "Tasks")).to_contain_text("20 of 20")
        expect(total).to_contain_text("1 failed", timeout=WAIT_MS)
        assert not opened.is_too_wide()
        assert opened.accessibility_problems() == []

        (gates / "last").touch()
        opened.sees("FINISHED", "#headline")
        expect(opened.page.locator("#work h2")).to_contain_text("0 active · 2 done")
        expect(total).to_contain_text("24 of 24 tasks done · 1 failed")
        for row, tasks, failed in ((loading, "20 of 20", "0"), (checking, "4 of 4", "1")):
            expect(cell(row, "State")).to_have_text("COMPLETE")
            expect(cell(row, "Tasks")).to_contain_text(tasks)
            expect(cell(row, "Failed")).to_have_text(failed)
            expect(cell(row, "Time left")).to_have_text("–")
        seen = opened.page.evaluate("window.seen")
    assert len(seen) >= 5, "all tasks, and those done and failed of each stage"
    assert {name: sorted(numbers) for name, numbers in seen.items()} == seen, "no count falls back"


def test_what_a_job_shuffles_spills_and_collects_is_shown_as_spark_counts_it(
    browser: Browser, cluster: Cluster, gates: Path
) -> None:
    cluster.shell.write("sort.py", SORT)
    job_id = cluster.submit("sort.py", *LITTLE_MEMORY, arguments=(str(gates),))

    def counted() -> list[int]:
        return [int(number) for line in cluster.output(job_id).splitlines() for number in json.loads(line)]

    expected = until(counted, lambda: cluster.story(job_id))
    assert all(expected), "it reads and writes a shuffle, and spills"

    def is_known(job: JobDetailsInfo) -> bool:
        work = job.emberkeep.work
        return work is not None and numbers(work) == expected and work.gc_time > 0

    work = cluster.wait_for(job_id, is_known, f"{expected}").emberkeep.work
    assert work is not None
    assert work.gc_time < work.task_time
    with window(browser, cluster) as opened:
        opened.open(f"/jobs/{job_id}")
        total = opened.page.locator("#work .hint").first
        expect(total).to_contain_text(re.compile(r"[1-9][\d.]* % in garbage collection|0\.[1-9] % in garbage"))
        expect(total).to_contain_text(f"{byte_size(work.shuffle_write)} written, {byte_size(work.shuffle_read)} read")
        expect(total).to_contain_text(f"{byte_size(work.disk_bytes_spilled)} spilled to disk")
        spilled = [each for each in work.stages if each.disk_bytes_spilled]
        assert sum(each.disk_bytes_spilled for each in spilled) == work.disk_bytes_spilled
        for each in spilled:
            row = opened.page.locator("#work tbody tr").filter(has_text=re.compile(rf"^{each.stage_id}\b"))
            expect(cell(row, "Spilled")).to_have_text(byte_size(each.disk_bytes_spilled))
        (gates / "looked").touch()
        opened.sees("FINISHED", "#headline")
        expect(total).to_contain_text(f"{byte_size(work.disk_bytes_spilled)} spilled to disk")
    ended = cluster.job(job_id).emberkeep.work
    assert ended is not None
    assert numbers(ended) == expected


def numbers(work: WorkInfo) -> list[int]:
    return [work.shuffle_read, work.shuffle_write, work.memory_bytes_spilled, work.disk_bytes_spilled]


# Arguments: a file. Ends once it is there.
WAITING = """
import os, sys, time
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
print(spark.range(10).count(), flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.1)
spark.stop()
"""


def test_the_map_shows_an_evacuation_that_goes_on(browser: Browser, cluster: Cluster, gates: Path) -> None:
    """A batch job's driver stays on the node until it ends."""
    cluster.shell.write("waiting.py", WAITING)
    job_id = cluster.submit("waiting.py", arguments=(str(gates / "end"),))
    cluster.wait_for_executors(job_id)
    driver = cluster.job(job_id).emberkeep.driver
    assert driver is not None
    node = driver.taskmanager_id.removeprefix("tm-")
    with window(browser, cluster) as opened:
        page = opened.page
        there = page.locator("#capacity li.node").filter(has_text=node)
        opened.open("/")
        expect(there).to_contain_text("1 driver")
        cluster.shell.done("node", "block", node, "--cause", "a fan is loud")
        expect(there).to_contain_text("BLOCKED")
        expect(there.get_by_role("progressbar")).to_have_count(0)
        cluster.shell.done("node", "evacuate", node, "--cause", "it smokes", "--drivers", "wait", "--merge")
        expect(there).to_contain_text("EVACUATED")
        bar = there.get_by_role("progressbar", name="Executors and drivers that have moved")
        expect(there).to_contain_text("drivers staying until their jobs end: 1")
        until(lambda: bar.evaluate("bar => bar.max - bar.value") == 1, "all but the driver has moved")
        expect(there).to_contain_text(re.compile(r"\d of \d executors and drivers have moved"))
        assert not opened.accessibility_problems()

        (gates / "end").touch()
        expect(there).to_contain_text("nothing runs here any longer", timeout=WAIT_MS)
        assert bar.evaluate("bar => bar.max > 0 && bar.value === bar.max")
        cluster.shell.done("node", "unblock", node)
        expect(there).not_to_contain_text("EVACUATED")
    cluster.wait_for_end(job_id)
