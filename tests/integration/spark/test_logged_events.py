"""Lines of an event log that outlive their file, as real Spark writes and reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.spark.conftest import DriverRunner

pytestmark = pytest.mark.integration

# The first SparkContext writes a log, and the second one's JVM reads it.
SCRIPT = """
import json, sys
from pathlib import Path
from pyspark.sql import SparkSession
from emberkeep.base.errors import Damaged
from runtime_under_test import runtime

spark = SparkSession.builder.getOrCreate()
query = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load().writeStream.format("noop").start()
while query.lastProgress is None:
    spark.range(10).count()
query.stop()
first = spark.sparkContext.applicationId
spark.stop()
spark = SparkSession.builder.getOrCreate()
(log,) = Path(sys.argv[1]).glob(f"eventlog_v2_{first}/events_1_*.zstd")
lines = runtime.lasting_events(log)
kept = log.with_name(log.stem)
kept.write_bytes(b"".join(line + b"\\n" for line in lines))
damaged = log.with_name("events_2_" + log.name.split("_", 2)[2])
damaged.write_bytes(b"no zstd")
try:
    runtime.lasting_events(damaged)
    told = ""
except Damaged as error:
    told = str(error)
print(json.dumps({
    "events": sorted({json.loads(line)["Event"] for line in lines}),
    "runs": [json.loads(line)["runId"] for line in lines if b"StreamingQueryListener" in line] == 2 * [query.runId],
    "again": runtime.lasting_events(kept) == lines,
    "damaged": told,
}))
"""


def test_the_coming_and_going_of_queries_and_executors_is_read(drivers: DriverRunner, tmp_path: Path) -> None:
    place = tmp_path / "log"
    place.mkdir()
    logged = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": place.as_uri(),
        "spark.eventLog.rolling.enabled": "true",
        "spark.eventLog.compress": "true",
    }
    done = drivers.run(SCRIPT, str(place), spark_conf=logged)
    assert done.exit_code == 0, done.stderr
    results = done.results()
    query = "org.apache.spark.sql.streaming.StreamingQueryListener$Query"
    assert set(results["events"]) >= {
        "SparkListenerBlockManagerAdded",
        "SparkListenerExecutorAdded",
        f"{query}StartedEvent",
        f"{query}TerminatedEvent",
    }
    assert not [name for name in results["events"] if "Progress" in name or "Task" in name or "Job" in name]
    assert results["runs"]
    assert results["again"], "without compression, as they are kept"
    assert "events_2_" in results["damaged"]
