"""Readings per station and ten seconds, version 1: python v1.py DIRECTORY"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

place = sys.argv[1]
spark = SparkSession.builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
readings = spark.readStream.schema("station STRING, at TIMESTAMP, celsius LONG").json(f"{place}/in")

counts = readings.withWatermark("at", "10 seconds").groupBy(F.window("at", "10 seconds"), "station").count()
windows = counts.select(F.col("window.start").alias("start"), "station", F.col("count").alias("readings"))
windows.writeStream.queryName("windows").format("json").start(f"{place}/windows")

spark.streams.awaitAnyTermination()
