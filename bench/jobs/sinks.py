"""The same stream into Spark's own Parquet file sink and into the rolling file sink, in turns.

Arguments: directory, rows per micro-batch, micro-batches, turns. Prints "SPARK <seconds> <files>" and "ROLLING
<seconds> <files>" for each turn after one that warms up: from the start of the query until all rows are visible.
"""

import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from emberkeep.api import RollingFileSink

base, rows, batches, turns = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
spark = SparkSession.builder.appName("bench-sinks").getOrCreate()
source = str(base / "source")
columns = ("id", "id * 7 % 1000 AS key", "sha2(CAST(id AS STRING), 256) AS text", "rand(1) AS number")
spark.range(rows * batches).repartitionByRange(batches, "id").selectExpr(*columns).write.parquet(source)
schema = spark.read.parquet(source).schema


def stream() -> DataFrame:
    # A micro-batch is one file, in two partitions as a cluster of two cores would have it.
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(source).repartition(2)


def plain(output: Path) -> None:
    writer = stream().writeStream.format("parquet").trigger(availableNow=True)
    writer.option("checkpointLocation", f"{output}-checkpoint").start(str(output)).awaitTermination()


def rolling(output: Path) -> None:
    with RollingFileSink(str(output)) as sink:
        writer = stream().writeStream.foreachBatch(sink).trigger(availableNow=True)
        writer.option("checkpointLocation", f"{output}-checkpoint").start().awaitTermination()


for turn in range(turns + 1):
    sides = (("SPARK", plain), ("ROLLING", rolling))
    for name, write in sides if turn % 2 else reversed(sides):
        output = base / f"{name}-{turn}"
        begin = time.perf_counter()
        write(output)
        seconds = time.perf_counter() - begin
        found = spark.read.parquet(str(output))
        if (found.count(), found.select("id").distinct().count()) != (rows * batches, rows * batches):
            raise SystemExit(f"{name}: rows are missing or duplicated")
        if turn > 0:
            print(name, f"{seconds:.3f}", len(list(output.glob("*.parquet"))), flush=True)
spark.stop()
