"""A stateful streaming job that commits a micro-batch every 5 seconds, until it is ended.

Arguments: the checkpoint's directory, the number of keys. Each key has a state of about 100 bytes.
"""

import sys

from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("bench-recovering").config("spark.sql.shuffle.partitions", "2").getOrCreate()
rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 20_000).option("numPartitions", 2).load()
counts = rows.groupBy((rows.value % int(sys.argv[2])).alias("key")).count()
writer = counts.writeStream.outputMode("update").format("noop").trigger(processingTime="5 seconds")
writer.option("checkpointLocation", sys.argv[1]).start().awaitTermination()
