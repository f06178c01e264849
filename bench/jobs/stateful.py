"""Deduplication in RocksDB, which keeps 1 KB of state for each row.

Arguments: rows per micro-batch, micro-batches in one turn, turns, and the checkpoints that take turns. Prints what
each micro-batch took: "<number of the checkpoint> <seconds>", preceded by FIRST for a turn's first one, which reads
the state, else by BATCH.
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

for _ in range(turns):
    for number, checkpoint in enumerate(checkpoints):
        query = stream.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
        while len([progress for progress in query.recentProgress if progress["numInputRows"]]) < batches:
            if query.exception() is not None:
                raise SystemExit(str(query.exception()))
            time.sleep(0.05)
        done = [progress for progress in query.recentProgress if progress["numInputRows"]][:batches]
        query.stop()
        for place, progress in enumerate(done):
            print("BATCH" if place else "FIRST", number, progress["batchDuration"] / 1000, flush=True)
spark.stop()
