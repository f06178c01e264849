"""Dynamic allocation with real Spark: slots follow the load, and nothing that was computed is computed again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.base.ids import JobId
from emberkeep.protocol.rest_jobs import JobDetailsInfo
from tests.integration.clusters import Cluster, roomy_cluster
from tests.integration.conditions import until

pytestmark = [pytest.mark.integration, pytest.mark.long]

SLOTS, LEAST, MOST, TASKS, ROWS = 4, 1, 3, 6, 6000

# Tasks of a burst end once the test has seen enough executors. Each task that computes rows leaves a file.
BURSTS = f"""
import sys, time, uuid
from pathlib import Path
from pyspark.sql import SparkSession

place = Path(sys.argv[1])

def wait(name):
    while not (place / name).exists():
        time.sleep(0.05)

def rows(part):
    def compute(numbers):
        (place / f"computed-{{part}}-{{uuid.uuid4().hex}}").touch()
        wait(f"burst-{{part}}")
        return ((number % 10, number) for number in numbers)
    return compute

def idle(phase):
    (place / f"idle-{{phase}}").touch()
    wait(f"go-{{phase}}")

context = SparkSession.builder.getOrCreate().sparkContext
first = context.parallelize(range({ROWS}), {TASKS}).mapPartitions(rows(1)).groupByKey(4)
print("first", first.map(lambda pair: len(pair[1])).sum(), flush=True)
print("at once", first.map(lambda pair: sum(pair[1])).sum(), flush=True)
idle(1)
print("after idling", first.map(lambda pair: sum(pair[1])).sum(), flush=True)
second = context.parallelize(range({ROWS}), {TASKS}).mapPartitions(rows(2)).groupByKey(4)
print("second", second.map(lambda pair: len(pair[1])).sum(), flush=True)
print("joined", first.join(second).count(), flush=True)
idle(2)
"""

IDLE = """
import time
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
while True:
    time.sleep(0.1)
"""


@pytest.fixture
def cluster(tmp_path: Path, class_archive: Path) -> Iterator[Cluster]:
    with roomy_cluster(tmp_path, class_archive, SLOTS) as cluster:
        yield cluster


def settings(logs: Path) -> tuple[str, ...]:
    allocation = {
        "enabled": "true",
        "minExecutors": str(LEAST),
        "maxExecutors": str(MOST),
        "executorIdleTimeout": "6s",
        "shuffleTracking.enabled": "false",  # executors hand their shuffle files over and go
    }
    log = {"enabled": "true", "rolling.enabled": "true", "dir": logs.as_uri(), "compress": "false"}
    conf = {f"spark.dynamicAllocation.{key}": value for key, value in allocation.items()}
    conf |= {f"spark.eventLog.{key}": value for key, value in log.items()}
    return tuple(word for key, value in conf.items() for word in ("--conf", f"{key}={value}"))


def registered(job: JobDetailsInfo) -> int:
    return sum(executor.registered for executor in job.emberkeep.executors)


def events(logs: Path) -> list[dict[str, object]]:
    return [json.loads(line) for file in logs.rglob("events_*") for line in file.read_text().splitlines()]


@pytest.mark.req("ELASTIC-1")
@pytest.mark.req("ELASTIC-2")
@pytest.mark.req("ELASTIC-3")
def test_slots_follow_the_load_and_no_shuffle_is_computed_again(cluster: Cluster) -> None:
    place, logs = cluster.shell.directory / "bursts", cluster.shell.directory / "event-logs"
    place.mkdir()
    logs.mkdir()
    script = cluster.shell.work / "bursts.py"
    script.write_text(BURSTS)
    job_id = cluster.submit(script, *settings(logs), arguments=(str(place),), executors=LEAST)

    cluster.wait_for(job_id, lambda job: registered(job) == MOST, "the burst has the most executors")
    allocation = cluster.job(job_id).emberkeep.dynamic_allocation
    assert allocation is not None
    assert (allocation.wanted, allocation.minimum, allocation.maximum) == (MOST, LEAST, MOST)
    (place / "burst-1").touch()
    until((place / "idle-1").exists, lambda: cluster.story(job_id))
    cluster.wait_for(job_id, lambda job: len(job.emberkeep.executors) == LEAST, "the idle job has the fewest")
    until(lambda: free(cluster) == SLOTS - LEAST, "the other slots are free")

    other = other_job(cluster)
    assert free(cluster) == 0, "another job takes what the idle one has given back"
    (place / "go-1").touch()
    until(lambda: len(list(place.glob("computed-2-*"))) >= LEAST, lambda: cluster.story(job_id))
    waiting = cluster.wait_for(job_id, lambda job: job.emberkeep.waiting, "it says which slots it lacks")
    assert (registered(waiting), waiting.emberkeep.attempt) == (LEAST, 1), "it continues with what it has"
    cluster.cancel(other)
    cluster.wait_for(job_id, lambda job: registered(job) == MOST, "it gets the slots that the other gives back")
    (place / "burst-2").touch()
    until((place / "idle-2").exists, lambda: cluster.story(job_id))
    cluster.wait_for(job_id, lambda job: len(job.emberkeep.executors) == LEAST, "it gives them back again")
    (place / "go-2").touch()
    job = cluster.wait_for_end(job_id)

    assert output(cluster, job_id) == {
        "first": ROWS,
        "at once": sum(range(ROWS)),
        "after idling": sum(range(ROWS)),
        "second": ROWS,
        "joined": 10,
    }
    assert len(list(place.glob("computed-1-*"))) == TASKS, "each partition was computed once"
    assert len(list(place.glob("computed-2-*"))) == TASKS
    stages = [event["Stage Info"] for event in events(logs) if event["Event"] == "SparkListenerStageSubmitted"]
    assert stages
    assert {stage["Stage Attempt ID"] for stage in stages if isinstance(stage, dict)} == {0}
    check_history(cluster, job)


def check_history(cluster: Cluster, job: JobDetailsInfo) -> None:
    """No executor was reported as lost, and the events are few."""
    assert len(job.emberkeep.attempts) == 1
    exceptions = cluster.ask(lambda client: client.exceptions(job.jid))
    assert not exceptions.exception_history.entries
    lines = cluster.shell.done("events", job.jid, "-o", "json").out.splitlines()
    types = [json.loads(line)["type"] for line in lines]
    assert "executors-scaled" in types
    assert not {"executors-registered", "executors-ended"} & set(types)


def other_job(cluster: Cluster) -> JobId:
    script = cluster.shell.work / "other.py"
    script.write_text(IDLE)
    other = cluster.submit(script, executors=SLOTS - LEAST)
    cluster.wait_for_executors(other, SLOTS - LEAST)
    return other


def free(cluster: Cluster) -> int:
    return cluster.ask(lambda client: client.overview()).slots_available


def output(cluster: Cluster, job_id: JobId) -> dict[str, int]:
    lines = cluster.output(job_id).splitlines()
    found = (line.rpartition(" ") for line in lines if line.rpartition(" ")[2].isdigit())
    return {name: int(number) for name, _, number in found}
