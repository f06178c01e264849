"""A checkpoint's files into a savepoint, and the same files with cp, sha256sum and sync, in turns.

Arguments: directory, state partitions, files in each, bytes of a file, turns. Prints "SAVEPOINT <seconds>" and "BY-HAND
<seconds>" for each turn after one that warms up. Both read each file once, and both have it on the disk at the end.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pyspark.sql import SparkSession

from emberkeep.base.ids import JobId
from emberkeep.lifecycle.manifest import Manifest
from emberkeep.lifecycle.model import Procedure
from emberkeep.spark.files.hadoop import HadoopFiles
from emberkeep.spark.model import StartedQuery
from emberkeep.spark.queries.checkpoints import QueryIdentity
from emberkeep.spark.queries.script_queries import ScriptQuery
from emberkeep.spark.stopping.savepoint_copy import SavepointWriter
from emberkeep.spark.stopping.savepoint_storage import DirectoryStorage

_LARGE = 1 << 20  # bytes

base = Path(sys.argv[1])
partitions, files, size, turns = (int(text) for text in sys.argv[2:])
checkpoint = base / "checkpoint"


def fill() -> int:
    """As Spark lays it out: one query, after as many batches as a partition has files of changes. Returns bytes."""
    texts = {"metadata": '{"id":"6ba7b810-9dad-11d1-80b4-00c04fd430c8"}'}
    for batch in range(files):
        texts[f"offsets/{batch}"] = f'v1\n{{"batchWatermarkMs":0,"batchTimestampMs":{batch},"conf":{{}}}}\n{batch}'
        texts[f"commits/{batch}"] = 'v1\n{"nextBatchWatermarkMs":0}'
    for name, text in texts.items():
        (checkpoint / name).parent.mkdir(parents=True, exist_ok=True)
        (checkpoint / name).write_text(text)
    for partition in range(partitions):
        directory = checkpoint / "state" / "0" / str(partition)
        directory.mkdir(parents=True)
        for version in range(1, files + 1):
            (directory / f"{version}.delta").write_bytes(os.urandom(size))
    return partitions * files * size


def savepoint(target: Path) -> None:
    heading = Manifest(
        job_id=JobId("a" * 32),
        job_name="bench",
        attempt=1,
        trigger_id="b" * 32,
        procedure=Procedure.SAVEPOINT,
        created_ms=0,
        spark_version=spark.version,
        emberkeep_version="bench",
        queries=(),
        files=(),
    )
    hadoop = HadoopFiles(spark)
    writer = SavepointWriter(hadoop, str(target), DirectoryStorage(str(target), hadoop), lambda: None)
    writer.write(heading, [query], {}, {}, lambda _: None)


def by_hand(target: Path) -> None:
    command = f"cp -r {checkpoint} {target} && find {target} -type f -print0 | xargs -0 sha256sum > {target}.sums"
    subprocess.run(f"{command} && find {target} -print0 | xargs -0 sync {target}.sums", shell=True, check=True)


SIDES: dict[str, Callable[[Path], None]] = {"SAVEPOINT": savepoint, "BY-HAND": by_hand}

fill()
subprocess.run(["sync", "-f", str(base)], check=True)
spark: Any = SparkSession.builder.appName("bench-saving").getOrCreate()
query = ScriptQuery(
    writer=SimpleNamespace(_spark=spark),
    method="start",
    positional=(),
    named={},
    key="query-bench",
    name="bench",
    identity=QueryIdentity("noop", "append", ""),
    started=StartedQuery(str(checkpoint)),
    reached=str(checkpoint),
    fields=[],
)
for turn in range(turns + 1):
    for name in SIDES if turn % 2 else reversed(SIDES):
        copy = base / f"copy-{turn}-{name}"
        begin = time.perf_counter()
        SIDES[name](copy)
        seconds = time.perf_counter() - begin
        copied = sum(path.stat().st_size for path in copy.rglob("*.delta"))
        if copied != partitions * files * size:
            raise SystemExit(f"{name}: {copied} bytes were copied")
        if turn > 0:
            print(name, f"{seconds:.3f}", flush=True)
        if size >= _LARGE:  # a file system that has just deleted many files is slow to create some, ext4 for seconds
            shutil.rmtree(copy)
spark.stop()
