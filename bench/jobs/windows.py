"""A streaming job that counts rows in windows, until it is stopped.

Arguments: directory for its checkpoint. With a second one, a directory for a copy, it stops by itself after some
micro-batches, between two of them, and copies and syncs the checkpoint, as is done by hand. It prints then when that
began (LEFT, Unix seconds), and the seconds that each part took (STOPPED, COPIED).
"""

import subprocess
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

checkpoint, copies = Path(sys.argv[1]), sys.argv[2:]
spark = SparkSession.builder.appName("bench-windows").config("spark.sql.shuffle.partitions", "2").getOrCreate()
rates = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10_000).option("numPartitions", 1)
rows = rates.option("advanceMillisPerBatch", 1_000).load().withWatermark("timestamp", "5 seconds")
counts = rows.groupBy(f.window("timestamp", "10 seconds"), f.col("value") % 10_000).count()
query = counts.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
if not copies:
    query.awaitTermination()
    sys.exit()
while len(list((checkpoint / "commits").glob("[0-9]*"))) < 10 or query.status["isTriggerActive"]:
    time.sleep(0.005)
print("LEFT", f"{time.time():.3f}", flush=True)
begin = time.perf_counter()
query.stop()
print("STOPPED", f"{time.perf_counter() - begin:.3f}", flush=True)
begin = time.perf_counter()
subprocess.run(["cp", "-r", str(checkpoint), copies[0]], check=True)
subprocess.run(f"find {copies[0]} -print0 | xargs -0 sync", shell=True, check=True)
print("COPIED", f"{time.perf_counter() - begin:.3f}", flush=True)
spark.stop()
