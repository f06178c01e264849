"""A sample of what jobs do, which compiles a JVM's code before a job needs it.

It contains no ``foreachBatch`` and no Python listener: py4j would later delete the object of that number in the Python
process that is connected by then, which is the job's own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

ROUNDS = 2  # the JVM compiles most of the code at the second round
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_HDFS_BACKED, _ROCKS_DB = (
    f"org.apache.spark.sql.execution.streaming.state.{name}StateStoreProvider" for name in ("HDFSBacked", "RocksDB")
)
_ROWS = 5000  # of a micro-batch: enough for loops over rows to be compiled


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
    """Run stateful streaming queries, over the lines that ``run_batch`` has written among others."""
    run_restarts(spark, str(directory / "checkpoint-keys"))
    windows = _rates(spark).withWatermark("timestamp", "1 second").groupBy("timestamp").count()
    _to_the_end(windows, str(directory / "checkpoint-windows"), "append")
    run_restarts(spark, str(directory / "checkpoint-rocks-db"), _ROCKS_DB)
    lines = spark.readStream.text(str(directory / "lines"))
    _to_the_end(lines.groupBy("value").count(), str(directory / "checkpoint-lines"), "update")


def run_restarts(spark: Any, checkpoint: str, provider: str = _HDFS_BACKED) -> None:
    """Run a query, and start it again: it reads its state, as after the loss of a driver.

    ``checkpoint``: its path or URI. ``provider``: class of its state stores, which later queries use, too.
    """
    spark.conf.set(_PROVIDER, provider)
    rates = _rates(spark)
    keys = rates.groupBy((rates.value % (2 * _ROWS)).alias("key")).count()
    for _ in range(2):
        _to_the_end(keys, checkpoint, "update")


def _rates(spark: Any) -> Any:
    return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", str(_ROWS)).load()


def _to_the_end(frame: Any, checkpoint: str, mode: str) -> None:
    writer = frame.writeStream.outputMode(mode).format("noop").option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()
