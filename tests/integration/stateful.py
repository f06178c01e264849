"""Streaming queries of every kind with state, unaware of where it is kept, and the check of their output.

All read the numbers 0, 1, 2, … in batches of a known size, so the right answer after any batch is known without Spark.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.integration.conditions import until

ROWS = 20  # of each source in each batch
KEYS = 5
RESTARTS = 2  # of one query whose Python worker started too late

# Arguments: a directory; numbers of partitions and of executors that the first batch waits for; names of queries. Ends
# once a file "finish" is there; while "hold" is there each batch waits at its end. One query names its own checkpoint.
SCRIPT = f"""
import json, os, sys, time
from pathlib import Path
from pyspark.sql import SparkSession, functions as F

place, partitions, executors, wanted = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4:]
spark = SparkSession.builder.config("spark.sql.shuffle.partitions", partitions).getOrCreate()
while not (place / wanted[0]).exists() and spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() <= executors:
    time.sleep(0.2)
PACKAGE = "org.apache.spark.sql.execution.streaming.state."


def numbers():
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", {ROWS}).option("numPartitions", 2)
    return source.load().withColumn("key", F.col("value") % {KEYS})


def sums():
    return numbers().groupBy("key").agg(F.count("*").alias("count"), F.sum("value").alias("sum")), "update"


def distinct():
    return numbers().select((F.col("value") - F.col("value") % 2).alias("even")).dropDuplicates(), "append"


def joined():
    left, right = numbers(), numbers().select((F.col("value") * 2).alias("value"), F.col("value").alias("half"))
    return left.join(right, "value").select("value", "half"), "append"


def counted():
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Count(StatefulProcessor):
        def init(self, handle):
            self.state = handle.getValueState("count", "count long")

        def handleInputRows(self, key, rows, timers):
            count = (self.state.get()[0] if self.state.exists() else 0) + sum(len(part) for part in rows)
            self.state.update((count,))
            yield pd.DataFrame({{"key": [key[0]], "count": [count]}})

        def close(self):
            pass

    return numbers().groupBy("key").transformWithStateInPandas(
        Count(), outputStructType="key long, count long", outputMode="update", timeMode="none"
    ), "update"


QUERIES = {{  # by name: the query, the store, with changelog, format of the state store's checkpoints
    "sums": (sums, "RocksDBStateStoreProvider", True, 2),
    "distinct": (distinct, "RocksDBStateStoreProvider", False, 1),
    "joined": (joined, "HDFSBackedStateStoreProvider", False, 1),
    "counted": (counted, "RocksDBStateStoreProvider", True, 1),
}}


def store(name):
    def write(frame, number):
        directory = place / name
        directory.mkdir(exist_ok=True)
        aside = directory / f"unfinished-{{os.getpid()}}"
        aside.write_text(json.dumps(sorted(tuple(row) for row in frame.collect())))
        aside.rename(directory / f"batch-{{number}}")
        while (place / "hold").exists():
            (place / "held").touch()
            time.sleep(0.1)
    return write


def start(name):
    query, provider, changelog, version = QUERIES[name]
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", PACKAGE + provider)
    spark.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", changelog)
    spark.conf.set("spark.sql.streaming.stateStore.checkpointFormatVersion", version)
    frame, mode = query()
    writer = frame.writeStream.queryName(name).outputMode(mode).trigger(processingTime="500 milliseconds")
    if name == "distinct":
        writer = writer.option("checkpointLocation", str(place / "own checkpoint"))
    return writer.foreachBatch(store(name)).start()


PYTHON_WORKERS, restarted = {{"counted"}}, []
running = {{name: start(name) for name in wanted}}
while not (place / "finish").exists():
    time.sleep(0.2)
    for name, query in running.items():
        if query.exception() is not None:
            # Spark gives its Python workers ten seconds to start, which is too short on a busy machine.
            late = name in PYTHON_WORKERS and "worker failed to connect back" in str(query.exception())
            if not late or restarted.count(name) == {RESTARTS}:
                raise query.exception()
            restarted.append(name)
            with (place / "restarts").open("a") as restarts:
                restarts.write(f"query {{name}}: {{query.exception()}}".splitlines()[0] + "\\n")
            running[name] = start(name)
for query in running.values():
    query.stop()
spark.stop()
"""


class StatefulQueries:
    """The output below ``place``."""

    def __init__(self, place: Path, *names: str, partitions: int = 2, executors: int = 0) -> None:
        """``executors``: that the very first batch waits for."""
        self.place = place
        self.names = names
        self.arguments = (str(place), str(partitions), str(executors), *names)
        place.mkdir()

    def batches(self) -> int:
        """How many batches are there of the query that has the fewest."""
        return min(len(list((self.place / name).glob("batch-*"))) for name in self.names)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Of a single query: no task of it runs meanwhile, a batch waits for its end."""
        (self.place / "hold").touch()
        until((self.place / "held").exists, "a batch waits for its end")
        yield
        (self.place / "hold").unlink()
        (self.place / "held").unlink()

    def finish(self) -> None:
        (self.place / "finish").touch()

    def restarts(self) -> list[str]:
        """Return a line for each query that the script has started again, to be shown in the summary of the run."""
        path = self.place / "restarts"
        return path.read_text().splitlines() if path.exists() else []

    def check(self) -> None:
        """The output of each query is that of a batch job over what it has read."""
        for name in self.names:
            paths = (self.place / name).glob("batch-*")
            batches = {int(path.name.partition("-")[2]): json.loads(path.read_text()) for path in paths}
            assert sorted(batches) == list(range(len(batches))), name
            found, expected = _ANSWERS[name]([batches[number] for number in sorted(batches)], len(batches) * ROWS)
            assert found == expected, name


def _last_by_key(batches: list[list[list[int]]]) -> dict[int, list[int]]:
    return {row[0]: row[1:] for batch in batches for row in batch}


def _sums(batches: list[list[list[int]]], count: int) -> tuple[Any, Any]:
    values = {key: range(key, count, KEYS) for key in range(KEYS)}
    return _last_by_key(batches), {key: [len(each), sum(each)] for key, each in values.items()}


def _counted(batches: list[list[list[int]]], count: int) -> tuple[Any, Any]:
    return _last_by_key(batches), {key: [len(range(key, count, KEYS))] for key in range(KEYS)}


def _distinct(batches: list[list[list[int]]], count: int) -> tuple[Any, Any]:
    return Counter(row[0] for batch in batches for row in batch), Counter(range(0, count, 2))


def _joined(batches: list[list[list[int]]], count: int) -> tuple[Any, Any]:
    expected = Counter((2 * half, half) for half in range(count) if 2 * half < count)
    return Counter((row[0], row[1]) for batch in batches for row in batch), expected


_ANSWERS: dict[str, Callable[[list[list[list[int]]], int], tuple[Any, Any]]] = {
    "counted": _counted,
    "sums": _sums,
    "distinct": _distinct,
    "joined": _joined,
}
