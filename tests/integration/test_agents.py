"""Task managers' processes killed, stopped and started again while drivers and executors of theirs live."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.base.process_identity import identify
from emberkeep.jobs.model import JobStatus
from emberkeep.protocol.rest import JobDetailsInfo
from tests.integration.clusters import QUICK, Cluster, kill_process
from tests.integration.commands import Shell
from tests.integration.conditions import until
from tests.integration.streams import SCRIPT, Stream

pytestmark = pytest.mark.integration

NODES = ("tm-127.0.0.2", "tm-127.0.0.3")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, class_archive: Path) -> Iterator[Cluster]:
    cluster = Cluster(Shell(tmp_path_factory.mktemp("agents"), class_archive.parent))
    try:
        cluster.up("--nodes", "127.0.0.2,127.0.0.3", "--slots", "2", "--memory", "4g", *QUICK)
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(autouse=True)
def everything_is_given_back(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.cancel_all()
    cluster.wait_until_idle()


def processes(job: JobDetailsInfo) -> tuple[int, dict[str, int]]:
    """Pids of the driver and of the executors."""
    assert job.emberkeep.driver is not None
    return job.emberkeep.driver.pid, {executor.id: executor.pid for executor in job.emberkeep.executors}


def wait_for_batches(cluster: Cluster, job_id: str, stream: Stream, more: int = 3) -> None:
    wanted = stream.batches() + more
    until(lambda: stream.batches() >= wanted, lambda: cluster.story(job_id))  # type: ignore[arg-type]


@pytest.mark.req("LOC-6", "LOC-11")
def test_drivers_and_executors_do_not_notice_that_their_agents_are_killed_or_stopped_and_come_back(
    cluster: Cluster,
) -> None:
    stream = Stream(cluster.shell.directory / "adopted")
    cluster.shell.write("stream.py", SCRIPT)
    job_id = cluster.submit("stream.py", arguments=(str(stream.place),), executors=2)
    cluster.wait_for_executors(job_id, 2)
    wait_for_batches(cluster, job_id, stream)
    driver, executors = processes(cluster.job(job_id))

    for end in (signal.SIGKILL, signal.SIGTERM):
        before = [cluster.daemon(name) for name in NODES]
        for daemon in before:
            os.kill(daemon.identity.pid, end)
        until(lambda: not any(daemon.is_running for daemon in before), "the agents end")  # noqa: B023
        wait_for_batches(cluster, job_id, stream)
        cluster.up()
        wait_for_batches(cluster, job_id, stream)
        job = cluster.wait_for(
            job_id,
            lambda job: sum(executor.registered for executor in job.emberkeep.executors) == 2,
            "the executors are known again",
        )
        assert processes(job) == (driver, executors), cluster.story(job_id)
        assert job.emberkeep.attempt == 1

    victim = min(executors)
    kill_process(executors[victim])
    job = cluster.wait_for(
        job_id,
        lambda job: (
            victim not in {executor.id for executor in job.emberkeep.executors}
            and sum(executor.registered for executor in job.emberkeep.executors) == 2
        ),
        "an adopted executor that ends is replaced",
    )
    wait_for_batches(cluster, job_id, stream)
    assert processes(cluster.job(job_id))[0] == driver
    stream.finish()
    job = cluster.wait_for_end(job_id)
    assert stream.drivers() == [driver]
    assert job.emberkeep.attempt == 1
    stream.check()


SLEEPS = """
import time
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
print("count", spark.range(10).count(), flush=True)
time.sleep(3600)
"""


@pytest.mark.req("LOC-11")
def test_an_adopted_driver_can_be_cancelled_and_its_directory_goes(cluster: Cluster) -> None:
    cluster.shell.write("sleeps.py", SLEEPS)
    job_id = cluster.submit("sleeps.py")
    cluster.wait_for_executors(job_id)
    until(lambda: "count 10" in cluster.output(job_id), lambda: cluster.story(job_id))
    place = cluster.job(job_id).emberkeep.driver
    assert place is not None
    cluster.kill(place.taskmanager_id)
    cluster.up()
    assert cluster.wait_for_driver(job_id) == place.pid
    cluster.cancel(job_id)
    job = cluster.wait_for_end(job_id, JobStatus.CANCELED)
    assert job.emberkeep.attempt == 1
    assert identify(place.pid) is None
