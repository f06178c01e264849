"""Ends of a query whose batches are so short that most stops come while it plans one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.spark.conftest import DriverRunner
from tests.integration.spark.stop_scripts import COMMON

pytestmark = [pytest.mark.integration, pytest.mark.long]

STOPS = 12

# "again" counts batches that were planned and had to run in a query of their own.
SCRIPT = (
    COMMON
    + f"""
story = {{"again": 0, "failed": [], "seconds": [], "batches": []}}
checkpoint = root / "checkpoint"
rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load()
counts = rows.groupBy((F.col("value") % 3).alias("k")).count()
query = (counts.writeStream.outputMode("update").format("noop").option("checkpointLocation", str(checkpoint)).start())

def newest(log):
    return max((int(path.name) for path in (checkpoint / log).glob("[0-9]*")), default=-1)

def until(condition):
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)

def counted(*given, roll_forward=steps._drain.roll_forward):
    story["again"] += 1
    return roll_forward(*given)

steps._drain.roll_forward = counted
rng = random.Random(3)
assert query.isActive  # the script awaits its query
for _ in range({STOPS}):
    before = newest("commits")
    until(lambda: newest("commits") > before + 2)
    time.sleep(rng.uniform(0, 0.3))
    begun = time.monotonic()
    steps.finish_batches(nothing)
    story["seconds"].append(round(time.monotonic() - begun, 2))
    story["batches"].append([newest("offsets"), newest("commits")])
    failure = query._jsq.exception()
    if failure.isDefined():
        story["failed"].append(str(failure.get().toString())[:500])
    steps.restarts.start_queries()
steps.finish_batches(nothing)
steps.end()
story["awaited"] = query.awaitTermination()
print(json.dumps(story))
"""
)


@pytest.mark.req("END-5")
def test_no_batch_is_planned_and_interrupted(drivers: DriverRunner, tmp_path: Path) -> None:
    run = drivers.run(SCRIPT, str(tmp_path / "work"), spark_conf={"spark.executor.cores": "2"})

    assert run.exit_code == 0, f"{run.stdout}\n{run.stderr}"
    story = run.results()
    assert story["failed"] == [], "the script would see a refused plan as a failure of its query"
    assert story["again"] == 0
    assert all(planned == committed for planned, committed in story["batches"])
    assert len(story["batches"]) == STOPS
    assert "PlanRefused" not in run.stderr, "a stop is no error in the job's log"
