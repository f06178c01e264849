"""The stages of a batch job on its page, while they run and once they have ended."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, expect

from emberkeep.base.ids import JobId
from tests.integration.clusters import Cluster
from tests.integration.conditions import DEADLINE
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
def gates(cluster: Cluster) -> Path:
    place = cluster.shell.directory / "gates"
    place.mkdir()
    return place


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
