"""A chain of two stateful operators over the flights: each aircraft's rotations, and how many ended on each day.

A *rotation* is a session of the flights of one aircraft, at most six hours (and half a minute) apart. Flights without
a tail number count as those of one aircraft. It takes the options of the example pipeline.
"""

import argparse
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

SCHEMA = (
    "sched_dep TIMESTAMP, origin STRING, dest STRING, carrier STRING, flight INT, tailnum STRING, "
    "dep_delay INT, arr_delay INT"
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", type=Path)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--trigger")
    parser.add_argument("--files-per-batch", type=int)
    options = parser.parse_args()

    spark = SparkSession.builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    spark.conf.set("spark.sql.shuffle.partitions", "4")
    source = (
        spark.readStream.schema(SCHEMA).option("header", True).option("maxFilesPerTrigger", options.files_per_batch)
    )
    flights = source.csv(str(options.input)).withWatermark("sched_dep", "5 days")
    aircraft = F.coalesce("tailnum", F.lit("unknown")).alias("aircraft")
    rotations = flights.groupBy(F.session_window("sched_dep", "21630 seconds"), aircraft).agg(
        F.count("*").alias("legs")
    )
    days = rotations.groupBy(F.window(F.window_time("session_window"), "1 day")).agg(
        F.count("*").alias("rotations"), F.sum("legs").alias("legs"), F.max("legs").alias("longest")
    )

    def write_batch(batch: DataFrame, batch_id: int) -> None:
        batch.select(F.col("window.start").alias("day"), "rotations", "legs", "longest").write.mode(
            "overwrite"
        ).parquet(str(options.output / f"batch={batch_id}"))

    writer = days.writeStream.queryName("rotations").outputMode("append").foreachBatch(write_batch)
    query = writer.trigger(processingTime=options.trigger).start()
    while not (options.input / "_DONE").exists():
        if query.awaitTermination(1):
            return
    query.processAllAvailable()
    query.stop()


main()
