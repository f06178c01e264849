"""A whole job is put back for one of a higher priority, with real Spark: its driver stays, and its result is right."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.clusters import Cluster, roomy_cluster
from tests.integration.conditions import until
from tests.integration.elastic.test_dynamic_allocation import output, registered

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.req("RES-7")]

SLOTS, ROWS = 2, 1000

STREAM = """
import json, sys, time
from pathlib import Path
from pyspark.sql import SparkSession
from pyspark.sql.functions import sum as total_of

place = Path(sys.argv[1])
spark = SparkSession.builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()

def keep(frame, batch):
    (place / "totals").write_text(json.dumps([row.total for row in frame.collect()]))
    (place / "ready").touch()

rows = spark.readStream.schema("key int, value long").json(str(place / "input"))
totals = rows.groupBy("key").agg(total_of("value").alias("total"))
query = totals.writeStream.outputMode("complete").option("checkpointLocation", str(place / "checkpoint"))
query = query.foreachBatch(keep).start()
while not (place / "go").exists():
    time.sleep(0.1)
query.processAllAvailable()
print("total", sum(json.loads((place / "totals").read_text())), flush=True)
query.stop()
"""

BATCH = f"""
import sys, time
from pathlib import Path
from pyspark import SparkContext

place = Path(sys.argv[1])
context = SparkContext.getOrCreate()
grouped = context.parallelize(range({2 * ROWS}), 4).map(lambda number: (number % 10, number)).groupByKey(4)
print("keys", grouped.count(), flush=True)
(place / "ready").touch()
while not (place / "go").exists():
    time.sleep(0.1)
print("total", grouped.map(lambda pair: sum(pair[1])).sum(), flush=True)
"""

URGENT = f"""
import sys, time
from pathlib import Path
from pyspark import SparkContext

context = SparkContext.getOrCreate()
print("counted", context.parallelize(range({ROWS}), 4).count(), flush=True)
while not Path(sys.argv[1]).exists():
    time.sleep(0.1)
"""


@pytest.fixture
def cluster(tmp_path: Path, class_archive: Path) -> Iterator[Cluster]:
    with roomy_cluster(tmp_path, class_archive, SLOTS, "-D", "slotmanager.preemption=jobs") as cluster:
        yield cluster


def add_input(place: Path, numbers: range) -> None:
    lines = (json.dumps({"key": number % 10, "value": number}) for number in numbers)
    written = place / f"part-{numbers.start}"
    written.write_text("\n".join(lines))
    written.rename(place / "input" / f"part-{numbers.start}.json")


@pytest.mark.parametrize("script", [STREAM, BATCH], ids=["stream", "batch"])
def test_a_gang_is_put_back_and_continues_once_slots_are_free(cluster: Cluster, script: str) -> None:
    place = cluster.shell.directory / "place"
    (place / "input").mkdir(parents=True)
    add_input(place, range(ROWS))
    gang = ("-D", "job.gang=true")
    low = cluster.submit(
        cluster.shell.write("low.py", script),
        *("-D", "job.priority=low", *gang),
        arguments=(str(place),),
        executors=SLOTS,
    )
    until((place / "ready").exists, lambda: cluster.story(low))
    gate = place / "gate"
    urgent = cluster.submit(
        cluster.shell.write("urgent.py", URGENT),
        *("-D", "job.priority=high", *gang),
        arguments=(str(gate),),
        executors=SLOTS,
    )
    cluster.wait_for(urgent, lambda job: registered(job) == SLOTS, "the urgent job has every slot")
    add_input(place, range(ROWS, 2 * ROWS))
    (place / "go").touch()
    waiting = cluster.wait_for(
        low, lambda job: job.emberkeep.waiting and not job.emberkeep.reclaim, "it waits like any job"
    )
    assert (waiting.emberkeep.executors, waiting.emberkeep.attempt) == ([], 1)
    assert waiting.emberkeep.executors_wanted == SLOTS
    gate.touch()
    cluster.wait_for_end(urgent)
    job = cluster.wait_for_end(low)
    assert output(cluster, low)["total"] == sum(range(2 * ROWS))
    assert len(job.emberkeep.attempts) == 1, "nothing was started from the beginning"
    exceptions = cluster.ask(lambda client: client.exceptions(job.jid))
    assert not exceptions.exception_history.entries, "no executor was lost"
    lines = cluster.shell.done("events", job.jid, "-o", "json").out.splitlines()
    (told,) = (event["message"] for event in map(json.loads, lines) if event["type"] == "slots-reclaimed")
    assert told.startswith(
        f"the job is put back to waiting, and gives all its slots back: job {urgent} has a higher priority"
    )
