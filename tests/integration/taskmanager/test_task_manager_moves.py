"""A task manager that comes back at another address goes on with its slots, its driver and its executors."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.base.configuration.layout import WorkingDirectory
from emberkeep.daemons.records.agent_files import SlotsFile
from emberkeep.protocol.rest_jobs import JobDetailsInfo
from tests.integration.clusters import QUICK, Cluster, kill_process
from tests.integration.commands import Running, Shell
from tests.integration.conditions import until

pytestmark = pytest.mark.integration

SLEEPS = """
import time
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
print("count", spark.range(10).count(), flush=True)
time.sleep(3600)
"""
ID = "tm-127.0.0.4"


@pytest.fixture
def cluster(tmp_path: Path, class_archive: Path) -> Iterator[Cluster]:
    cluster = Cluster(Shell(tmp_path, class_archive.parent))
    try:
        cluster.up("--nodes", "127.0.0.2", "--slots", "1", "--memory", "2g", *QUICK)
        yield cluster
    finally:
        cluster.close()


def start(cluster: Cluster, place: Path, host: str) -> Running:
    """With the address as all that tells one machine from another."""
    record = cluster.record
    values = {
        "taskmanager.host": host,
        "taskmanager.numberOfTaskSlots": "1",
        "taskmanager.memory.process.size": "3g",
        "jobmanager.rpc.address": cluster.address,
        "security.token-file": record.token_file,
        "process.taskmanager.working-dir": str(place),
        "heartbeat.interval": "500ms",
        "heartbeat.timeout": "4s",
    }
    started = cluster.shell.start("taskmanager", *(word for item in values.items() for word in ("-D", "=".join(item))))
    until(lambda: address(cluster) == (host, started.process.pid), lambda: str(started))
    return started


def address(cluster: Cluster) -> tuple[str, int]:
    """Where the task manager is registered from, and its pid."""
    found = {str(tm.id): tm for tm in cluster.ask(lambda client: client.task_managers())}.get(ID)
    return ("", 0) if found is None else (found.path.rpartition(":")[0].rpartition("/")[2], found.emberkeep.pid)


def processes(job: JobDetailsInfo) -> tuple[int, dict[str, int]]:
    assert job.emberkeep.driver is not None
    return job.emberkeep.driver.pid, {executor.id: executor.pid for executor in job.emberkeep.executors}


@pytest.mark.long
@pytest.mark.req("SAFE-17", "LOC-1", "LOC-11")
def test_what_runs_on_a_task_manager_goes_on_when_its_host_name_changes(cluster: Cluster) -> None:
    place = cluster.shell.directory / "place"
    agent = start(cluster, place, "127.0.0.4")
    cluster.shell.done("taskmanager", "stop", "tm-127.0.0.2")
    cluster.shell.write("sleeps.py", SLEEPS)
    job_id = cluster.submit("sleeps.py")
    cluster.wait_for_executors(job_id)
    until(lambda: "count 10" in cluster.output(job_id), lambda: cluster.story(job_id))
    before = processes(cluster.job(job_id))
    (slot,) = SlotsFile(WorkingDirectory(place).slots_record).load().table.slots

    agent.process.send_signal(signal.SIGKILL)
    agent.wait()
    agent = start(cluster, place, "127.0.0.5")
    job = cluster.wait_for(
        job_id, lambda job: any(each.registered for each in job.emberkeep.executors), "the executor is known again"
    )
    assert processes(job) == before
    assert job.emberkeep.attempt == 1

    agent.process.send_signal(signal.SIGKILL)
    agent.wait()
    (victim,) = before[1].values()
    kill_process(victim)
    agent = start(cluster, place, "127.0.0.6")
    job = cluster.wait_for(
        job_id,
        lambda job: any(each.registered and each.pid != victim for each in job.emberkeep.executors),
        "another executor is in its slot",
    )
    assert processes(job)[0] == before[0]
    assert job.emberkeep.attempt == 1
    (again,) = SlotsFile(WorkingDirectory(place).slots_record).load().table.slots
    assert again.allocation.id == slot.allocation.id
    cluster.cancel_all()
    cluster.wait_until_idle()
    agent.process.send_signal(signal.SIGQUIT)
    assert agent.wait().code == 0
