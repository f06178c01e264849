"""Real streams whose load or backlog rises: executors follow, and no row is lost, repeated or computed again."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import Shell
from tests.integration.conditions import until
from tests.integration.streams import ROWS, SCRIPT, Stream

pytestmark = [pytest.mark.integration, pytest.mark.long]

WORK = """
def work(frames):
    import time
    for frame in frames:
        yield frame
    time.sleep(float((place / "seconds").read_text()))


spark ="""
# Reports offsets as Kafka does: a batch reads 10 rows of each of two partitions, which have 5000.
TOPIC = """
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadMaxRows

class Topic(DataSource):
    def schema(self):
        return "value long"

    def streamReader(self, schema):
        return Reader()

class Reader(DataSourceStreamReader):
    def initialOffset(self):
        return {"clicks": {"0": 0, "1": 0}}

    def getDefaultReadLimit(self):
        return ReadMaxRows(20)

    def latestOffset(self, start, limit):
        return {"clicks": {part: offset + limit.max_rows // 2 for part, offset in start["clicks"].items()}}

    def reportLatestOffset(self):
        return {"clicks": {"0": 5000, "1": 5000}}

    def partitions(self, start, end):
        return [
            InputPartition((int(part), offset, end["clicks"][part])) for part, offset in start["clicks"].items()
        ]

    def read(self, partition):
        part, start, end = partition.value
        for offset in range(start, end):
            yield (2 * offset + part,)


spark ="""
AUTOSCALE = tuple(
    word
    for setting in (
        "enabled=true",
        "max-executors=2",
        "scale-up-pause=2s",
        "scale-down-pause=6s",
    )
    for word in ("-D", f"execution.autoscale.{setting}")
)


def script(*changes: tuple[str, str]) -> str:
    text = SCRIPT
    for old, new in changes:
        assert text.count(old) == 1
        text = text.replace(old, new)
    return text


# Four partitions, each of which takes the seconds in a file.
LABORIOUS = (
    ("\nspark =", WORK),
    ('"numPartitions", 2', '"numPartitions", 4'),
    ("500 milliseconds", "12 seconds"),
    ("rates.dropDuplicates", "rates.mapInPandas(work, rates.schema).dropDuplicates"),
)
# Writes the reports of all batches at its end. This store counts how often its one partition was in the executor's
# memory, and begins again where the partition is loaded.
REPORTED = """
import json
(place / "progress").write_text(json.dumps([json.loads(each.json) for each in query.recentProgress]))
query.stop()
"""
REPORTING = (
    ("RocksDBStateStoreProvider", "HDFSBackedStateStoreProvider"),
    ("\nquery.stop()\n", REPORTED),
)
BACKLOGGED = script(
    ("\nspark =", TOPIC),
    ("\nrates =", "\nspark.dataSource.register(Topic)\nrates ="),
    (f'"rate-micro-batch").option("rowsPerBatch", {ROWS}).option("numPartitions", 2)', '"Topic")'),
    ("500 milliseconds", "10 seconds"),
)


@pytest.fixture
def cluster(shell: Shell) -> Iterator[Cluster]:
    cluster = Cluster(shell)
    try:
        cluster.up(*QUICK, "--slots", "2")
        yield cluster
        cluster.cancel_all()
    finally:
        cluster.close()


class LaboriousStream(Stream):
    """A stream whose batches take as long as the test says. ``changes``: to its script."""

    def __init__(self, cluster: Cluster, place: Path, *changes: tuple[str, str]) -> None:
        super().__init__(place)
        self._cluster = cluster
        self.burden("5")
        path = place.with_suffix(".py")
        path.write_text(script(*LABORIOUS, *changes))
        self.job_id = cluster.submit(path, *AUTOSCALE, arguments=(str(place),))

    def burden(self, seconds: str) -> None:
        aside = self.place / "seconds.new"
        aside.write_text(seconds)
        aside.rename(self.place / "seconds")

    def executors(self) -> dict[int, int]:
        """Pids of those that Spark can use, by number: that of the oldest is the lowest."""
        executors = self._cluster.job(self.job_id).emberkeep.executors
        return {int(executor.id): executor.pid for executor in executors if executor.registered}

    def wait_for_executors(self, count: int) -> dict[int, int]:
        def look() -> dict[int, int] | None:
            found = self.executors()
            return found if len(found) == count else None

        return until(look, self.story)

    def wait_for_batches(self, more: int) -> None:
        wanted = self.batches() + more
        until(lambda: self.batches() >= wanted, self.story)

    def end(self) -> None:
        self.finish()
        self._cluster.wait_for_end(self.job_id)
        self.check()

    def story(self) -> str:
        return self._cluster.story(self.job_id)


def test_executors_follow_the_load_of_a_stream(cluster: Cluster, tmp_path: Path) -> None:
    stream = LaboriousStream(cluster, tmp_path / "counts")
    stream.wait_for_executors(2)

    # The load stays: the next attempt begins with one executor, and gets as many.
    os.kill(stream.drivers()[-1], signal.SIGKILL)
    until(lambda: len(stream.drivers()) == 2 and len(stream.executors()) == 2, stream.story)

    stream.burden("0")
    stream.wait_for_executors(1)
    stream.wait_for_batches(3)
    stream.end()
    events = cluster.shell.done("events", stream.job_id).out
    assert "of its time, above the target of 70%" in events
    assert "of its time, below the target of 70%" in events


def test_the_executor_that_has_the_state_stays_and_reads_it_from_its_memory(cluster: Cluster, tmp_path: Path) -> None:
    stream = LaboriousStream(cluster, tmp_path / "states", *REPORTING)
    before = stream.wait_for_executors(2)
    stream.wait_for_batches(2)
    stream.burden("0")
    after = stream.wait_for_executors(1)
    assert after == {min(before): before[min(before)]}, "the oldest, which loaded the state when it was alone"
    stream.wait_for_batches(3)
    stream.end()
    reports = json.loads((stream.place / "progress").read_text())
    counts = [report["stateOperators"][0]["customMetrics"] for report in reports if report["stateOperators"]]
    hits, misses = ([each[f"loadedMapCache{name}Count"] for each in counts] for name in ("Hit", "Miss"))
    assert len(counts) >= 5
    assert set(misses) == {misses[0]}, counts
    assert hits == sorted(set(hits)), f"it was never loaded again: {counts}"


def test_executors_are_added_for_a_backlog_although_each_batch_is_short(cluster: Cluster, tmp_path: Path) -> None:
    stream = Stream(tmp_path / "backlogged")
    path = tmp_path / "backlogged.py"
    path.write_text(BACKLOGGED)
    catch_up = ("-D", "execution.autoscale.catch-up-time=10s")
    job_id = cluster.submit(path, *AUTOSCALE, *catch_up, arguments=(str(stream.place),))
    cluster.wait_for_executors(job_id, 2)
    before = stream.batches()
    until(lambda: stream.batches() > before + 1, lambda: cluster.story(job_id))
    stream.finish()
    cluster.wait_for_end(job_id)
    stream.check()
    events = cluster.shell.done("events", job_id).out
    (load,) = re.findall(r"needs (\d+)% of its time, above the target of 70%", events)
    assert int(load) > 300, "what is left counts: batches alone would have to take 30 s each"
