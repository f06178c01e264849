"""A batch job of one SQL query. Prints when it had the result (Unix seconds)."""

import time

from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("bench-first-result").getOrCreate()
total = spark.range(1_000_000).selectExpr("sum(id)").collect()[0][0]
print(f"FIRST_RESULT {time.time():.3f} {total}", flush=True)
spark.stop()
