"""Departure and arrival delays per hour, origin airport and carrier, from flights that arrive as CSV files.

An ordinary PySpark script; nothing in it knows what runs it:

    spark-submit --master 'local[2]' examples/flights/pipeline.py --input DIR --output DIR
    emberkeep run examples/flights/pipeline.py --input DIR --output DIR

- Event time is the scheduled departure. A window closes when the watermark, five days behind the latest departure
  seen, has passed its end. Two files of the default feed span less than that, so neighbours taken in the wrong order
  lose nothing.
- Sums and counts are whole numbers: the result is exact and does not depend on the order of rows. A mean is a sum
  divided by its count.
- Each micro-batch writes `batch=<id>` below the output by overwriting it, so a batch that runs again replaces what it
  had written.
- It ends by itself once `_DONE` is in the input and everything before it has been processed. Windows that the
  watermark has not passed then stay unwritten, as always in append mode; the feed's closing row moves the watermark
  beyond the last flight. With `--until-stopped` it waits for more flights instead, until it is stopped:
  `emberkeep stop --drain` writes all windows that are still open.
"""

import argparse
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows
from pyspark.sql.streaming.query import StreamingQuery

SCHEMA = (
    "sched_dep TIMESTAMP, origin STRING, dest STRING, carrier STRING, flight INT, tailnum STRING, "
    "dep_delay INT, arr_delay INT"
)
WINDOW = "1 hour"
WATERMARK = "5 days"


def read_flights(spark: SparkSession, directory: str, files_per_batch: int) -> DataFrame:
    """The stream of flights. A file that does not fit the schema fails the query instead of becoming nulls."""
    return (
        spark.readStream.schema(SCHEMA)
        .option("header", True)
        .option("enforceSchema", False)
        .option("mode", "FAILFAST")
        .option("maxFilesPerTrigger", files_per_batch)
        .csv(directory)
    )


def delays(flights: DataFrame) -> DataFrame:
    """One row per window, origin and carrier. A flight without a departure delay was cancelled."""
    return (
        flights.withWatermark("sched_dep", WATERMARK)
        .groupBy(F.window("sched_dep", WINDOW), "origin", "carrier")
        .agg(
            F.count("*").alias("flights"),
            F.count_if(F.col("dep_delay").isNull()).alias("cancelled"),
            F.count("arr_delay").alias("arrived"),
            F.coalesce(F.sum("dep_delay"), F.lit(0)).alias("dep_delay_sum"),
            F.max("dep_delay").alias("dep_delay_max"),
            F.coalesce(F.sum("arr_delay"), F.lit(0)).alias("arr_delay_sum"),
            F.max("arr_delay").alias("arr_delay_max"),
        )
        .select(F.col("window.start").alias("window_start"), "*")
        .drop("window")
    )


def start(results: DataFrame, output: Path, checkpoint: str | None, trigger: str | None) -> StreamingQuery:
    """Start the query. Without a checkpoint location Spark, or whatever runs the script, chooses one."""

    def write_batch(batch: DataFrame, batch_id: int) -> None:
        if batch_id == 0 and any(path.name != "batch=0" for path in output.glob("batch=*")):
            # Their batches would mix with ours and every window would count twice.
            raise ValueError(
                f"{output} holds batches of another run, and this one starts from nothing: "
                "give an empty output, or the checkpoint that belongs to it"
            )
        batch.write.mode("overwrite").parquet(str(output / f"batch={batch_id}"))

    writer = results.writeStream.queryName("flights").outputMode("append").foreachBatch(write_batch)
    if checkpoint is not None:
        writer = writer.option("checkpointLocation", checkpoint)
    if trigger is not None:
        writer = writer.trigger(processingTime=trigger)
    return writer.start()


def run_until_done(query: StreamingQuery, marker: Path, *, until_stopped: bool) -> None:
    """Wait for the marker, let the query finish what was there before it, and stop the query, or wait on.

    Raises what the query failed with. Returns early if the query was stopped in another way.
    """
    while not marker.exists():
        if query.awaitTermination(1):
            return
    # The marker is written last: every file is listed from here on. Waits also for the batch without data that closes
    # the windows which the last rows have moved the watermark past.
    query.processAllAvailable()
    if until_stopped:
        print(f"everything before {marker.name} has been processed", flush=True)
        query.awaitTermination()
    else:
        query.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description="Hourly delays per origin airport and carrier.")
    parser.add_argument("--input", type=Path, required=True, help="directory with the flights")
    parser.add_argument("--output", type=Path, required=True, help="directory for the Parquet files")
    parser.add_argument("--checkpoint", help="checkpoint location (default: Spark's)")
    parser.add_argument("--trigger", help="shortest time between micro-batches, such as '2 seconds' (default: none)")
    parser.add_argument("--files-per-batch", type=int, default=4, help="files for each micro-batch (default: 4)")
    parser.add_argument("--until-stopped", action="store_true", help="continue after _DONE until the query is stopped")
    options = parser.parse_args()

    spark = (
        SparkSession.builder.appName("flights")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", 6)
        .config(
            "spark.sql.streaming.stateStore.providerClass",
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        )
        .getOrCreate()
    )
    flights = read_flights(spark, str(options.input), options.files_per_batch)
    query = start(delays(flights), options.output, options.checkpoint, options.trigger)
    run_until_done(query, options.input / "_DONE", until_stopped=options.until_stopped)
    spark.stop()


if __name__ == "__main__":
    main()
