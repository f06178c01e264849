"""A stream into a RollingFileSink under plain Spark, which kills its own processes at a chosen step of the sink.

    python rolling_sink_job.py <directory> <step to die at, "" for none> [check]

A step is named as in ``_STEPS``; with "check" the script ends with all that wants a running Spark and prints JSON.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
from pyspark.errors import StreamingQueryException

from emberkeep.api import RollingFileSink, current_job
from emberkeep.api.file_sink.hadoop_files import HadoopSinkFiles
from emberkeep.api.file_sink.local_files import LocalFiles
from emberkeep.api.file_sink.model import FileFormat
from emberkeep.api.file_sink.ports import SinkFiles
from emberkeep.api.file_sink.spark_frames import SparkFrames
from emberkeep.base.errors import Absent, Conflict, RetryLater

_FIELDS = "n int, day string, t timestamp"


def die_at(step: str) -> None:
    """``step``: "stage", "entry", "move" or "merge", then how many of them have been done before: "move+1"."""
    kind, _, before = step.partition("+")
    places: dict[str, tuple[Any, str]] = {
        "stage": (SparkFrames, "stage"),
        "merge": (SparkFrames, "merge"),
        "entry": (LocalFiles, "create"),
        "move": (LocalFiles, "move"),
    }
    owner, name = places[kind]
    original = getattr(owner, name)
    left = int(before)

    def dying(*arguments: Any, **named: Any) -> Any:
        nonlocal left
        if left == 0:
            os.killpg(0, signal.SIGKILL)
        left -= 1
        return original(*arguments, **named)

    setattr(owner, name, dying)


def feed(directory: Path, files: int, *, first: int = 0) -> None:
    directory.mkdir(exist_ok=True)
    for number in range(first, first + files):
        rows = [{"n": number * 20 + k, "day": f"0{k % 3}", "t": f"2026-01-0{1 + k % 5} 00:00:00"} for k in range(20)]
        (directory / f"f{number:04}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


def stream(spark: Any, base: Path, name: str, sink: Any, *, stateful: bool = False) -> Any:
    rows = spark.readStream.schema(_FIELDS).option("maxFilesPerTrigger", 1).json(str(base / "in"))
    if stateful:
        rows = rows.dropDuplicates(["n"])
    writer = rows.writeStream.option("checkpointLocation", str(base / f"checkpoint-{name}"))
    return writer.trigger(availableNow=True).foreachBatch(sink).start()


def planned_file(checkpoint: Path, batch: int) -> int:
    """Number of the file that Spark has planned for a batch; each has one."""
    log = checkpoint / "sources" / "0"
    path = next(path for path in (log / str(batch), log / f"{batch}.compact") if path.exists())
    entries = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    return next(int(Path(entry["path"]).stem.removeprefix("f")) for entry in entries if entry["batchId"] == batch)


def reading(base: Path, sink: RollingFileSink) -> Callable[[Any, int], None]:
    """The sink, and after every other of its batches, which is not committed then, everybody reads the output. Who has
    read is written to the file ``readers``."""
    output = base / "out"

    def write_and_read(frame: Any, batch: int) -> None:
        sink(frame, batch)
        if batch % 2 == 0 or not any(output.glob("**/*.parquet")):
            return
        found = {
            "spark": [row.n for row in frame.sparkSession.read.parquet(str(output)).collect()],
            "pandas": list(pd.read_parquet(output)["n"]),
            "duckdb": duckdb_rows(output),
        }
        waiting = planned_file(base / "checkpoint-out", batch)
        for reader, rows in found.items():
            assert sorted(rows) == sorted(found["spark"]), f"{reader} reads other rows than Spark"
            assert waiting not in {n // 20 for n in rows}, f"{reader} reads rows of batch {batch}"
            with (base / "readers").open("a") as readers:
                readers.write(f"{reader}\n")

    return write_and_read


def duckdb_rows(output: Path) -> list[int]:
    pattern = f"{output}/**/*.parquet"
    found = duckdb.execute("select n from read_parquet(?, hive_partitioning = true)", [pattern]).fetchall()
    return [int(row[0]) for row in found]


def main() -> None:
    from pyspark.sql import SparkSession

    base, step, checks = Path(sys.argv[1]), sys.argv[2], sys.argv[3:] == ["check"]
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "600m")
        .config("spark.driver.defaultJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    if step:
        die_at(step)
    sink = RollingFileSink(str(base / "out"), partition_by="day", max_bytes=100_000, max_rows=60, max_age=None)
    with sink:
        query = stream(spark, base, "out", reading(base, sink), stateful=True)
        query.awaitTermination()
    results: dict[str, Any] = {"job": bool(current_job())}
    if checks:
        results["older"] = older_checkpoint(spark, base)
        results["formats"] = formats(spark, base)
        results["idle"] = idle_stream(spark, base)
        for files, root in ((LocalFiles(), base / "local"), (HadoopSinkFiles(spark), base / "hadoop")):
            files_keep_their_promises(files, str(root))
    spark.stop()
    print(json.dumps(results), flush=True)


def older_checkpoint(spark: Any, base: Path) -> str:
    """Go back by some batches, whose rows are visible: refused with an explanation."""
    checkpoint = base / "checkpoint-out"
    for log in ("offsets", "commits"):
        for entry in (checkpoint / log).iterdir():
            if int(entry.name.strip(".").removesuffix(".crc")) > 3:
                entry.unlink()
    feed(base / "in", 1, first=100)
    sink = RollingFileSink(str(base / "out"), partition_by="day", max_age=None)
    query = stream(spark, base, "out", sink, stateful=True)
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        return str(error)
    finally:
        sink.close()
    return ""


def formats(spark: Any, base: Path) -> dict[str, list[Any]]:
    """Text formats, with what a text loses most easily; and an output path that looks like a pattern."""
    found = {}
    for form in FileFormat:
        output = base / f"[{form.value}] x*"
        options = {"header": True, "compression": "gzip"} if form is FileFormat.CSV else {}
        with RollingFileSink(str(output), form.value, max_age=None, options=options) as sink:
            stream(spark, base, form.value, sink).awaitTermination()
        reader = spark.read.schema(_FIELDS).options(**options).option("__globPaths__", "false")
        rows = [tuple(row) for row in reader.format(form.value).load(str(output)).orderBy("n").collect()]
        files = sorted(path.name for path in output.iterdir() if not path.name.startswith("."))
        found[form.value] = [len(rows), [str(value) for value in rows[7]], files]
    return found


def idle_stream(spark: Any, base: Path) -> bool:
    """Rows become visible by age though no batch comes any more."""
    output = base / "idle"
    sink = RollingFileSink(str(output), max_age=0.5)
    rows = spark.readStream.schema(_FIELDS).json(str(base / "in"))
    query = rows.writeStream.option("checkpointLocation", str(base / "checkpoint-idle")).foreachBatch(sink).start()
    deadline = time.monotonic() + 120
    while not (output.exists() and any(output.glob("*.parquet"))) and time.monotonic() < deadline:
        time.sleep(0.1)
    query.stop()
    sink.close()
    return any(output.glob("*.parquet"))


def files_keep_their_promises(files: SinkFiles, root: str) -> None:
    assert files.names(root) == []
    assert raises(RetryLater, lambda: files.files(root))
    files.create(f"{root}/a/1", b"one")
    assert raises(Conflict, lambda: files.create(f"{root}/a/1", b"two"))
    assert files.read(f"{root}/a/1") == b"one"
    assert raises(Absent, lambda: files.read(f"{root}/a/2"))
    assert [(file.path, file.size) for file in files.files(root) if "/." not in file.path] == [("a/1", 3)]
    files.keep([f"{root}/a/1"], root)
    files.move(f"{root}/a/1", f"{root}/day=1/b%20c/1")
    files.move(f"{root}/a/1", f"{root}/day=1/b%20c/1")  # was moved before
    assert files.read(f"{root}/day=1/b%20c/1") == b"one"
    files.create(f"{root}/a/1", b"one")
    files.move(f"{root}/a/1", f"{root}/day=1/b%20c/1")  # a copy that was not deleted
    assert "1" not in files.names(f"{root}/a")
    files.delete(f"{root}/day=1")
    files.delete(f"{root}/day=1")
    assert "day=1" not in files.names(root)
    shutil.rmtree(root)


def raises(kind: type[Exception], action: Callable[[], object]) -> bool:
    try:
        action()
    except kind:
        return True
    return False


if __name__ == "__main__":
    main()
