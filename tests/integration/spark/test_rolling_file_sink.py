"""The rolling file sink with real Spark, killed at its steps, and read by others while it is written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow as pa
import pytest

from tests.integration.spark.rolling_sink_job import duckdb_rows, feed

pytestmark = [pytest.mark.integration, pytest.mark.long]

_JOB = Path(__file__).with_name("rolling_sink_job.py")
_FILES = 14
_DEADLINE_SECONDS = 400
# A batch is staged, not written down; parts are decided, some are moved; pieces are being put together.
_DEATHS = ("entry+3", "move+1", "merge+2")


class Reader:
    """Reads the output again and again while it is written, as users do."""

    def __init__(self, output: Path) -> None:
        self._output = output
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.problems: list[str] = []
        self.reads: Counter[str] = Counter()

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        before: set[str] = set()
        while not self._ended.wait(0.2):
            listed = {path for path in map(str, self._output.glob("**/*")) if path.endswith(".parquet")}
            if not before <= listed:
                self.problems.append(f"disappeared: {before - listed}")
            before = listed
            if listed:
                self._read("pandas", lambda: list(pd.read_parquet(self._output)["n"]))
                self._read("duckdb", lambda: duckdb_rows(self._output))

    def _read(self, name: str, read: Callable[[], list[int]]) -> None:
        try:
            rows = read()
        except (OSError, pa.ArrowException, duckdb.Error) as error:
            self.problems.append(f"{name}: {error!r}")
            return
        self.reads[name] += 1
        if len(rows) != len(set(rows)):
            self.problems.append(f"{name}: a row is there twice")


def run(base: Path, step: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(_JOB), str(base), step, *arguments],
        capture_output=True,
        text=True,
        timeout=_DEADLINE_SECONDS,
        check=False,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(_JOB.parents[3])},
    )


@pytest.mark.req("END-7")
@pytest.mark.req("END-10")
def test_every_row_once_whatever_step_the_process_is_killed_at(tmp_path: Path) -> None:
    feed(tmp_path / "in", _FILES)
    output = tmp_path / "out"
    with Reader(output) as reader:
        for step in _DEATHS:
            died = run(tmp_path, step)
            assert died.returncode == -9, died.stderr
        done = run(tmp_path, "", "check")
        assert done.returncode == 0, done.stderr
    assert not reader.problems
    assert set(reader.reads) == {"pandas", "duckdb"}
    readers = set((tmp_path / "readers").read_text().split())
    assert readers == {"pandas", "duckdb", "spark"}, "each has read while a batch was not committed"

    rows = pd.read_parquet(output)
    assert sorted(rows["n"]) == list(range(_FILES * 20))
    parts = [path for path in output.glob("**/*.parquet") if not path.name.startswith(".")]
    assert {path.parent.name for path in parts} == {"day=00", "day=01", "day=02"}
    assert len(parts) < _FILES * 3 / 2, "parts span batches"
    work = tmp_path / "_emberkeep-out"
    assert {path.name for path in work.iterdir()} >= {"log"}
    assert not list(work.glob("**/*.parquet")), "nothing waits after the end of the sources"

    results = json.loads(done.stdout.strip().splitlines()[-1])
    assert results["job"] is False
    assert "batch 4 has other rows than the batch 4 that" in results["older"]
    assert "older checkpoint or savepoint" in results["older"]
    assert results["idle"] is True
    for form, (count, seventh, files) in results["formats"].items():
        assert count == (_FILES + 1) * 20
        assert seventh == ["7", "01", "2026-01-03 00:00:00"]
        ending = {"parquet": ".snappy.parquet", "json": ".json", "csv": ".csv.gz"}[form]
        assert len(files) == 1
        assert files[0].endswith(ending)
