"""A batch job, as users write it. Arguments: a directory and what to compute. It writes rows (a, k, c) into ``out``."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

SLOW = 0.4  # seconds that each task takes at least, so that faults meet it


def slowly(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    time.sleep(SLOW)
    yield from frames


def shuffled(spark: Any, rows: Any) -> Any:
    counted = rows.groupBy("k", f.expr("unix_timestamp(t) div 60").alias("m")).agg(f.count("*").alias("c"))
    both = rows.withColumn("m", f.expr("unix_timestamp(t) div 60")).join(counted.hint("shuffle_hash"), ["k", "m"])
    return both.select(f.col("n").alias("a"), "k", "c").repartition(6).mapInPandas(slowly, "a long, k string, c long")


def cached(spark: Any, rows: Any) -> Any:
    kept = rows.repartition(6).mapInPandas(slowly, "k string, n long, t timestamp").cache()
    found = None
    for divisor in range(1, 7):
        part = kept.where(f.col("n") % divisor == 0).groupBy("k").agg(f.count("*").alias("c"))
        got = [(divisor, row.k, row.c) for row in part.collect()]
        frame = spark.createDataFrame(got, "a long, k string, c long")
        found = frame if found is None else found.union(frame)
    return found


def committed(spark: Any, rows: Any) -> Any:
    result = rows.select(f.unix_timestamp("t").alias("a"), "k", f.col("n").alias("c"))
    return result.repartition(12).mapInPandas(slowly, "a long, k string, c long")


def main() -> None:
    place, kind = Path(sys.argv[1]), sys.argv[2]
    spark = SparkSession.builder.config("spark.sql.shuffle.partitions", "4").getOrCreate()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    rows = spark.read.schema("k string, n long, t timestamp").json(str(place / "in"))
    result = {"shuffled": shuffled, "cached": cached, "committed": committed}[kind](spark, rows)
    result.write.mode("overwrite").parquet(str(place / "out"))
    spark.stop()


if __name__ == "__main__":
    main()
