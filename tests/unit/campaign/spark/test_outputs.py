"""The comparison with the oracle: what a job has written is read as it was committed, and each difference is found."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from campaign.spark.oracle import batch_answer, stream_answer
from campaign.spark.outputs import compare_batch, compare_query
from campaign.spark.plan import SINKS, PlannedQuery
from campaign.spark.rows import Files, write_rows

Rows = list[tuple[int, str, int]]
FILES = 8


def write_files(output: Path, rows: Rows) -> None:
    """Write as Spark's file sink does: a log that is compacted, and a file that no batch has committed."""
    log = output / "_spark_metadata"
    log.mkdir(parents=True)
    part = len(rows) // 3
    entries = []
    for number, piece in enumerate((rows[:part], rows[part : 2 * part], rows[2 * part :], rows[:1])):
        path = output / f"part {number}.json"
        path.write_text("".join(json.dumps({"a": a, "k": k, "c": c}) + "\n" for a, k, c in piece))
        entries.append(json.dumps({"path": path.as_uri(), "action": "add"}))
    (log / "0").write_text(f"v1\n{entries[0]}")
    (log / "1.compact").write_text("\n".join(["v1", *entries[:2]]))
    (log / "2").write_text(f"v1\n{entries[2]}")
    (log / ".2.crc").write_bytes(b"")


def write_sqlite(output: Path, rows: Rows) -> None:
    output.mkdir(parents=True)
    with closing(sqlite3.connect(output / "rows.db")) as database, database:
        database.execute("create table rows (batch integer, a integer, k text, c integer)")
        database.executemany("insert into rows values (0, ?, ?, ?)", rows)


def write_parquet(directory: Path, rows: Rows) -> None:
    directory.mkdir(parents=True)
    a, k, c = ([row[column] for row in rows] for column in range(3))
    parquet.write_table(pa.table({"a": a, "k": k, "c": c}), directory / "part.parquet")


def write_batches(output: Path, rows: Rows) -> None:
    """Write as the script does: a batch aside is one that another attempt has written too."""
    write_parquet(output / "batch-0", rows[:3])
    write_parquet(output / "batch-1", rows[3:])
    write_parquet(output / ".aside-1-77", rows[3:])


WRITERS: Mapping[str, Callable[[Path, Rows], None]] = {
    "files": write_files,
    "sqlite": write_sqlite,
    "parquet": write_batches,
    "rolling": write_parquet,
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    files = Files("seed")
    (tmp_path / "stream-0" / "in").mkdir(parents=True)
    for number in range(FILES):
        write_rows(tmp_path / "stream-0" / "in" / f"{number:05}.json", files.next(), number)
    return tmp_path / "stream-0"


def right_rows(kind: str) -> Rows:
    files = Files("seed")
    return sorted(stream_answer(kind, [files.next() for _ in range(FILES)]).elements())


@pytest.mark.parametrize("sink", SINKS)
def test_a_right_output_has_no_difference(place: Path, sink: str) -> None:
    query = PlannedQuery("windows", sink, rocks=False, changelog=False)
    WRITERS[sink](place / "out" / query.name, right_rows("windows"))
    found = compare_query(place, query)
    assert not found.differs, found
    assert found.expected == len(right_rows("windows")) > 20


@pytest.mark.parametrize("sink", SINKS)
def test_a_lost_row_a_repeated_one_and_a_wrong_one_are_found(place: Path, sink: str) -> None:
    query = PlannedQuery("distinct", sink, rocks=False, changelog=False)
    rows = right_rows("distinct")
    a, k, c = rows[7]
    WRITERS[sink](place / "out" / query.name, [*rows[1:7], (a, k, c + 1), *rows[8:], rows[9]])
    found = compare_query(place, query)
    assert (found.missing, found.surplus) == (2, 2)
    assert f"-{rows[0]}" in str(found)
    assert f"+{rows[9]}" in str(found)


def test_an_output_that_is_not_there_differs(place: Path) -> None:
    for sink in SINKS:
        found = compare_query(place, PlannedQuery("passed", sink, rocks=False, changelog=False))
        assert found.differs, found


def test_a_batch_job_is_compared_as_a_whole(place: Path) -> None:
    files = Files("seed")
    rows = [row for _ in range(FILES) for row in files.next()]
    write_parquet(place / "out", sorted(batch_answer("committed", rows).elements())[:-1])
    found = compare_batch(place, "committed")
    assert (found.output, found.expected, found.missing) == ("stream-0/committed", len(rows), 1)
