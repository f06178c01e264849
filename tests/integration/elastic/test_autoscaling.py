"""Real streams whose load or backlog rises: executors follow, and no row is lost, repeated or computed again."""

from __future__ import annotations

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
LABORIOUS = script(
    ("\nspark =", WORK),
    ('"numPartitions", 2', '"numPartitions", 4'),
    ("500 milliseconds", "12 seconds"),
    ("rates.dropDuplicates", "rates.mapInPandas(work, rates.schema).dropDuplicates"),
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


def test_executors_follow_the_load_of_a_stream(cluster: Cluster, tmp_path: Path) -> None:
    stream = Stream(tmp_path / "counts")
    seconds = stream.place / "seconds"

    def burden(text: str) -> None:
        aside = seconds.with_name("seconds.new")
        aside.write_text(text)
        aside.rename(seconds)

    burden("5")
    path = tmp_path / "counts.py"
    path.write_text(LABORIOUS)
    job_id = cluster.submit(path, *AUTOSCALE, arguments=(str(stream.place),))

    def executors() -> int:
        return sum(executor.registered for executor in cluster.job(job_id).emberkeep.executors)

    def story() -> str:
        return cluster.story(job_id)

    until(lambda: executors() == 2, story)

    # The load stays: the next attempt begins with one executor, and gets as many.
    os.kill(stream.drivers()[-1], signal.SIGKILL)
    until(lambda: len(stream.drivers()) == 2 and executors() == 2, story)

    burden("0")
    until(lambda: executors() == 1, story)
    before = stream.batches()
    until(lambda: stream.batches() > before + 2, story)
    stream.finish()
    cluster.wait_for_end(job_id)
    stream.check()
    events = cluster.shell.done("events", job_id).out
    assert "of its time, above the target of 70%" in events
    assert "of its time, below the target of 70%" in events


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
