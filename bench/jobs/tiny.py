"""A batch job that is nothing but start-up: one small action. Prints when its first task had run (Unix seconds)."""

import time

from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("bench-tiny").getOrCreate()
total = spark.sparkContext.parallelize(range(100), 2).map(lambda x: x + 1).sum()
print(f"FIRST_TASK {time.time():.3f} {total}", flush=True)
spark.stop()
