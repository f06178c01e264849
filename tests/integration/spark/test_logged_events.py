"""Event logs as real Spark writes and reads them: lines that outlive their file, and pages of its History Server."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path

import pytest

from emberkeep.adapters.shared_storage.event_logs import attempt_directory
from emberkeep.base.ids import JobId
from emberkeep.daemons.jobmanager.spark_history import SparkHistory
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
    place = tmp_path / "the log für 100 %41"
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


JOB = JobId("1" * 32)


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["cluster", "the cluster für 100 %41"])
async def test_the_history_server_starts_whatever_the_directory_of_the_cluster_is_called(
    tmp_path: Path, name: str
) -> None:
    place = tmp_path / name
    log = attempt_directory(place / "checkpoints" / JOB, 1) / "eventlog_v2_app-1"
    log.mkdir(parents=True)
    (log / "appstatus_app-1").touch()
    (log / "events_1_app-1").write_text(json.dumps({"Event": "SparkListenerLogStart", "Spark Version": "4.3.0"}))
    history = SparkHistory(place / "spark-history", place / "checkpoints")
    running = asyncio.create_task(history.run())
    try:
        page = await history.read(JOB, 1, "/static/webui.js", "")
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
    assert page.status == 200
