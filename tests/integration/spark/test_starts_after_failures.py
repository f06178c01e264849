"""Scripts that try again: a query keeps its checkpoint, although it names none, when its start or a batch fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.spark.conftest import DriverRunner

pytestmark = pytest.mark.integration

_SCRIPT = """
import json, os, sys
from pyspark.sql import SparkSession

incoming, others, fails = sys.argv[1:4]
spark = SparkSession.builder.getOrCreate()
seen, failures = [], []

def see(frame, batch):
    if fails == "batch" and not failures:
        raise ValueError("planted")
    seen.append([batch, sorted(row[0] for row in frame.collect())])

def frame(folder):
    return spark.readStream.schema("value string").text(folder)

def start(folder):
    writer = frame(folder).writeStream.trigger(availableNow=True).foreachBatch(see)
    if fails == "start" and not failures:
        writer = writer.trigger(continuous="1 second")  # Spark refuses it with foreachBatch
    return writer.start()

for folder in (incoming, others):
    for _ in range(3):
        try:
            start(folder).awaitTermination()
            break
        except Exception as error:
            failures.append(type(error).__name__)
print(json.dumps({"seen": seen, "failures": failures}))
"""


@pytest.mark.long
@pytest.mark.parametrize("fails", ["start", "batch"])
def test_a_query_that_the_script_starts_again_goes_on_with_its_checkpoint(
    drivers: DriverRunner, tmp_path: Path, fails: str
) -> None:
    incoming, others = tmp_path / "incoming", tmp_path / "others"
    for folder in (incoming, others):
        folder.mkdir()
        (folder / "a.txt").write_text(f"{folder.name} 1\n")
    first = drivers.run(_SCRIPT, str(incoming), str(others), "nothing")
    assert first.exit_code == 0, first.stderr
    assert first.results() == {"seen": [[0, ["incoming 1"]], [0, ["others 1"]]], "failures": []}

    for folder in (incoming, others):
        (folder / "b.txt").write_text(f"{folder.name} 2\n")
    second = drivers.run(_SCRIPT, str(incoming), str(others), fails)
    assert second.exit_code == 0, second.stderr
    assert len(second.results()["failures"]) == 1
    assert second.results()["seen"] == [[1, ["incoming 2"]], [1, ["others 2"]]], "nothing is read again"
