"""Python workers at full load: counts primes. Arguments: repetitions, and where to stop counting."""

import sys
import time

from pyspark.sql import SparkSession
from timing import repeat  # type: ignore[import-not-found]  # comes with --py-files


def primes_below(bounds: tuple[int, int]) -> int:
    """How many primes lie in [low, high)."""
    low, high = bounds
    return sum(all(n % d for d in range(2, int(n**0.5) + 1)) for n in range(max(low, 2), high))


def count() -> int:
    """Primes in all blocks, in 16 tasks."""
    return int(spark.sparkContext.parallelize(blocks, 16).map(primes_below).sum())


repetitions, size = int(sys.argv[1]), int(sys.argv[2])
spark = SparkSession.builder.appName("bench-cpu").getOrCreate()
blocks = [(low, low + 2000) for low in range(0, size, 2000)]
while spark.sparkContext.defaultParallelism < 2:  # both executors, on every side
    time.sleep(0.1)
repeat(count, repetitions)
spark.stop()
