"""A real stream whose load rises and falls: its executors follow, and no row is lost, repeated or computed again."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import Shell
from tests.integration.conditions import until
from tests.integration.streams import SCRIPT, Stream

pytestmark = [pytest.mark.integration, pytest.mark.long]

WORK = """
def work(frames):
    import time
    for frame in frames:
        yield frame
    time.sleep(float((place / "seconds").read_text()))


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


def script() -> str:
    """Four partitions, each of which takes the seconds in a file."""
    text = SCRIPT
    for old, new in (
        ("\nspark =", WORK),
        ('"numPartitions", 2', '"numPartitions", 4'),
        ("500 milliseconds", "12 seconds"),
        ("rates.dropDuplicates", "rates.mapInPandas(work, rates.schema).dropDuplicates"),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    return text


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
    path.write_text(script())
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
