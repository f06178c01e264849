"""A node on which processes of several jobs fail is found and blocked; jobs that fail by themselves block nothing."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emberkeep.base.ids import JobId
from emberkeep.chronicle.occurrence import What
from emberkeep.jobs.model import FailureKind, JobStatus
from emberkeep.protocol.rest_jobs import JobDetailsInfo
from emberkeep.slots.model import ProcessStart
from tests.integration.chronicle.shown_events import shown_events
from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import Running, Shell
from tests.integration.conditions import until
from tests.integration.standbys.warm_cluster import starts, warm_cluster

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.req("BLK-19")]

GOOD, BAD = "127.0.0.2", "rack 7/3"  # node ids
LIMITS = {
    "enabled": "true",
    "jobs": "2",
    "max-share": "0.5",
    "proof-time": "2s",
    "duration": "10min",
}

# A task manager that is silent for a moment, as on a busy machine, must not count as away: a job that asks for slots
# just then gets both on the good node, which leaves none there for the other job, and so no second witness.
PATIENT = (*QUICK, "-D", "heartbeat.timeout=60s", "-D", "job.driver.lease-timeout=60s")

# Its executors have nothing to do.
IDLE = """
import time
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
while True:
    time.sleep(0.1)
"""


@pytest.fixture(params=[ProcessStart.COLD, ProcessStart.HOT])
def cluster(request: pytest.FixtureRequest, tmp_path: Path, class_archive: Path) -> Iterator[Cluster]:
    """How the processes of jobs start is the parameter."""
    detection = [word for key, value in LIMITS.items() for word in ("-D", f"blocklist.detection.{key}={value}")]
    if request.param is ProcessStart.HOT:
        cluster: Cluster = warm_cluster(tmp_path, class_archive, (GOOD,), *PATIENT, *detection)
    else:
        cluster = Cluster(Shell(tmp_path, class_archive.parent))
    try:
        if request.param is ProcessStart.COLD:
            cluster.up("--nodes", GOOD, "--slots", "2", "--memory", "4g", *PATIENT, *detection)
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def bad_node(cluster: Cluster) -> Iterator[Path]:
    """A task manager for executors alone, started by hand on a node with an id of its own. What is yielded: its
    directory."""
    directory = cluster.shell.directory / "bad"
    settings = {
        "taskmanager.resource-id": "tm-bad",
        "taskmanager.host": "127.0.0.3",
        "taskmanager.node-id": BAD,
        "taskmanager.driver-places": "0",
        "taskmanager.numberOfTaskSlots": "4",
        "taskmanager.cpu.cores": "4",
        "taskmanager.memory.process.size": "4g",
        "jobmanager.rpc.address": cluster.address,
        "security.token-file": str(cluster.record.token_file),
        "process.taskmanager.working-dir": str(directory),
    }
    words = [word for key, value in settings.items() for word in ("-D", f"{key}={value}")]
    running = cluster.shell.start("taskmanager", *PATIENT, *words)
    try:
        until(lambda: BAD in nodes(cluster), lambda: str(running))
        yield directory
    finally:
        end(running)


def end(task_manager: Running) -> None:
    if task_manager.process.poll() is None:
        task_manager.process.send_signal(signal.SIGTERM)
        assert task_manager.wait().code == 0, task_manager


def nodes(cluster: Cluster) -> list[str]:
    return [manager.emberkeep.node_id for manager in cluster.ask(lambda client: client.task_managers())]


def blocked(cluster: Cluster) -> Any:
    return json.loads(cluster.shell.done("node", "list", "-o", "json").out)["blockedNodes"]


@pytest.mark.req("BLK-10")
def test_a_node_where_jobs_fail_that_work_elsewhere_is_blocked_and_one_where_a_job_always_fails_is_not(
    cluster: Cluster, bad_node: Path
) -> None:
    shell = cluster.shell
    # Jobs that cannot be started anywhere, by their own fault.
    (shell.work / "broken.zip").write_bytes(b"no archive")
    shell.write("never.py", "print('not reached')")
    again = ("-D", "restart-strategy.type=fixed-delay", "-D", "restart-strategy.fixed-delay.delay=100ms")
    twice = (*again, "-D", "restart-strategy.fixed-delay.attempts=2")
    failing = [cluster.submit_at_once("never.py", *twice, "--archives", "broken.zip") for _ in range(3)]
    for job_id in failing:
        job = cluster.wait_for_end(job_id, JobStatus.FAILED)
        assert [attempt.failure_kind for attempt in job.emberkeep.attempts] == 3 * [FailureKind.SETUP]

    # Where this file is, task managers make the directories of processes.
    (bad_node / "jobs").write_text("in the way")
    shell.write("idle.py", IDLE)
    patient = ("-D", "executor.max-failures=1000", "-D", "executor.backoff.initial=1s")
    cluster.wait_for_standbys()
    jobs: list[JobId] = [cluster.submit_at_once("idle.py", *patient, executors=2) for _ in range(2)]
    found = until(lambda: blocked(cluster), lambda: "\n".join(map(cluster.story, jobs)))
    assert list(found) == [BAD], "no other"
    entry = found[BAD]
    assert (entry["action"], entry["taskManagers"]) == ("MARK_BLOCKED", ["tm-bad"])
    assert entry["endTimestamp"] - entry["startTimestamp"] == 600_000
    assert entry["cause"].startswith("detected: processes cannot be started: processes of 2 jobs (")
    assert entry["cause"].endswith("within 600 s, and work on other nodes")
    assert all(job_id[:8] in entry["cause"] for job_id in jobs)
    line = next(line for line in shell.done("node").out.splitlines() if BAD in line)
    assert "MARK_BLOCKED until 2" in line
    assert entry["cause"] in line
    (event,) = shown_events(cluster, What.DETECTED, What.BLOCKED)
    assert (event["type"], event["by"], event["node"]) == ("detected", "", BAD), "nobody has blocked it"
    assert event["message"] == f"node {BAD} was blocked: {entry['cause']}"

    # The jobs go on with what they have.
    def goes_on(job: JobDetailsInfo) -> bool:
        hosts = [executor.host for executor in job.emberkeep.executors]
        return hosts == [GOOD] and "blocked nodes" in job.emberkeep.waiting

    for job_id in jobs:
        job = cluster.wait_for(job_id, goes_on, "it has one executor, and says why not two")
        assert (job.state, job.emberkeep.attempt) == (JobStatus.RUNNING, 1)
    assert cluster.start in {starts(cluster.job(job_id))[0] for job_id in jobs}
    cluster.cancel_all()
    assert list(blocked(cluster)) == [BAD]
