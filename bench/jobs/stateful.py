"""Deduplication in RocksDB, which keeps 1 KB of state for each row.

Arguments: rows per micro-batch, micro-batches in one turn, turns, and the checkpoints that take turns, each turn in the
other order. Prints what each micro-batch took: "BATCH <turn> <number of the checkpoint> <seconds>". A turn's first one,
which reads the state, is FIRST in the place of BATCH; LOADED tells the seconds that its tasks took for that together,
STARTED those from the query's start to the end of the turn.
"""

import sys
import time

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

rows, batches, turns = (int(text) for text in sys.argv[1:4])
checkpoints = sys.argv[4:]
spark = SparkSession.builder.appName("bench-state").getOrCreate()
texts = [f.sha2((f.col("value") * len("state") + number).cast("string"), 512) for number in range(8)]
source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).option("numPartitions", 2).load()
stream = source.select(f.concat(*texts).alias("payload")).dropDuplicates(["payload"])

for turn in range(turns):
    order = list(enumerate(checkpoints))
    for number, checkpoint in reversed(order) if turn % 2 else order:
        began = time.monotonic()
        query = stream.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
        while len([progress for progress in query.recentProgress if progress["numInputRows"]]) < batches:
            if query.exception() is not None:
                raise SystemExit(str(query.exception()))
            time.sleep(0.02)
        ended = time.monotonic()
        done = [progress for progress in query.recentProgress if progress["numInputRows"]][:batches]
        query.stop()
        metrics = done[0]["stateOperators"][0]["customMetrics"]
        print("LOADED", turn, number, metrics["rocksdbLoadLatencyMs"] / 1000, flush=True)
        print("STARTED", turn, number, ended - began, flush=True)
        for place, progress in enumerate(done):
            print("BATCH" if place else "FIRST", turn, number, progress["batchDuration"] / 1000, flush=True)
spark.stop()
