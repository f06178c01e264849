"""The durable steps of a rolling file sink on a mounted file system, with batches as Spark repeats and commits them."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from emberkeep.api.file_sink.arrivals import Arrival
from emberkeep.api.file_sink.local_files import LocalFiles
from emberkeep.api.file_sink.model import FileFormat, Limits, SinkWriter
from emberkeep.api.file_sink.part_writer import PartWriter, SinkPlaces
from tests.support.crashes.component import Component
from tests.support.crashes.recorded import Crash, RecordedFiles

SINK = "sink"
Row = tuple[str, int]  # bucket, value
LIMITS = Limits(max_bytes=120, max_rows=6)
BATCHES: list[list[str]] = [["a"] * 3, [], ["a", "b", "b"], ["b"] * 7, ["a"]]
ROWS: list[list[Row]] = [
    [(bucket, 100 * number + index) for index, bucket in enumerate(batch)] for number, batch in enumerate(BATCHES)
]


class CommitLogOfSpark(Protocol):
    """The checkpoint of a query: what was planned, and what was committed."""

    def plan(self, batch: int) -> bytes:
        """Plan a batch durably, unless it is planned. Return the plan."""

    def commit(self, batch: int) -> None: ...

    def commits(self) -> set[int]: ...


class FilesOfSpark:
    """Implements Frames: a frame is a list of rows, a file is JSON of rows. As Spark, it syncs nothing."""

    def __init__(self, checkpoint: CommitLogOfSpark) -> None:
        self._checkpoint = checkpoint

    def schema(self, frame: Any) -> str:
        return "schema"

    def stage(self, frame: Any, directory: str) -> None:
        Path(directory).mkdir(parents=True)
        for number, bucket in enumerate(sorted({bucket for bucket, _ in frame})):
            Path(directory, bucket).mkdir()
            rows = [row for row in frame if row[0] == bucket]
            _write(Path(directory, bucket, f"part-00000-{number}-c000.x.parquet"), rows)
        if not frame:
            _write(Path(directory, "part-00000-0-c000.x.parquet"), [])

    def evaluate(self, frame: Any) -> None: ...

    def rows(self, paths: Sequence[str]) -> list[int]:
        return [len(json.loads(Path(path).read_bytes())) for path in paths]

    def merge(self, paths: Sequence[str], schema: str, directory: str, *, is_part: bool) -> None:
        Path(directory).mkdir(parents=True)
        rows = [row for path in paths for row in json.loads(Path(path).read_bytes())]
        _write(Path(directory, f"part-00000-m-c000.{'json' if is_part else 'x.parquet'}"), rows)

    def committed(self, checkpoint: str, newest: int) -> int | None:
        return max((batch for batch in self._checkpoint.commits() if batch <= newest), default=None)


def _write(path: Path, rows: Sequence[Row]) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        os.write(descriptor, json.dumps(rows).encode())
    finally:
        os.close(descriptor)


class Query:
    """A streaming query that writes ROWS to a sink below ``root``, from where its checkpoint says."""

    def __init__(self, root: Path, attempt: int, checkpoint: CommitLogOfSpark) -> None:
        self._checkpoint = checkpoint
        self._output = root / "out"
        owner = SinkWriter(job_id="job", attempt=attempt, writer=f"w{attempt}")
        places = SinkPlaces(output=str(self._output), work=str(root / "_work"))
        self._writer = PartWriter(
            LocalFiles(), FilesOfSpark(checkpoint), places, owner, FileFormat.PARQUET, LIMITS, lambda: 0
        )

    def run(self, after_batch: Callable[[int], None] = lambda _: None) -> None:
        """Write what is missing, to the end, and make it visible."""
        self._writer.newest()
        self._writer.continues("q", "c")
        for batch, rows in enumerate(ROWS):
            if batch in self._checkpoint.commits():
                continue
            plan = hashlib.sha256(self._checkpoint.plan(batch)).hexdigest()
            self._writer.write_batch(Arrival(query="q", checkpoint="c", batch=batch, plan=plan), rows)
            self._checkpoint.commit(batch)
            after_batch(batch)
        self._writer.close_parts()
        self._writer.publish()
        self._writer.clean_up()

    def visible(self) -> Counter[Row]:
        """Return what a reader of the output sees."""
        paths = (path for path in self._output.rglob("*") if path.is_file() and not path.name.startswith("."))
        return Counter((bucket, value) for path in paths for bucket, value in json.loads(path.read_bytes()))


def all_rows() -> Counter[Row]:
    return Counter(row for rows in ROWS for row in rows)


class MemoryCheckpoint:
    """A checkpoint that no crash touches, and where it stood: the marks of a sink's life are its commits."""

    def __init__(self, committed: set[int], commit: Callable[[int], None] = lambda _: None) -> None:
        self._committed = committed
        self._told = commit

    def plan(self, batch: int) -> bytes:
        return str(batch).encode()

    def commit(self, batch: int) -> None:
        self._committed.add(batch)
        self._told(batch)

    def commits(self) -> set[int]:
        return self._committed


def live_sink(root: Path, files: RecordedFiles) -> None:
    query = Query(root, 1, MemoryCheckpoint(set(), lambda batch: files.mark(str(batch))))
    query.run()
    files.mark("ended")


def check_sink(crash: Crash) -> None:
    committed = {int(mark) for mark in crash.marks if mark != "ended"}
    query = Query(crash.directory, 2, MemoryCheckpoint(set(committed)))
    shown = query.visible()
    assert shown <= Counter(row for batch in committed for row in ROWS[batch]), "rows are visible too early, or twice"
    assert "ended" not in crash.marks or shown == all_rows(), "rows that were shown are gone"
    query.run()
    assert query.visible() == all_rows()


COMPONENTS = (Component("rolling file sink", SINK, live_sink, check_sink),)
