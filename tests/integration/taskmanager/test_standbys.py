"""Real jobs that take real standby processes, and what a standby process that fails costs them: a cold start."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.base.ids import JobId
from emberkeep.base.processes.process_identity import identify
from emberkeep.jobs.model import JobStatus
from emberkeep.protocol.rest_jobs import JobDetailsInfo
from emberkeep.slots.model import ProcessStart
from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import NO_STANDBYS, Shell
from tests.integration.conditions import until
from tests.integration.streams import SCRIPT, Stream
from tests.support.ready_standbys import ready_standbys

pytestmark = [pytest.mark.integration, pytest.mark.long]

NODES = ("127.0.0.2", "127.0.0.3")
WARM_SECONDS = 900.0  # at idle priority, beside other tests

BATCH = """
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

spark = SparkSession.builder.getOrCreate()
print("sum", spark.range(100).select(udf(lambda value: value + 1, "long")("id").alias("id")).groupBy().sum().collect())
spark.stop()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, class_archive: Path) -> Iterator[Cluster]:
    """Two nodes, each of which keeps a standby driver and a standby executor."""
    cluster = Cluster(Shell(tmp_path_factory.mktemp("standbys"), class_archive.parent))
    for name in NO_STANDBYS:
        del cluster.shell.environment[name]
    try:
        cluster.up("--nodes", ",".join(NODES), "--slots", "2", "--memory", "4g", *QUICK)
        yield cluster
    finally:
        cluster.close()  # fails if a standby process is left


def warm(cluster: Cluster) -> dict[str, int]:
    """Wait until both nodes have their standby processes. Return the pids by "task manager/standby"."""

    def all_ready() -> dict[str, int] | None:
        ready = ready_standbys(cluster.shell.state)
        return ready if len(ready) == 2 * len(NODES) else None

    return until(all_ready, lambda: f"standbys: {ready_standbys(cluster.shell.state)}", WARM_SECONDS)


def drivers(ready: dict[str, int]) -> list[int]:
    return [pid for name, pid in ready.items() if name.rpartition("/")[2].startswith("driver")]


def submit(cluster: Cluster, script: str, *arguments: str) -> JobId:
    path = cluster.shell.write("job.py", script)
    return JobId(cluster.shell.done("submit", "-q", "--num-executors", "1", str(path), *arguments).out.strip())


def starts(job: JobDetailsInfo) -> tuple[ProcessStart | None, set[ProcessStart | None]]:
    """How the driver and the executors came up."""
    recovery = job.emberkeep.attempts[-1].recovery
    return None if recovery is None else recovery.start, {executor.start for executor in job.emberkeep.executors}


def wait_for_batches(stream: Stream, driver: int) -> None:
    until(lambda: stream.drivers()[-1:] == [driver], f"batches of the driver {driver}")


def test_a_lost_driver_is_followed_by_a_hot_one(cluster: Cluster, tmp_path: Path) -> None:
    stream = Stream(tmp_path / "stream")
    ready = warm(cluster)
    job_id = submit(cluster, SCRIPT, str(stream.place))
    for attempt in (1, 2):
        pid = cluster.wait_for_driver(job_id, attempt)
        cluster.wait_for_executors(job_id)
        assert pid in drivers(ready)
        assert starts(cluster.job(job_id)) == (ProcessStart.HOT, {ProcessStart.HOT})
        wait_for_batches(stream, pid)
        if attempt == 1:
            ready = warm(cluster)
            os.kill(pid, signal.SIGKILL)
    stream.finish()
    cluster.wait_for_end(job_id)
    stream.check()
    assert len(stream.drivers()) == 2


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_a_standby_that_fails_costs_a_cold_start(cluster: Cluster, number: signal.Signals) -> None:
    failing = [identify(pid) for pid in drivers(warm(cluster))]
    for identity in failing:
        assert identity is not None
        os.kill(identity.pid, number)
    job_id = submit(cluster, BATCH)
    job = cluster.wait_for_end(job_id)
    assert (job.emberkeep.attempt, job.state) == (1, JobStatus.FINISHED)
    assert "sum(id)=5050" in cluster.output(job_id)
    taken = [identity for identity in failing if identity is not None and identify(identity.pid) != identity]
    assert len(taken) == (1 if number == signal.SIGSTOP else 2)  # a frozen one was killed before the cold start
    for identity in failing:
        if identity is not None and identity not in taken:
            os.kill(identity.pid, signal.SIGCONT)
