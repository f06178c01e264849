"""A streaming job that notes when each of its micro-batches was written (Unix seconds), until it is ended.

Arguments: the file to write to, the interval between two triggers (milliseconds).
"""

import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.builder.appName("bench-ticking").config("spark.sql.shuffle.partitions", "1").getOrCreate()
rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).option("numPartitions", 1).load()


def note(frame: DataFrame, number: int) -> None:
    """A batch has come out: its rows are there."""
    count = frame.count()
    with Path(sys.argv[1]).open("a") as file:
        file.write(f"{number} {time.time():.3f} {count}\n")


rows.writeStream.trigger(processingTime=f"{sys.argv[2]} milliseconds").foreachBatch(note).start().awaitTermination()
