"""A script that stops its query by itself while a stop of the job waits for the query's batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.spark.conftest import DriverRunner

pytestmark = [pytest.mark.integration, pytest.mark.long]

_SCRIPT = """
import json, sys, time, threading, pathlib
from pyspark.sql import SparkSession
from runtime_under_test import runtime
steps = runtime.procedures
spark = SparkSession.builder.getOrCreate()
began = threading.Event()
def slow(frame, batch):
    frame.collect()
    began.set()
    time.sleep(4)
q = spark.readStream.schema("value string").text(sys.argv[1]).writeStream.queryName("q").foreachBatch(slow).start()
began.wait(200)
out = {}
def script():
    time.sleep(1.5)
    q.stop()
t = threading.Thread(target=script)
t.start()
steps.gate.asked()
steps.finish_batches(lambda text: None)
t.join()
root = pathlib.Path(sys.argv[2])
for log in ("offsets", "commits"):
    out[log] = sorted(each.name for each in (root / "query-q" / log).iterdir() if each.name.isdigit())
out["held"] = q.isActive
steps.restarts.start_queries()
out["after"] = [q.isActive, str(q.exception()), [x.name for x in spark.streams.active]]
print(json.dumps(out), flush=True)
"""


@pytest.mark.req("END-6")
def test_the_batch_is_part_of_the_savepoint_and_the_query_stays_stopped_if_the_stop_fails(
    drivers: DriverRunner, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("one\n")
    done = drivers.run(_SCRIPT, str(tmp_path / "in"), str(drivers.checkpoints))
    assert done.exit_code == 0, done.stderr
    results = done.results()
    assert results["offsets"] == results["commits"] == ["0"], "the interrupted batch has run again"
    assert results["held"], "until the end of the stop the script sees it as running"
    assert results["after"] == [False, "None", []]
