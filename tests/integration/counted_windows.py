"""A streaming job that counts rows in windows, as an unmodified script; its input, its output, and the right answer."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path

from emberkeep.base.ids import JobId
from tests.integration.clusters import Cluster
from tests.integration.input_files import put_input

START = 1_600_000_000

# It knows nothing of savepoints: it waits for its query, and does something afterwards.
SCRIPT = """
import json, os, sys
from pathlib import Path
from pyspark.sql import SparkSession, functions as F

place = Path(sys.argv[1])
spark = SparkSession.builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()

def store(frame, number):
    aside = place / f"unfinished-{os.getpid()}"
    aside.write_text(json.dumps([list(row) for row in frame.collect()]))
    aside.rename(place / "out" / f"batch-{number}")

rows = spark.readStream.schema("k string, t timestamp").option("maxFilesPerTrigger", 1).json(str(place / "in"))
windows = rows.withWatermark("t", "5 seconds").groupBy(F.window("t", "10 seconds"), "k").count()
counts = windows.select(F.unix_timestamp("window.start"), "k", "count")
counts.writeStream.queryName("counts").foreachBatch(store).start()
spark.streams.awaitAnyTermination()
with open(place / "afterwards", "a") as done:
    done.write("once\\n")
"""


class Rows:
    """The input and the output of the script."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._written: list[tuple[str, int]] = []
        for name in ("in", "out"):
            (place / name).mkdir(parents=True)

    def more(self) -> None:
        """Another file: one row per second, twelve seconds."""
        first = len(self._written)
        rows = [("abc"[second % 3], second) for second in range(first, first + 12)]
        self._written += rows
        texts = [json.dumps({"k": key, "t": _time(second)}) for key, second in rows]
        put_input(self.place / "in" / f"{first:05}.json", "\n".join(texts))

    def counted(self) -> Counter[tuple[int, str]]:
        found: Counter[tuple[int, str]] = Counter()
        for path in (self.place / "out").glob("batch-*"):
            for start, key, count in json.loads(path.read_text()):
                assert (start, key) not in found, "no window comes out twice"
                found[start, key] += count
        return found

    def has_window(self, second: int) -> bool:
        return any(start == START + second for start, _ in self.counted())

    def answer(self) -> Counter[tuple[int, str]]:
        return Counter((START + second // 10 * 10, key) for key, second in self._written)

    def afterwards(self) -> int:
        path = self.place / "afterwards"
        return len(path.read_text().splitlines()) if path.exists() else 0


def _time(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(START + second))


def wait_for_window(cluster: Cluster, job: JobId, rows: Rows, second: int) -> None:
    cluster.wait_for(job, lambda _: rows.has_window(second), f"the window at {second} comes out")


def stopped(cluster: Cluster, job: JobId, *options: str) -> str:
    """Stop the job; returns the savepoint's path."""
    path = cluster.shell.done("stop", job, *options).out.strip().splitlines()[-1]
    cluster.wait_for_end(job)
    return path
