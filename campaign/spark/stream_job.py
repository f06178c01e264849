"""A script with streaming queries, as users write them. Arguments: a directory, and the plan of the queries as JSON.

It knows nothing of faults, savepoints or restarts. Each query writes rows (a, k, c) below ``out/<its name>``.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from emberkeep.api import RollingFileSink

STORES = "org.apache.spark.sql.execution.streaming.state."
FAR = 1_900_000_000_000  # ms: after all event times, so only a drain reaches it
RESULT = "a long, k string, c long"


def none() -> pd.DataFrame:
    return pd.DataFrame({"a": pd.Series(dtype="int64"), "k": pd.Series(dtype="str"), "c": pd.Series(dtype="int64")})


class Count(StatefulProcessor):
    """Counts the rows of a key, and gives the number when its timer expires."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.count = handle.getValueState("count", "c long")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802,N803
        count = self.count.get()[0] if self.count.exists() else 0
        if not count:
            self.handle.registerTimer(FAR)
        self.count.update((count + sum(len(frame) for frame in rows),))
        yield none()

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:  # noqa: N802,N803
        (count,) = self.count.get()
        self.count.clear()
        yield pd.DataFrame({"a": [0], "k": [key[0]], "c": [count]})

    def close(self) -> None:
        """Nothing is held."""


def windows(rows: Any) -> Any:
    counted = rows.groupBy(f.window("t", "10 seconds"), "k").agg(f.count("*").alias("c"))
    return counted.select(f.unix_timestamp(f.col("window.start")).alias("a"), "k", "c")


def sessions(rows: Any) -> Any:
    counted = rows.groupBy(f.session_window("t", "4500 milliseconds"), "k").agg(f.count("*").alias("c"))
    return counted.select(f.unix_timestamp(f.col("session_window.start")).alias("a"), "k", "c")


def joined(rows: Any) -> Any:
    left = rows.where("n % 2 = 0").select("k", f.col("t").alias("lt"), f.col("n").alias("ln"))
    right = rows.where("n % 2 = 1").select(f.col("k").alias("rk"), f.col("t").alias("rt"), f.col("n").alias("rn"))
    on = f.expr("k = rk and rt >= lt and rt <= lt + interval 2 seconds")
    both = left.join(right, on, "leftOuter")
    return both.select(f.col("ln").alias("a"), "k", f.coalesce("rn", f.lit(-1)).alias("c"))


def distinct(rows: Any) -> Any:
    return rows.dropDuplicatesWithinWatermark(["k", "n"]).select(f.col("n").alias("a"), "k", f.lit(1).alias("c"))


def counted(rows: Any) -> Any:
    return rows.groupBy("k").transformWithStateInPandas(Count(), RESULT, "append", "eventtime")


def passed(rows: Any) -> Any:
    return rows.select(f.unix_timestamp("t").alias("a"), "k", f.col("n").alias("c"))


KINDS = {each.__name__: each for each in (windows, sessions, joined, distinct, counted, passed)}


def into_sqlite(path: Path, planted: str) -> Callable[[Any, int], None]:
    """Replace the rows of a batch in one transaction, so that a repeated batch changes nothing."""

    def write(frame: Any, batch: int) -> None:
        rows = [(batch, row.a, row.k, row.c) for row in frame.collect()]
        if planted == "dropped row" and batch % 3 == 2:
            rows = rows[:-1]
        with closing(sqlite3.connect(path, timeout=60, isolation_level=None)) as database:
            database.execute("create table if not exists rows (batch integer, a integer, k text, c integer)")
            database.execute("begin immediate")
            database.execute("delete from rows where batch = ?", (batch,))
            database.executemany("insert into rows values (?, ?, ?, ?)", rows)
            database.execute("commit")

    return write


def into_parquet(directory: Path) -> Callable[[Any, int], None]:
    """Write a batch aside and rename it, so that two attempts may write the same batch at once."""

    def write(frame: Any, batch: int) -> None:
        aside = directory / f".aside-{batch}-{os.getpid()}"
        frame.write.mode("overwrite").parquet(str(aside))
        try:
            aside.rename(directory / f"batch-{batch}")
        except OSError:  # it is there already
            shutil.rmtree(aside)

    return write


def main() -> None:
    place, plan = Path(sys.argv[1]), json.loads(sys.argv[2])
    spark = SparkSession.builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", plan["empty_batches"])
    for query in plan["queries"]:
        name = f"{query['kind']}-{query['sink']}"
        store = "RocksDBStateStoreProvider" if query["rocks"] else "HDFSBackedStateStoreProvider"
        spark.conf.set("spark.sql.streaming.stateStore.providerClass", STORES + store)
        spark.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", query["changelog"])
        read = spark.readStream.schema("k string, n long, t timestamp")
        rows = read.option("maxFilesPerTrigger", plan["files_per_batch"]).json(str(place / "in"))
        result = KINDS[query["kind"]](rows.withWatermark("t", "15 seconds"))
        writer = result.writeStream.queryName(name).outputMode("append").trigger(processingTime="500 milliseconds")
        start(writer, query["sink"], place / "out" / name, plan["planted"])
    running = spark.streams.active
    spark.streams.awaitAnyTermination()
    for each in running:
        each.awaitTermination()


def start(writer: Any, sink: str, output: Path, planted: str) -> None:
    if sink == "files":
        writer.format("json").start(str(output))
        return
    if sink == "rolling":
        # Some rows become visible while the stream runs, most of them only at its end.
        writer.foreachBatch(RollingFileSink(str(output), max_rows=40, max_age=None)).start()
        return
    output.mkdir(parents=True, exist_ok=True)
    writer.foreachBatch(into_sqlite(output / "rows.db", planted) if sink == "sqlite" else into_parquet(output)).start()


if __name__ == "__main__":
    main()
