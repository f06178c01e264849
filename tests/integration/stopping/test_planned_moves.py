"""Executors and a driver leave their nodes as planned: what user functions have collected there goes with them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.base.ids import JobId
from emberkeep.chronicle.occurrence import What
from emberkeep.lifecycle.manifest import MANIFEST_NAME, Manifest, decode_manifest
from tests.integration.chronicle.shown_events import shown_events
from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import Shell
from tests.integration.conditions import until

pytestmark = [pytest.mark.integration, pytest.mark.long]

NODES = ("127.0.0.2", "127.0.0.3")
ROWS = 20  # in each batch
STOPS = 2  # of the query: for the move, and for the savepoint

# Arguments: a directory, where each batch leaves a file. One function counts rows in the Python workers, another one in
# the driver the processes that it has lived in.
SCRIPT = f"""
import os, sys
from pathlib import Path
from pyspark.sql import SparkSession
from emberkeep.api import RichFunction, on_executor, register

def factory():
    class Rows:
        total = 0
        def initialize_state(self, states):
            self.total += sum(states)
        def take(self, row):
            self.total += 1
        def snapshot_state(self):
            return self.total
    return Rows()

class Homes(RichFunction):
    homes = 0
    def initialize_state(self, homes):
        self.homes = homes
    def open(self):
        self.homes += 1
    def snapshot_state(self):
        return self.homes

place = Path(sys.argv[1])
register(Homes(), name="homes")
rows = on_executor(factory, "rows")
spark = SparkSession.builder.getOrCreate()
rates = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", {ROWS}).option("numPartitions", 4).load()

def store(frame, number):
    frame.foreach(lambda row: rows().take(row))
    (place / f"batch-{{number}}").touch()

rates.writeStream.trigger(processingTime="300 milliseconds").foreachBatch(store).start().awaitTermination()
"""


@pytest.fixture
def cluster(tmp_path: Path, class_archive: Path) -> Iterator[Cluster]:
    cluster = Cluster(Shell(tmp_path, class_archive.parent))
    try:
        shape = ("--nodes", ",".join(NODES), "--slots", "2", "--memory", "4g")
        cluster.up(*shape, *QUICK, "-D", "blocklist.evacuation.timeout=100s")
        yield cluster
    finally:
        cluster.close()


def wait_for_hosts(cluster: Cluster, job_id: JobId, hosts: list[str]) -> None:
    def found() -> list[str]:
        executors = cluster.job(job_id).emberkeep.executors
        return sorted(executor.host for executor in executors if executor.registered and executor.pid)

    until(lambda: found() == hosts, lambda: cluster.story(job_id))


def wait_for_batches(cluster: Cluster, job_id: JobId, place: Path) -> None:
    wanted = len(list(place.iterdir())) + 5
    until(lambda: len(list(place.iterdir())) >= wanted, lambda: cluster.story(job_id))


def states_of(savepoint: Path, manifest: Manifest, function: str) -> list[int]:
    found = [each.path for each in manifest.functions if each.name.partition("@")[0] == function]
    return [json.loads((savepoint / path).read_bytes()[1:]) for path in found]


@pytest.mark.req("SAFE-19")
def test_functions_take_what_they_have_collected_along(cluster: Cluster) -> None:
    place = cluster.shell.directory / "batches"
    place.mkdir()
    cluster.shell.write("counting.py", SCRIPT)
    job_id = cluster.submit("counting.py", arguments=(str(place),), executors=2)
    wait_for_hosts(cluster, job_id, list(NODES))
    wait_for_batches(cluster, job_id, place)
    driver = cluster.job(job_id).emberkeep.driver
    assert driver is not None
    home = next(node for node in NODES if node in driver.taskmanager_id)
    other = next(node for node in NODES if node != home)

    cluster.shell.done("node", "evacuate", other, "--cause", "dust", "--wait")
    wait_for_hosts(cluster, job_id, [home, home])
    wait_for_batches(cluster, job_id, place)
    cluster.shell.done("node", "unblock", other)
    cluster.shell.done("node", "evacuate", home, "--cause", "power", "--wait")
    cluster.wait_for_driver(job_id, attempt=2)
    wait_for_batches(cluster, job_id, place)

    told = cluster.shell.done("stop", job_id)
    savepoint = Path(told.out.strip().removeprefix("file://"))
    manifest = decode_manifest((savepoint / MANIFEST_NAME).read_bytes(), str(savepoint))
    assert "lost" not in told.err
    assert states_of(savepoint, manifest, "homes") == [2]
    (offset,) = manifest.queries[0].offsets
    committed, counted = json.loads(offset)["offset"], states_of(savepoint, manifest, "rows")
    # A stop may meet a batch that Spark then interrupts and runs again: its rows are counted again. None is lost.
    assert committed <= sum(counted) <= committed + STOPS * ROWS, f"{committed} rows were counted as {counted}"
    check_events(cluster, job_id, home, other)


def check_events(cluster: Cluster, job_id: JobId, home: str, other: str) -> None:
    """Those of the nodes say who evacuated them and why, those of the job from where to where its driver moved."""
    who = "cluster"  # whose token the command has
    nodes = shown_events(cluster, What.BLOCKED, What.UNBLOCKED, count=3)
    assert [(each["message"], each["by"], each["node"]) for each in nodes] == [
        (f"{who} evacuated node {other}: dust", who, other),
        (f"{who} unblocked node {other}", who, other),
        (f"{who} evacuated node {home}: power", who, home),
    ]
    shown_events(cluster, What.ATTEMPT_ENDED, job=job_id, count=2)  # the last of all
    types = (What.REQUESTED, What.REQUEST_ENDED, What.REQUEST_FAILED, What.ATTEMPT_ENDED, What.ATTEMPT_STARTED)
    told = shown_events(cluster, *types, job=job_id, count=7)
    # A driver may refuse to move just then. It is asked again until it does.
    refused = {each["details"]["request"] for each in told if each["type"] == "request-failed"}
    story = [each for each in told if each["details"].get("request") not in refused]
    assert [(each["type"], each["attempt"], each["node"], each["by"]) for each in story] == [
        ("attempt-started", 1, home, ""),
        ("requested", 0, home, ""),
        ("request-ended", 0, "", ""),
        ("attempt-ended", 1, "", ""),
        ("attempt-started", 2, other, ""),
        ("requested", 0, "", who),
        ("attempt-ended", 2, "", ""),
    ]
    assert story[1]["message"] == f"the JobManager asked for a move to another node than {home}"
    assert story[3]["details"]["cause"] == "moved"
    assert story[3]["message"] == f"attempt 1 has moved: moved from node {home}"
