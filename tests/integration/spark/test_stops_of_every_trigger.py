"""Queries with every kind of trigger are stopped, drained and saved, or refused at once with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.spark.conftest import DriverRunner
from tests.integration.spark.stop_scripts import COMMON

pytestmark = [pytest.mark.integration, pytest.mark.long]

SCRIPT = (
    COMMON
    + """
from emberkeep.lifecycle.errors import ProcedureRefused
from emberkeep.spark.stopping.batch_boundary import starting_ended

story = {}

def until(condition):
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)

def windows(name, **trigger):
    rows = stream(root / "in")
    counts = rows.groupBy(F.window("t", "10 seconds"), "k").agg(F.count("*").alias("c")).select("k", "c")
    return counts.writeStream.queryName(name).format("json").trigger(**trigger).start(str(root / "out" / name))

put(root / "in", "0", [("a", 0), ("b", 1), ("a", 2)])
hourly = windows("hourly", processingTime="1 hour")
until(lambda: hourly.lastProgress is not None)
ended = {"once": windows("once", once=True), "available": windows("available", availableNow=True)}
until(lambda: not any(query._jsq.isActive() for query in ended.values()))

steps.check(str(root / "savepoint"), nothing)
steps.pause(nothing)
steps.pauses.resume()
steps.finish_batches(nothing)
story["left"] = steps.drain(nothing)
steps.write_savepoint(heading(), str(root / "savepoint"), {}, nothing)
story["saved"] = sorted(path.name for path in (root / "savepoint" / "queries").iterdir())
def rows_of(name):
    rows = spark.read.schema("k string, c long").json(str(root / "out" / name)).collect()
    return sorted((row.k, row.c) for row in rows)
story["out"] = {name: rows_of(name) for name in ("hourly", *ended)}
steps.restarts.start_queries()
assert hourly.isActive and hourly.exception() is None
hourly._jsq.stop()

rates = spark.readStream.format("rate").load()
triggers = {"late": {"processingTime": "1 second"}, "late and continuous": {"continuous": "1 second"}}
for name, trigger in triggers.items():
    with starting_ended(spark):
        late = rates.writeStream.queryName(name).format("noop").trigger(**trigger).option(
            "checkpointLocation", str(root / name)).start()
    thread = late._jsq.streamingQuery().queryExecutionThread()
    until(lambda: not thread.isAlive())
    story.setdefault("late", []).append([late.lastProgress, str(late.exception())])
continuous = rates.writeStream.queryName("continuous").format("console").trigger(continuous="1 hour").option(
    "checkpointLocation", str(root / "continuous")).start()
until(lambda: continuous._jsq.streamingQuery().getClass().getName().endswith("ContinuousExecution"))
for step in (lambda: steps.check(str(root / "none"), nothing), lambda: steps.finish_batches(nothing)):
    try:
        step()
    except ProcedureRefused as error:
        story.setdefault("refused", []).append(str(error))
steps.restarts.start_queries()
story["runs on"] = bool(continuous._jsq.isActive()) and continuous.exception() is None
continuous._jsq.stop()
print(json.dumps(story))
"""
)


@pytest.fixture(name="drivers")
def runner_of_drivers(tmp_path: Path, class_archive: Path) -> DriverRunner:
    return DriverRunner(tmp_path, class_archive)


@pytest.mark.req("END-4", "END-9")
def test_each_kind_of_trigger(drivers: DriverRunner, tmp_path: Path) -> None:
    run = drivers.run(SCRIPT, str(tmp_path / "work"), spark_conf={"spark.executor.cores": "2"})

    assert run.exit_code == 0, f"{run.stdout}\n{run.stderr}"
    story = run.results()
    assert story["left"] == ""
    assert story["saved"] == ["query-available", "query-hourly", "query-once"]
    assert story["out"] == {name: [["a", 2], ["b", 1]] for name in ("hourly", "once", "available")}
    assert ["runs as ContinuousExecution, not in micro-batches" in words for words in story["refused"]] == [True, True]
    assert all("use a trigger other than continuous" in words for words in story["refused"])
    assert story["late"] == [[None, "None"], [None, "None"]]
    assert story["runs on"], "nothing has touched it"
