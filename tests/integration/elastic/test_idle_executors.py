"""Dynamic allocation with real Spark: from no executor to some and back, and executors that stay for what they keep."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.base.ids import JobId
from tests.integration.clusters import Cluster, roomy_cluster
from tests.integration.conditions import until
from tests.integration.elastic.test_dynamic_allocation import check_history, events, free, output, registered

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.req("ELASTIC-1"), pytest.mark.req("ELASTIC-2")]

SLOTS, ROWS = 4, 1000

# Tasks of a phase end once the test has seen enough executors. Each task that computes rows leaves a file.
BEGINNING = """
import sys, time, uuid
from pathlib import Path
from pyspark.sql import SparkSession

place = Path(sys.argv[1])

def wait(name):
    while not (place / name).exists():
        time.sleep(0.05)

def rows(name):
    def compute(numbers):
        (place / f"computed-{name}-{uuid.uuid4().hex}").touch()
        return ((number % 10, number) for number in numbers)
    return compute

def held(name):
    def hold(numbers):
        (place / f"held-{name}-{uuid.uuid4().hex}").touch()
        wait(f"end-{name}")
        return numbers
    return hold

def idle(phase):
    (place / f"idle-{phase}").touch()
    wait(f"go-{phase}")

context = SparkSession.builder.getOrCreate().sparkContext
"""

FROM_NONE = f"""{BEGINNING}
idle("beginning")
kept = context.parallelize(range({ROWS}), 1).mapPartitions(rows("kept")).cache()
print("counted", kept.count(), flush=True)
print("held", context.parallelize(range(3), 3).mapPartitions(held("burst")).sum(), flush=True)
idle("cached")
print("read again", kept.map(lambda pair: pair[1]).sum(), flush=True)
idle("over")
print("last", context.parallelize(range(10), 2).sum(), flush=True)
"""

SHUFFLED = f"""{BEGINNING}
shuffled = context.parallelize(range({ROWS}), 3).mapPartitions(held("map")).mapPartitions(rows("map")).groupByKey(2)
print("grouped", shuffled.map(lambda pair: len(pair[1])).sum(), flush=True)
print("held", context.parallelize(range(4), 4).mapPartitions(held("burst")).sum(), flush=True)
idle("shuffled")
print("read again", shuffled.map(lambda pair: sum(pair[1])).sum(), flush=True)
shuffled._jrdd.rdd().cleanShuffleDependencies(True)  # as Spark does once nobody can read the shuffle any more
idle("over")
"""


@pytest.fixture
def cluster(tmp_path: Path, class_archive: Path) -> Iterator[Cluster]:
    with roomy_cluster(tmp_path, class_archive, SLOTS) as cluster:
        yield cluster


class Phases:
    """A job that waits in each phase for what the test has seen."""

    def __init__(self, cluster: Cluster, script: str, **allocation: str) -> None:
        self.cluster = cluster
        self._place = cluster.shell.directory / "phases"
        self.logs = cluster.shell.directory / "event-logs"
        self._place.mkdir()
        self.logs.mkdir()
        chosen = {"enabled": "true", "minExecutors": "0", "maxExecutors": str(SLOTS), "executorIdleTimeout": "3s"}
        log = {"enabled": "true", "rolling.enabled": "true", "dir": self.logs.as_uri(), "compress": "false"}
        conf = {f"spark.dynamicAllocation.{key}": value for key, value in (chosen | allocation).items()}
        conf |= {f"spark.eventLog.{key}": value for key, value in log.items()}
        words = tuple(word for key, value in conf.items() for word in ("--conf", f"{key}={value}"))
        path = cluster.shell.write("phases.py", script)
        self.job_id: JobId = cluster.submit(path, *words, arguments=(str(self._place),), executors=0)

    def wait_for_idle(self, phase: str) -> None:
        until((self._place / f"idle-{phase}").exists, lambda: self.cluster.story(self.job_id))

    def go(self, phase: str) -> None:
        (self._place / f"go-{phase}").touch()

    def end(self, name: str, tasks: int) -> None:
        """Let the tasks end once that many run at the same time."""
        until(lambda: len(list(self._place.glob(f"held-{name}-*"))) == tasks, lambda: self.cluster.story(self.job_id))
        self.cluster.wait_for(self.job_id, lambda job: registered(job) == tasks, "one executor for each task")
        (self._place / f"end-{name}").touch()

    def wait_for_executors(self, count: int, what: str) -> None:
        self.cluster.wait_for(self.job_id, lambda job: len(job.emberkeep.executors) == count, what)
        until(lambda: free(self.cluster) == SLOTS - count, "the other slots are free")

    def computed(self, name: str) -> int:
        return len(list(self._place.glob(f"computed-{name}-*")))

    def check_end(self) -> None:
        check_history(self.cluster, self.cluster.wait_for_end(self.job_id))

    def removed(self) -> list[object]:
        """Executors in the order in which Spark removed them."""
        ends = (event for event in events(self.logs) if event["Event"] == "SparkListenerExecutorRemoved")
        return list(dict.fromkeys(event["Executor ID"] for event in ends))

    def ran_on(self, stage: int) -> set[object]:
        """Executors that ran tasks of a stage."""
        ends = [event for event in events(self.logs) if event["Event"] == "SparkListenerTaskEnd"]
        infos = [event["Task Info"] for event in ends if event["Stage ID"] == stage]
        return {info["Executor ID"] for info in infos if isinstance(info, dict)}


def test_a_job_begins_without_executors_and_keeps_the_one_with_a_cached_block_longer(cluster: Cluster) -> None:
    phases = Phases(cluster, FROM_NONE, cachedExecutorIdleTimeout="25s")
    phases.wait_for_idle("beginning")
    job = cluster.job(phases.job_id)
    assert (job.emberkeep.executors, job.emberkeep.executors_wanted, job.emberkeep.waiting) == ([], 0, "")
    assert free(cluster) == SLOTS
    phases.go("beginning")
    phases.end("burst", 3)
    phases.wait_for_idle("cached")
    phases.wait_for_executors(1, "only the executor with the cached block stays")
    phases.go("cached")
    phases.wait_for_idle("over")
    assert phases.computed("kept") == 1, "the cached block was read"
    phases.wait_for_executors(0, "that one has gone, too")
    phases.go("over")
    phases.check_end()
    assert output(cluster, phases.job_id) == {"counted": ROWS, "held": 3, "read again": sum(range(ROWS)), "last": 45}
    (cached,) = phases.ran_on(0)
    assert phases.removed()[:3].index(cached) == 2, "it was the last to go"


@pytest.mark.req("ELASTIC-3")
def test_executors_stay_as_long_as_the_script_can_read_their_shuffle_files(cluster: Cluster) -> None:
    phases = Phases(cluster, SHUFFLED, **{"shuffleTracking.enabled": "true"})
    phases.end("map", 3)
    phases.end("burst", 4)
    phases.wait_for_idle("shuffled")
    phases.wait_for_executors(3, "the executor without shuffle files has gone")
    phases.go("shuffled")
    phases.wait_for_idle("over")
    phases.wait_for_executors(0, "nobody can read the shuffle any more")
    phases.go("over")
    phases.check_end()
    assert output(cluster, phases.job_id) == {"grouped": ROWS, "held": 6, "read again": sum(range(ROWS))}
    assert phases.computed("map") == 3, "each partition was computed once"
    assert not phases.ran_on(0) & set(phases.removed()[:1]), "those with shuffle files were not the first to go"
