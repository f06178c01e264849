"""Reads what the jobs have written, as a reader without Spark would, and compares it with the oracle's answer."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec
from pyarrow import parquet

from campaign.spark.oracle import Answer, batch_answer, stream_answer
from campaign.spark.plan import PlannedQuery
from campaign.spark.rows import read_files

SHOWN = 20  # rows of a difference


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One output beside the oracle's answer. ``missing`` and ``surplus``: how many rows; some of them as text.

    ``problem``: why the output could not be read.
    """

    output: str
    expected: int
    missing: int = 0
    surplus: int = 0
    rows: tuple[str, ...] = ()
    problem: str = ""

    @property
    def differs(self) -> bool:
        return bool(self.missing or self.surplus or self.problem)

    def __str__(self) -> str:
        what = self.problem or f"{self.missing} rows are missing, {self.surplus} are too many: {', '.join(self.rows)}"
        return f"{self.output}: {what}"


def compare_query(place: Path, query: PlannedQuery) -> Comparison:
    """Compare the output of a query that was drained. ``place``: the directory of its job."""
    expected = stream_answer(query.kind, read_files(place / "in"))
    return _compare(f"{place.name}/{query.name}", expected, lambda: _READERS[query.sink](place / "out" / query.name))


def compare_batch(place: Path, kind: str) -> Comparison:
    """Compare the output of a batch job that has finished."""
    rows = [row for file in read_files(place / "in") for row in file]
    return _compare(f"{place.name}/{kind}", batch_answer(kind, rows), lambda: _parquet([place / "out"]))


def _compare(name: str, expected: Answer, read: Callable[[], Answer]) -> Comparison:
    total = expected.total()
    try:
        got = read()
    except (OSError, ValueError, KeyError, sqlite3.Error) as error:
        return Comparison(output=name, expected=total, problem=f"cannot be read: {error!r}")
    missing, surplus = expected - got, got - expected
    shown = [f"-{row}" for row in sorted(missing)] + [f"+{row}" for row in sorted(surplus)]
    return Comparison(
        output=name,
        expected=total,
        missing=missing.total(),
        surplus=surplus.total(),
        rows=tuple(shown[:SHOWN]),
    )


def _files(output: Path) -> Answer:
    """Read what Spark's file sink has committed: only the files in its log count. A kept copy may be elsewhere."""
    found: Answer = Counter()
    for name in _logged(output / "_spark_metadata"):
        for line in (output / name).read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            found[row["a"], row["k"], row["c"]] += 1
    return found


def _logged(log: Path) -> set[str]:
    entries = {int(path.name.partition(".")[0]): path for path in log.iterdir() if path.name[0].isdigit()}
    compacted = [number for number, path in entries.items() if path.name.endswith(".compact")]
    names: set[str] = set()
    for number, path in entries.items():
        if number >= max(compacted, default=0):
            for line in path.read_text(encoding="utf-8").splitlines()[1:]:
                names.add(Path(unquote(urlsplit(json.loads(line)["path"]).path)).name)
    return names


def _sqlite(output: Path) -> Answer:
    with closing(sqlite3.connect(f"file:{output / 'rows.db'}?mode=ro", uri=True)) as database:
        return Counter((a, k, c) for a, k, c in database.execute("select a, k, c from rows"))


def _batches(output: Path) -> Answer:
    return _parquet(sorted(output.glob("batch-*")))


def _rolled(output: Path) -> Answer:
    return _parquet([output])


def _parquet(directories: list[Path]) -> Answer:
    found: Answer = Counter()
    for directory in directories:
        for path in directory.rglob("*.parquet"):
            columns = parquet.ParquetFile(path).read(["a", "k", "c"]).to_pydict()
            found.update(zip(columns["a"], columns["k"], columns["c"], strict=True))
    return found


_READERS: Mapping[str, Callable[[Path], Answer]] = {
    "files": _files,
    "sqlite": _sqlite,
    "parquet": _batches,
    "rolling": _rolled,
}
