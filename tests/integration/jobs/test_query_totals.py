"""What is kept and counted of a real stream: each report as Spark made it, and each late row of each micro-batch."""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from emberkeep.base.ids import JobId
from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import Shell
from tests.integration.conditions import until

pytestmark = [pytest.mark.integration, pytest.mark.long]

HELD = 12  # the batch that does not end before the test has looked
# One row of each batch is late, as soon as there is a watermark.
SCRIPT = f"""
import json, sys, time
from pathlib import Path
from pyspark.sql import SparkSession, functions as F

place = Path(sys.argv[1])

def store(frame, number):
    frame.count()
    while number >= {HELD} and not (place / "finish").exists():
        time.sleep(0.1)

spark = SparkSession.builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()
rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
seconds = F.when(F.col("value") % 10 == 3, F.lit(1)).otherwise(F.col("value") * 10 + 1000)
timed = rows.select("value", F.timestamp_seconds(seconds).alias("at")).withWatermark("at", "1 second")
query = (
    timed.dropDuplicates(["value", "at"]).writeStream.queryName("late").foreachBatch(store)
    .trigger(processingTime="100 milliseconds").start()
)
while (query.lastProgress or {{"batchId": -1}})["batchId"] < {HELD} - 1:
    query.awaitTermination(0.2)
seen = [json.loads(each.json) if hasattr(each, "json") else each for each in query.recentProgress]
ran = [each for each in seen if "addBatch" in each["durationMs"]]
sums = {{
    "batches": len(ran),
    "late_rows": sum(each["stateOperators"][0]["numRowsDroppedByWatermark"] for each in ran),
    "add_batch": sum(each["durationMs"]["addBatch"] for each in ran) / 1000,
}}
(place / "reports").write_text(json.dumps(ran))
(place / "sums.new").write_text(json.dumps(sums))
(place / "sums.new").rename(place / "sums")
while not (place / "finish").exists():
    time.sleep(0.1)
query.stop()
spark.stop()
"""


def total(metrics: str, name: str, **labels: str) -> float | None:
    """The value of the one series of a counter of the query that has these labels."""
    wanted = {"query": "late", **labels}
    for line in metrics.splitlines():
        found = re.fullmatch(rf"emberkeep_query_{name}_total\{{(.*)\}} (\S+)", line)
        if found and wanted.items() <= dict(re.findall(r'(\w+)="([^"]*)"', found[1])).items():
            return float(found[2])
    return None


def as_spark_says(report: dict[str, Any]) -> dict[str, Any]:
    """A report of Spark in the words of the REST API, without its sources."""
    (state,) = report["stateOperators"]
    watermark = milliseconds(report["eventTime"]["watermark"])
    triggered = milliseconds(report["timestamp"])
    return {
        "batch-id": report["batchId"],
        "run-id": report["runId"],
        "triggered": triggered,
        "duration": report["batchDuration"],
        "phases": report["durationMs"],
        "rows": report["numInputRows"],
        "input-rows-per-second": report.get("inputRowsPerSecond", 0.0),
        "processed-rows-per-second": report.get("processedRowsPerSecond", 0.0),
        "state-rows": state["numRowsTotal"],
        "state-bytes": state["memoryUsedBytes"],
        "state-commit-duration": state["commitTimeMs"],
        "late-rows": state["numRowsDroppedByWatermark"],
        "watermark": watermark or None,
        "watermark-gap": triggered - watermark if watermark else None,
    }


def milliseconds(time: str) -> int:
    return round(datetime.fromisoformat(time).timestamp() * 1000)


def check_history(cluster: Cluster, job_id: JobId, reports: list[dict[str, Any]]) -> None:
    """The history has every batch, with the numbers that Spark has reported."""
    expected = [as_spark_says(report) for report in reports]
    assert expected[-1]["watermark"], "there is one"
    assert expected[-1]["state-bytes"] > 0

    def kept() -> list[dict[str, Any]]:
        records = json.loads(cluster.shown(f"/v1/jobs/{job_id}/progress?limit=1000"))["records"]
        known = [record for record in records if "addBatch" in record["phases"]]
        return [{name: record[name] for name in expected[0]} for record in known[: len(expected)]]

    until(lambda: kept() == expected, lambda: f"{kept()}, not {expected}")


def test_each_late_row_counts(shell: Shell, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    cluster = Cluster(shell)
    try:
        cluster.up(*QUICK, "--slots", "1")
        job_id = cluster.submit(shell.write("late.py", SCRIPT), arguments=(str(place),))
        until((place / "sums").exists, lambda: cluster.story(job_id))
        sums = json.loads((place / "sums").read_text())
        assert sums["batches"] == HELD
        assert sums["late_rows"] > HELD / 2

        def counted() -> dict[str, float | None]:
            metrics = cluster.metrics()
            return {
                "batches": total(metrics, "batches"),
                "late_rows": total(metrics, "late_rows"),
                "add_batch": total(metrics, "phase_seconds", phase="addBatch"),
            }

        until(lambda: counted() == pytest.approx(sums), lambda: f"{counted()}, not {sums}: {cluster.story(job_id)}")
        check_history(cluster, job_id, json.loads((place / "reports").read_text()))
        (place / "finish").touch()
        cluster.wait_for_end(job_id)
    finally:
        cluster.close()
