"""A savepoint of a stream whose batches are shorter than the copy: all that is copied is still there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.spark.conftest import DriverRunner
from tests.integration.spark.stop_scripts import COMMON

pytestmark = [pytest.mark.integration, pytest.mark.long]

# The copy of each query begins when Spark would have removed what it is about to copy, or the query stands still.
SCRIPT = (
    COMMON
    + """
from emberkeep.spark.stopping.savepoint_storage import DirectoryStorage

RETAINED = 4
spark.conf.set("spark.sql.streaming.minBatchesToRetain", str(RETAINED))
spark.conf.set("spark.sql.streaming.stateStore.maintenanceInterval", "100ms")
spark.conf.set("spark.sql.streaming.stateStore.minDeltasForSnapshot", "3")
spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "true")
spark.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
PROVIDERS = {"plain": "HDFSBackedStateStoreProvider", "rocks": "RocksDBStateStoreProvider"}
story = {}

def until(condition):
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)

def counted(frame, number):
    frame.collect()

def started(name, provider, place):
    spark.conf.set("spark.sql.streaming.stateStore.providerClass",
                   f"org.apache.spark.sql.execution.streaming.state.{provider}")
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load()
    counts = rows.groupBy((F.col("value") % 3).alias("k")).count()
    return (counts.writeStream.queryName(name).outputMode("update").foreachBatch(counted)
            .option("checkpointLocation", place).trigger(processingTime="100 milliseconds").start())

def batch_of(query):
    last = query.lastProgress
    return -1 if last is None else last["batchId"]

def held(query):
    return str(query.id) in steps.plans._waiting

class SlowStorage(DirectoryStorage):
    waited = {}
    def save(self, source, name):
        for query in queries:
            if f"/query-{query.name}/" in name and query.name not in self.waited:
                before = batch_of(query)
                until(lambda: held(query) or batch_of(query) > before + 3 * RETAINED)
                self.waited[query.name] = time.sleep(1.5) or held(query)
        return super().save(source, name)

queries = [started(name, provider, str(root / "checkpoints" / name)) for name, provider in PROVIDERS.items()]
for query in queries:
    until(lambda: batch_of(query) > 3 * RETAINED)
steps._storages = type("Storages", (), {"at": lambda self, location, files: SlowStorage(location, files)})()

steps.pause(nothing)
story["copied"] = {query.name: steps.pauses.paused_at[f"query-{query.name}"] for query in queries}
steps.pauses.retain_batches()
steps.pauses.resume()
try:
    story["savepoint"] = steps.write_savepoint(heading(), str(root / "savepoint"), {}, nothing).path
except Exception as error:
    story["failed"] = repr(error)
story["held"] = SlowStorage.waited
story["warning"] = steps.pauses.release_batches()
for query in queries:
    reached = story["copied"][query.name] + 5 * RETAINED
    until(lambda: batch_of(query) > reached)
    query._jsq.stop()
story["again"] = {}
if "savepoint" in story:
    for name, provider in PROVIDERS.items():
        again = started(f"{name}-again", provider, f"{root}/savepoint/queries/query-{name}")
        until(lambda: again.exception() is not None or batch_of(again) > story["copied"][name])
        story["again"][name] = str(again.exception() or "")
        again._jsq.stop()
steps.end()
print(json.dumps(story))
"""
)


@pytest.fixture(name="drivers")
def runner_of_drivers(tmp_path: Path, class_archive: Path) -> DriverRunner:
    return DriverRunner(tmp_path, class_archive)


@pytest.mark.req("SAFE-18")
def test_every_file_is_there_however_short_the_batches_are(drivers: DriverRunner, tmp_path: Path) -> None:
    run = drivers.run(SCRIPT, str(tmp_path / "work"), spark_conf={"spark.executor.cores": "2"})

    assert run.exit_code == 0, f"{run.stdout}\n{run.stderr}"
    story = run.results()
    assert "failed" not in story, story
    assert story["savepoint"] == str(tmp_path / "work" / "savepoint")
    assert story["held"] == {"plain": True, "rocks": True}, "they went no further than Spark keeps"
    assert "for the savepoint's copy, because Spark keeps the files of its last spark.sql" in story["warning"]
    assert story["again"] == {"plain": "", "rocks": ""}, "each goes on from its copy"
