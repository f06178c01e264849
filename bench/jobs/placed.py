"""Starts a query with state again and again in one application, with and without placement by local state in turn, and
prints which share of its partitions ran where their state lies. Arguments: pairs, partitions."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from pyspark.sql import SparkSession

from emberkeep.spark.queries.state_placement import StatePlacement

PAIRS, PARTITIONS = map(int, sys.argv[1:])
KIND: Any = StatePlacement
PLACING = KIND.started
DEADLINE = 250.0  # seconds for two batches

spark: Any = (
    SparkSession.builder.config("spark.sql.shuffle.partitions", str(PARTITIONS))
    .config(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    )
    .getOrCreate()
)
classes = spark._jvm.org.apache.spark.sql.execution.streaming.state
rates = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1000).option("numPartitions", 2).load()
writer = rates.groupBy((rates.value % 997).alias("key")).count().writeStream.outputMode("update").format("noop")


def run() -> list[str]:
    """Two batches; the executor of each partition as Spark knows it at the end."""
    query: Any = writer.queryName("placed").start()
    first, give_up = None, time.monotonic() + DEADLINE
    while first is None or query.lastProgress["batchId"] < first + 1:
        if query.lastProgress is not None and first is None:
            first = query.lastProgress["batchId"]
        if time.monotonic() > give_up:
            raise SystemExit(f"the query makes no progress: {query.lastProgress}")
        time.sleep(0.05)
    root = query._jsq.streamingQuery().resolvedCheckpointRoot() + "/state"
    run_id = spark._jvm.java.util.UUID.fromString(str(query.runId))
    coordinator = spark.streams._jsqm.stateStoreCoordinator()
    stores = [classes.StateStoreId(root, 0, number, "default") for number in range(PARTITIONS)]
    found = [str(coordinator.getLocation(classes.StateStoreProviderId(store, run_id)).get()) for store in stores]
    query.stop()
    return found


before = run()
shares: dict[str, list[float]] = {"with": [], "without": []}
for _ in range(PAIRS):
    for name in ("without", "with"):
        KIND.started = PLACING if name == "with" else lambda *_: None
        now = run()
        shares[name].append(sum(one == other for one, other in zip(before, now, strict=True)) / PARTITIONS)
        before = now
print(json.dumps(shares), flush=True)
spark.stop()
