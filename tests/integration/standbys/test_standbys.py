"""Real jobs that take real standby processes, and what a standby process that fails costs them: a cold start."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.base.processes.process_identity import ProcessIdentity, identify
from emberkeep.slots.model import ProcessStart
from tests.integration.clusters import Cluster
from tests.integration.conditions import until
from tests.integration.standbys.warm_cluster import run, starts, submit, wait_until_warm, warm_cluster
from tests.integration.streams import SCRIPT, Stream

pytestmark = [pytest.mark.integration, pytest.mark.long]

BATCH = """
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

spark = SparkSession.builder.getOrCreate()
print("sum", spark.range(100).select(udf(lambda value: value + 1, "long")("id").alias("id")).groupBy().sum().collect())
spark.stop()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, class_archive: Path) -> Iterator[Cluster]:
    """A node that keeps a standby driver and a standby executor."""
    cluster = warm_cluster(tmp_path_factory.mktemp("standbys"), class_archive, ("127.0.0.2",))
    try:
        yield cluster
    finally:
        cluster.close()  # fails if a standby process is left


def standbys(cluster: Cluster) -> dict[str, ProcessIdentity]:
    """The standby processes that run, by kind."""
    found = {}
    for seen in cluster.shell.traces.processes():
        command = Path(f"/proc/{seen.identity.pid}/cmdline").read_bytes()
        if b"emberkeep.daemons.driver.standby" in command:
            found["driver"] = seen.identity
        elif b"PythonGatewayServer" in command and b"SparkSubmit" not in command:
            found["executor"] = seen.identity
    return found


def wait_for_batches(stream: Stream, driver: int) -> None:
    until(lambda: stream.drivers()[-1:] == [driver], f"batches of the driver {driver}")


def test_a_lost_driver_is_followed_by_a_hot_one(cluster: Cluster, tmp_path: Path) -> None:
    stream = Stream(tmp_path / "stream")
    wait_until_warm(cluster)
    job_id = submit(cluster, cluster.shell.write("stream.py", SCRIPT), arguments=(str(stream.place),))
    for attempt in (1, 2):
        pid = cluster.wait_for_driver(job_id, attempt)
        cluster.wait_for_executors(job_id)
        assert starts(cluster.job(job_id)) == (ProcessStart.HOT, {ProcessStart.HOT})
        wait_for_batches(stream, pid)
        if attempt == 1:
            wait_until_warm(cluster)
            os.kill(pid, signal.SIGKILL)
    stream.finish()
    cluster.wait_for_end(job_id)
    stream.check()
    assert len(stream.drivers()) == 2


def test_standbys_that_fail_cost_a_cold_start(cluster: Cluster) -> None:
    frozen, killed = "driver", "executor"
    wait_until_warm(cluster)
    failing = standbys(cluster)
    os.kill(failing[frozen].pid, signal.SIGSTOP)
    os.kill(failing[killed].pid, signal.SIGKILL)
    until(lambda: identify(failing[killed].pid) != failing[killed], "the killed standby ends")
    job, output = run(cluster, cluster.shell.write("batch.py", BATCH))
    assert starts(job) == (ProcessStart.COLD, {ProcessStart.COLD})
    assert job.emberkeep.attempt == 1
    assert "sum(id)=5050" in output
    assert identify(failing[frozen].pid) != failing[frozen], "it was killed before the cold start"
