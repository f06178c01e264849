"""Custom resources with real Spark: a discovery script finds three GPUs; a driver and its executors have one each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.base.ids import TaskManagerId
from emberkeep.jobs.model import JobStatus
from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import Shell
from tests.integration.conditions import until

pytestmark = [pytest.mark.integration, pytest.mark.long]

DISCOVERY = """#!/bin/sh
echo '{"name": "gpu", "addresses": ["0", "1", "2"]}'
"""
ONE_GPU = ("--conf", "spark.executor.resource.gpu.amount=1", "--conf", "spark.task.resource.gpu.amount=1")
OF_THE_DRIVER = ("--conf", "spark.driver.resource.gpu.amount=1")
SCRIPT = """
import sys, time
from pathlib import Path
from pyspark import BarrierTaskContext, SparkContext, TaskContext
from pyspark.resource import ExecutorResourceRequests, ResourceProfileBuilder, TaskResourceRequests

context = SparkContext.getOrCreate()
print("driver", [address for each in context.resources.values() for address in each.addresses], flush=True)

while context._jsc.sc().getExecutorMemoryStatus().size() < 3:  # the driver and both executors
    time.sleep(0.1)

def addresses(rows):
    BarrierTaskContext.get().barrier()  # both tasks run at the same time, so on both executors
    yield TaskContext.get().resources()["gpu"].addresses

found = context.parallelize(range(2), 2).barrier().mapPartitions(addresses).collect()
print("addresses", sorted(address for each in found for address in each), flush=True)

tasks = ResourceProfileBuilder().require(TaskResourceRequests().cpus(1).resource("gpu", 0.5)).build
print("sum", context.parallelize(range(10), 4).withResources(tasks).map(lambda n: n).sum(), flush=True)

try:
    context.parallelize(range(2)).withResources(
        ResourceProfileBuilder().require(ExecutorResourceRequests().resource("gpu", 2)).build
    )
except Exception as error:
    print("refused:", error, flush=True)

while not (Path(sys.argv[1]) / "go").exists():
    time.sleep(0.1)
"""


@pytest.fixture
def cluster(tmp_path: Path, class_archive: Path) -> Iterator[Cluster]:
    cluster = Cluster(Shell(tmp_path, class_archive.parent))
    script = cluster.shell.write("discover.sh", DISCOVERY)
    script.chmod(0o700)
    gpus = f"taskmanager.resources.discovery-scripts=gpu={script}"
    try:
        cluster.up("--nodes", "127.0.0.2", "--slots", "3", "--memory", "6g", *QUICK, "-D", gpus)
        yield cluster
    finally:
        cluster.close()


def held(cluster: Cluster) -> dict[str, list[str]]:
    """The GPUs that each job has."""
    found: dict[str, list[str]] = {}
    for slot in cluster.ask(lambda client: client.task_manager(TaskManagerId("tm-127.0.0.2"))).allocated_slots:
        found.setdefault(slot.job_id, []).extend(slot.addresses.get("gpu", []))
    return {job_id: sorted(addresses) for job_id, addresses in found.items()}


@pytest.mark.req("RES-1", "RES-2")
def test_executors_have_gpus_for_themselves_through_a_restart_of_their_agent(cluster: Cluster) -> None:
    script = cluster.shell.write("gpus.py", SCRIPT)
    words = ("submit", "-q", "--conf", "spark.executor.resource.gpu.amount=4", str(script), "none")
    refused = cluster.shell.run(*words)
    assert refused.code != 0, refused
    assert "offers 4 gpu" in refused.err

    first = cluster.submit(script, *ONE_GPU, *OF_THE_DRIVER, arguments=(str(cluster.shell.work),), executors=2)
    until(lambda: "refused:" in cluster.output(first), lambda: cluster.story(first))
    printed = cluster.output(first).splitlines()
    assert printed[:3] == ["driver ['0']", "addresses ['1', '2']", "sum 45"], cluster.story(first)
    assert "a stage's resource profile asks for executors of its own (gpu)" in printed[3], printed
    assert held(cluster) == {first: ["1", "2"]}

    second = cluster.submit(script, *ONE_GPU, arguments=(str(cluster.shell.work),), executors=2)
    waits = "2 of 2 slots (1 core, 896 MiB and 1 gpu each) are missing: 1 of 3 slots are free, but no task manager has"
    cluster.wait_for(second, lambda job: waits in job.emberkeep.waiting, "the reason is said")

    pids = {executor.pid for executor in cluster.wait_for_executors(first, 2)}
    cluster.kill("tm-127.0.0.2")
    cluster.up()
    until(lambda: held(cluster) == {first: ["1", "2"]}, lambda: cluster.story(first))
    assert {executor.pid for executor in cluster.wait_for_executors(first, 2)} == pids

    (cluster.shell.work / "go").touch()
    for job_id in (first, second):
        cluster.wait_for_end(job_id, JobStatus.FINISHED)
    driver, executors, _, _ = cluster.output(second).splitlines()
    assert driver == "driver []", cluster.story(second)
    assert len(set(re.findall("'([012])'", executors))) == 2, cluster.story(second)
    cluster.wait_until_idle()
