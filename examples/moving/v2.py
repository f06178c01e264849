"""Readings per station and ten seconds, version 2: an end for each window, and frost in an output of its own."""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

place = sys.argv[1]
spark = SparkSession.builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
readings = spark.readStream.schema("station STRING, at TIMESTAMP, celsius LONG").json(f"{place}/in")

# The same query: its name, its source and what it keeps in state are those of version 1. What is done with the counts
# may change.
counts = readings.withWatermark("at", "10 seconds").groupBy(F.window("at", "10 seconds"), "station").count()
windows = counts.select("window.start", "window.end", F.upper("station").alias("station"), "count")
windows.withColumnRenamed("count", "readings").writeStream.queryName("windows").format("json").start(f"{place}/windows")

# A new query, after those that continue: it is not in the savepoint, so it starts at the beginning of its input.
frost = readings.where("celsius < 0").select("station", "at", "celsius")
frost.writeStream.queryName("frost").format("json").start(f"{place}/frost")

spark.streams.awaitAnyTermination()
