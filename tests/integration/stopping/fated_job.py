"""A job whose user functions write down what they are called for, and fail or kill a process where a test wants it.

    python fated_job.py <directory> <mode> [<directory of the checkpoints> [<name of the first query>]]

Mode "stream": the files of ``in`` are counted in windows by a query that ends in ``foreachBatch(Told)``, and their rows
go into ``visible`` by another one with a RollingFileSink. "handling": as "stream", with a handler of its own that lets
the script come to its end at SIGTERM. "batch": no query; "endless": as "batch", again and again, and an exit handler
stops Spark.

Each call is a line of ``calls``: job, attempt, process, number of visible files, who, what. ``fate`` is a JSON list of
[attempt, "who what", fate]: "raise", "die" (the driver is killed), "lose" (the executor is killed), "large" (of a
snapshot: more than the driver's JVM may write into one file).
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from emberkeep.api import RichFunction, RollingFileSink, current_job, on_executor, register

LARGEST_FILE = 12 * 2**20  # bytes
_MAX_WATERMARK = 253_402_300_799_999


class Calls:
    """Of one function. ``driver``: pid of the driver process."""

    def __init__(self, place: str, who: str, driver: int) -> None:
        self._place, self._who, self._driver = place, who, driver

    def __call__(self, what: str) -> str:
        """Write the call down and let its fate come; answers what the fate is."""
        job, place = current_job(), Path(self._place)
        visible = len(list(place.glob("visible/*.parquet")))
        with (place / "calls").open("a") as calls:
            calls.write(f"{job.job_id} {job.attempt} {os.getpid()} {visible} {self._who} {what}\n")
        for attempt, call, fate in json.loads((place / "fate").read_text()):
            if (attempt, call) == (job.attempt, f"{self._who} {what}"):
                self._suffer(fate)
                return str(fate)
        return ""

    def _suffer(self, fate: str) -> None:
        if fate == "raise":
            raise OSError("nobody answers")
        if fate == "die":
            os.kill(self._driver, signal.SIGKILL)
        if fate == "lose":  # the executor's JVM is the parent of the daemon that Python workers are forked from
            os.kill(_parent(os.getppid()), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


class Function(RichFunction):
    """What both kinds of functions do."""

    def __init__(self, place: str, who: str, driver: int) -> None:
        self.called = Calls(place, who, driver)

    def prepare_to_shutdown(self) -> None:
        self.called("prepare_to_shutdown")

    def snapshot_state(self) -> Any:
        self.called("snapshot_state")
        return {"place": "kept"}

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        del checkpoint_id
        self.called("notify_checkpoint_complete")

    def shutdown(self) -> None:
        self.called("shutdown")

    def close(self) -> None:
        self.called("close")


class Told(Function):
    """In the driver: keeps each batch's rows in a file of its own, beside the checkpoints. Its state is how often
    somebody has taken its state, in all attempts and jobs that it comes from."""

    def __init__(self, place: Path, checkpoints: Path) -> None:
        super().__init__(str(place), "driver", os.getpid())
        self._checkpoints = checkpoints
        self._taken = 0

    def snapshot_state(self) -> Any:
        if self.called("snapshot_state") == "large":
            return bytes(LARGEST_FILE + 1)
        self._taken += 1
        return {"taken": self._taken}

    def initialize_state(self, state: Any) -> None:
        self._taken = state["taken"]
        self.called(f"initialize_state {self._taken}")

    def __call__(self, frame: Any, batch: int) -> None:
        output = self._checkpoints / "out"
        output.mkdir(exist_ok=True)
        aside = output / f"unfinished-{os.getpid()}"
        aside.write_text(json.dumps([list(row) for row in frame.collect()]))
        aside.rename(output / f"batch-{batch}")
        planned = (self._checkpoints / "windows" / "offsets" / str(batch)).read_text().split("\n")[1]
        if json.loads(planned)["batchWatermarkMs"] == _MAX_WATERMARK:
            self.called("MAX_WATERMARK")


def through(worker: Callable[[], object]) -> Callable[[Iterable[Any]], Iterator[Any]]:
    def passed(frames: Iterable[Any]) -> Iterator[Any]:
        worker()
        yield from frames

    return passed


def write_down_savepoints(called: Calls) -> None:
    """The moments before a savepoint's manifest is written, when all its files are copied, and after that."""
    from emberkeep.spark.stopping import savepoint_copy

    module: Any = savepoint_copy
    original, original_write = module.encode_manifest, module.SavepointWriter.write

    def encode(manifest: Any) -> Any:
        called("savepoint")
        return original(manifest)

    def write(*arguments: Any) -> Any:
        written = original_write(*arguments)
        called("manifest")
        return written

    module.encode_manifest = encode
    module.SavepointWriter.write = write


def stop_all(spark: Any) -> None:
    for query in spark.streams.active:
        query.stop()


def main() -> None:
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    place, mode = Path(sys.argv[1]), sys.argv[2]
    checkpoints = Path(sys.argv[3]) if len(sys.argv) > 3 else place / "checkpoints"
    name = sys.argv[4] if len(sys.argv) > 4 else "windows"
    # The driver's JVM inherits it.
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    spark = SparkSession.builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()
    write_down_savepoints(Calls(str(place), "driver", os.getpid()))
    worker = on_executor(functools.partial(Function, str(place), "executor", os.getpid()), "worker")
    told = Told(place, checkpoints)
    if mode in ("batch", "endless"):
        register(told)
        if mode == "endless":
            atexit.register(spark.stop)
        while True:
            assert spark.range(4, numPartitions=1).mapInPandas(through(worker), "id long").count() == 4
            if mode == "batch":
                return
            told.called("goes on")
            time.sleep(1)
    rows = spark.readStream.schema("k string, t timestamp").option("maxFilesPerTrigger", 1).json(str(place / "in"))
    sink = RollingFileSink(str(place / "visible"), max_age=None)
    windows = rows.withWatermark("t", "5 seconds").groupBy(F.window("t", "10 seconds"), "k").count()
    counts = windows.select(F.unix_timestamp("window.start").alias("start"), "k", "count")
    counts = counts.mapInPandas(through(worker), "start long, k string, count long")
    for frame, called, path, function in ((counts, name, "windows", told), (rows, "rows", "rows", sink)):
        writer = frame.writeStream.queryName(called).option("checkpointLocation", str(checkpoints / path))
        writer.foreachBatch(function).start()
    if mode == "handling":
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=stop_all, args=(spark,)).start())
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main()
