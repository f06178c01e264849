"""A query in real-time mode is refused at once with the reason, and what the refusal advises works."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.spark.conftest import DriverRunner
from tests.integration.spark.stop_scripts import COMMON

pytestmark = [pytest.mark.integration, pytest.mark.long]

# The only source of real-time mode that comes with Spark itself is one in memory, which has no name in Python.
SCRIPT = (
    COMMON
    + """
from emberkeep.lifecycle.errors import ProcedureRefused
from pyspark.sql import DataFrame

story = {}
jvm = spark._jvm

def until(condition):
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)

def source():
    name = "org.apache.spark.sql.execution.streaming.sources.LowLatencyMemoryStream$"
    memory = getattr(getattr(jvm, name), "MODULE$")
    return memory.singlePartition(spark._jsparkSession, jvm.org.apache.spark.sql.Encoders.STRING())

def put_rows(memory, *rows):
    java = jvm.java.util.ArrayList()
    for row in rows:
        java.add(row)
    memory.addData(0, jvm.scala.jdk.javaapi.CollectionConverters.asScala(java))

def start(memory, name, **trigger):
    writer = DataFrame(memory.toDF(), spark).writeStream.queryName(name).outputMode("update")
    return writer.format("console").trigger(**trigger).option("checkpointLocation", str(root / name)).start()

def refused(step):
    try:
        step()
    except ProcedureRefused as error:
        return str(error)
    return "accepted"

for name, asynchronous in (("plain", "false"), ("usual", "true")):
    spark.conf.set("spark.sql.streaming.realTimeMode.asyncProgressTrackingByDefault.enabled", asynchronous)
    memory = source()
    query = start(memory, name, realTime="5 seconds")
    put_rows(memory, "a", "b")
    until(lambda: query.lastProgress is not None or query.exception() is not None)
    assert query.exception() is None, query.exception()
    seen = story[name] = {"runs as": query._jsq.streamingQuery().getClass().getSimpleName()}
    seen["savepoint"] = refused(lambda: steps.check(str(root / "none"), nothing))
    seen["stop"] = refused(lambda: steps.finish_batches(nothing))
    steps.restarts.start_queries()
    seen["runs on"] = bool(query._jsq.isActive()) and query.exception() is None
    query._jsq.stop()

    again = start(memory, name, processingTime="100 milliseconds")
    put_rows(memory, "c")
    until(lambda: again.lastProgress is not None and again.lastProgress.numInputRows or again.exception() is not None)
    assert again.exception() is None, again.exception()
    seen["went on with"] = again.lastProgress.numInputRows
    seen["advised"] = refused(lambda: steps.check(str(root / f"savepoint-{name}"), nothing))
    steps.pause(nothing)
    steps.pauses.resume()
    steps.finish_batches(nothing)
    steps.write_savepoint(heading(), str(root / f"savepoint-{name}"), {}, nothing)
    seen["saved"] = [path.name for path in (root / f"savepoint-{name}" / "queries").iterdir()]
    steps.restarts.start_queries()
    again._jsq.stop()
print(json.dumps(story))
"""
)


@pytest.mark.req("END-9")
def test_it_is_refused_with_the_reason_and_goes_on_in_micro_batches(tmp_path: Path, class_archive: Path) -> None:
    run = DriverRunner(tmp_path, class_archive).run(
        SCRIPT, str(tmp_path / "work"), spark_conf={"spark.executor.cores": "2"}
    )

    assert run.exit_code == 0, f"{run.stdout}\n{run.stderr}"
    story = run.results()
    plain, usual = story["plain"], story["usual"]
    assert plain.pop("runs as") == "MicroBatchExecution"
    assert usual.pop("runs as") == "AsyncProgressTrackingMicroBatchExecution"
    for seen in (plain, usual):
        for refusal in (seen["savepoint"], seen["stop"]):
            assert "in real-time mode: it records the offsets of a batch only when the batch has ended" in refusal
            assert "start it with trigger(processingTime=…) on the same checkpointLocation" in refusal
        assert seen["runs on"], "nothing has touched it"
        assert seen["went on with"] == 1, "what the query had committed is not read again"
        assert seen["advised"] == "accepted"
    assert "query-plain" in plain["saved"]
    assert "query-usual" in usual["saved"]
