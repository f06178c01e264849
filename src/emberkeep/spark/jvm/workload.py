"""A sample of what jobs do, which compiles a JVM's code before a job needs it.

It contains no ``foreachBatch`` and no Python listener: py4j would later delete the object of that number in the Python
process that is connected by then, which is the job's own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

ROUNDS = 2  # the JVM compiles most of the code at the second round
_ROCKS_DB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def run_batch(spark: Any, directory: Path) -> None:
    """Run batch queries of each common kind; ``directory`` is for their files."""
    from pyspark.sql.functions import col, udf, window

    spark.sparkContext.parallelize(range(100), 4).map(lambda number: (number % 3, number)).groupByKey().count()
    double = udf(lambda number: 2 * number, "long")
    numbers = spark.range(1000).withColumn("twice", double("id"))
    numbers.write.mode("overwrite").parquet(str(directory / "numbers"))
    stored = spark.read.parquet(str(directory / "numbers"))
    timed = stored.join(spark.range(500), "id").withColumn("at", col("id").cast("timestamp"))
    timed.groupBy(window("at", "1 minute")).count().orderBy("window").collect()
    spark.range(1000).selectExpr("sum(id)").first()
    stored.limit(10).toPandas()
    stored.selectExpr("cast(id as string) as value").write.mode("overwrite").text(str(directory / "lines"))


def run_streams(spark: Any, directory: Path) -> None:
    """Run stateful streaming queries over the lines that ``run_batch`` has written."""
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", _ROCKS_DB)
    lines = spark.readStream.text(str(directory / "lines"))
    counts = lines.groupBy("value").count()
    _to_the_end(counts, directory / "checkpoint-counts", "update")
    rates = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "100").load()
    windows = rates.withWatermark("timestamp", "1 second").groupBy("timestamp").count()
    _to_the_end(windows, directory / "checkpoint-windows", "append")


def _to_the_end(frame: Any, checkpoint: Path, mode: str) -> None:
    writer = frame.writeStream.outputMode(mode).format("noop").option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()
