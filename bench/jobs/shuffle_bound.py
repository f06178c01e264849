"""Shuffles: repartition and aggregate. Arguments: repetitions, rows."""

import sys
import time

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from timing import repeat  # type: ignore[import-not-found]  # comes with --py-files


def count_groups() -> int:
    """Every row crosses the network twice."""
    table = spark.range(rows).select((F.col("id") * 7919 % 100_003).alias("key"), F.rand(7).alias("value"))
    return table.repartition(16, "value").groupBy("key").agg(F.sum("value"), F.count("*")).count()


repetitions, rows = int(sys.argv[1]), int(sys.argv[2])
spark = (
    SparkSession.builder.appName("bench-shuffle")
    .config("spark.sql.shuffle.partitions", "16")
    .config("spark.sql.adaptive.enabled", "false")
    .getOrCreate()
)
while spark.sparkContext.defaultParallelism < 2:  # both executors, on every side
    time.sleep(0.1)
repeat(count_groups, repetitions)
spark.stop()
