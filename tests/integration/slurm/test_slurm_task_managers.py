"""Task managers as jobs of a real Slurm: on demand, kept while slurmctld is away, replaced, moved, gone when idle."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from emberkeep.base.errors import RetryLater
from emberkeep.base.ids import JobId
from emberkeep.jobs.model import FailureKind, JobStatus
from emberkeep.protocol.rest_task_managers import TaskManagerSummary
from tests.integration.clusters import Cluster, kill_process
from tests.integration.conditions import until
from tests.integration.slurm.real_slurm import RealSlurm, why_impossible
from tests.integration.streams import SCRIPT as COUNTED
from tests.integration.streams import Stream

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    pytest.mark.skipif(bool(why_impossible()), reason=why_impossible()),
    pytest.mark.req("BLK-9"),
]

SHORT_LIVED = ("-D", "resourcemanager.slurm.time-limit=4", "-D", "resourcemanager.slurm.drain-time=2m")
SCRIPT = """
import sys, time
from pathlib import Path

while not Path(sys.argv[1]).exists():
    time.sleep(0.1)
print("done", flush=True)
"""
WITH_GPU = ("-D", "resourcemanager.slurm.gres=gpu:1")
ONE_GPU = ("--conf", "spark.executor.resource.gpu.amount=1", "--conf", "spark.task.resource.gpu.amount=1")
GPU_SCRIPT = """
from pyspark import SparkContext, TaskContext

context = SparkContext.getOrCreate()
found = context.parallelize(range(2), 2).map(lambda _: TaskContext.get().resources()["gpu"].addresses).collect()
print("addresses", found, flush=True)
"""


def blocked(cluster: Cluster) -> dict[str, str]:
    """The causes of blocked nodes."""
    entries = cluster.ask(lambda client: client.blocklist()).blocked_nodes
    return {node: entry.cause for node, entry in entries.items()}


def restarted(cluster: Cluster, earlier: TaskManagerSummary) -> TaskManagerSummary | None:
    """The task manager, once another process of it has registered."""
    for each in cluster.ask(lambda client: client.task_managers()):
        if each.id == earlier.id and each.emberkeep.pid != earlier.emberkeep.pid:
            return each
    return None


def problem(cluster: Cluster) -> str:
    try:
        return cluster.ask(lambda client: client.overview()).emberkeep.problem
    except RetryLater:
        return ""


def submit(cluster: Cluster, ends: Path) -> JobId:
    cluster.shell.write("script.py", SCRIPT)
    return cluster.submit("script.py", arguments=(str(ends),))


@pytest.mark.req("BLK-10")
@pytest.mark.req("BLK-20")
def test_they_come_when_needed_outlive_slurmctld_and_leaders_are_replaced_and_go(
    cluster: Cluster, slurm: RealSlurm
) -> None:
    assert slurm.jobs() == {}
    ends = cluster.shell.work / "ends"
    job_id = submit(cluster, ends)
    driver = cluster.wait_for_driver(job_id)
    (number, state, node) = slurm.jobs()["tm-0"]
    assert state == "RUNNING"
    (task_manager,) = cluster.ask(lambda client: client.task_managers())
    assert (task_manager.id, task_manager.emberkeep.node_id) == ("tm-0", node)

    # The batch script starts a killed task manager process again, and the driver there goes on.
    kill_process(task_manager.emberkeep.pid)
    again = until(lambda: restarted(cluster, task_manager), slurm.story)
    assert again.emberkeep.node_id == node
    assert again.emberkeep.adopted >= 1
    assert cluster.wait_for_driver(job_id) == driver
    assert slurm.jobs()["tm-0"] == (number, "RUNNING", node)

    # A drained node is blocked until it is back.
    slurm.run("scontrol", "update", f"nodename={node}", "state=drain", "reason=disk is failing")
    until(lambda: blocked(cluster) == {node: "out of service: Slurm: disk is failing"}, lambda: str(blocked(cluster)))
    slurm.run("scontrol", "update", f"nodename={node}", "state=resume")
    until(lambda: not blocked(cluster), lambda: str(blocked(cluster)))

    # Another one was requested while the node was blocked, if not while the process was away. It ends when it is idle.
    until(lambda: slurm.jobs() == {"tm-0": (number, "RUNNING", node)}, slurm.story)

    # Nothing is taken for ended while slurmctld is away, not even by a new leader.
    slurm.kill_controller()
    until(lambda: "squeue" in problem(cluster), lambda: problem(cluster))
    cluster.kill("jobmanager")
    cluster.up()
    until(lambda: "squeue" in problem(cluster), lambda: problem(cluster))
    assert cluster.wait_for_driver(job_id) == driver
    slurm.start_controller()
    until(lambda: slurm.jobs() == {"tm-0": (number, "RUNNING", node)}, slurm.story)

    # A cancelled job is a loss: the driver starts again in another job.
    slurm.run("scancel", str(number))
    assert cluster.wait_for_driver(job_id, attempt=2) != driver
    assert slurm.state_of(number) in ("CANCELLED", "COMPLETING", "COMPLETED", "")

    ends.touch()
    cluster.wait_for_end(job_id, JobStatus.FINISHED)
    until(lambda: slurm.jobs() == {}, slurm.story)


@pytest.mark.req("BLK-21")
@pytest.mark.parametrize("cluster", [SHORT_LIVED], indirect=True)
def test_a_stream_moves_with_every_row_when_slurm_preempts_its_node_and_when_the_time_is_nearly_over(
    cluster: Cluster, slurm: RealSlurm
) -> None:
    rows = Stream(cluster.shell.work / "rows")
    cluster.shell.write("counted.py", COUNTED)
    job_id = cluster.submit("counted.py", arguments=(str(rows.place),))
    cluster.wait_for_executors(job_id)
    wait_for_batches(rows, 3, slurm)
    number, node = home(cluster, slurm, job_id)

    slurm.take_node(node)
    cluster.wait_for(job_id, lambda job: job.emberkeep.attempt == 2, "the stream has left the preempted node")
    cluster.wait_for_executors(job_id)
    later, elsewhere = home(cluster, slurm, job_id)
    assert elsewhere != node
    until(lambda: slurm.state_of(number) not in ("RUNNING", "COMPLETING"), slurm.story)

    cluster.wait_for(job_id, lambda job: job.emberkeep.attempt >= 3, "the stream has left before the limit", 360)
    cluster.wait_for_executors(job_id)
    assert home(cluster, slurm, job_id)[0] not in (number, later)
    until(lambda: slurm.state_of(later) not in ("RUNNING", "COMPLETING"), slurm.story)
    assert slurm.state_of(later) in ("COMPLETED", ""), "it has ended by itself, before its time was over"
    wait_for_batches(rows, rows.batches() + 3, slurm)
    rows.finish()
    job = cluster.wait_for_end(job_id, JobStatus.FINISHED)
    *earlier, _ = job.emberkeep.attempts  # on a slow machine, the time of further Slurm jobs is over, too
    assert {attempt.failure_kind for attempt in earlier} == {FailureKind.MOVED}
    rows.check()
    until(lambda: slurm.jobs() == {}, slurm.story)


def test_no_row_of_a_stream_is_lost_or_repeated_when_its_slurm_jobs_are_cancelled(
    cluster: Cluster, slurm: RealSlurm
) -> None:
    rows = Stream(cluster.shell.work / "rows")
    cluster.shell.write("counted.py", COUNTED)
    job_id = cluster.submit("counted.py", arguments=(str(rows.place),), executors=2)
    cluster.wait_for_executors(job_id, 2)
    wait_for_batches(rows, 3, slurm)

    # The job of the other executor: the driver goes on, and gets another executor.
    number, _ = home(cluster, slurm, job_id)
    (other,) = (job for job, _, _ in slurm.jobs().values() if job != number)
    slurm.run("scancel", str(other))
    until(lambda: slurm.state_of(other) not in ("RUNNING", "COMPLETING"), slurm.story)
    wait_for_batches(rows, rows.batches() + 3, slurm)
    cluster.wait_for_executors(job_id, 2)
    assert cluster.job(job_id).emberkeep.attempt == 1

    # The driver's own job.
    slurm.run("scancel", str(number))
    cluster.wait_for(job_id, lambda job: job.emberkeep.attempt == 2, "the driver is started again")
    cluster.wait_for_executors(job_id, 2)
    assert home(cluster, slurm, job_id)[0] not in (number, other)
    wait_for_batches(rows, rows.batches() + 3, slurm)

    rows.finish()
    cluster.wait_for_end(job_id, JobStatus.FINISHED)
    rows.check()
    assert len(rows.drivers()) == 2
    until(lambda: slurm.jobs() == {}, slurm.story)


@pytest.mark.req("RES-1")
@pytest.mark.parametrize("cluster", [WITH_GPU], indirect=True)
def test_a_job_that_asks_for_a_gpu_gets_a_task_manager_with_one(cluster: Cluster, slurm: RealSlurm) -> None:
    script = cluster.shell.write("gpus.py", GPU_SCRIPT)
    asked = ("submit", "-q", "--conf", "spark.executor.resource.gpu.amount=2", str(script))
    refused = cluster.shell.run(*asked)
    assert refused.code != 0, refused
    assert "offers 2 gpu" in refused.err, refused
    assert slurm.jobs() == {}

    job_id = cluster.submit(script, *ONE_GPU)
    until(slurm.jobs, slurm.story)
    cluster.wait_for_end(job_id, JobStatus.FINISHED)
    (address,) = set(re.findall("'([01])'", cluster.output(job_id)))
    assert address in ("0", "1")
    until(lambda: slurm.jobs() == {}, slurm.story)


def wait_for_batches(rows: Stream, count: int, slurm: RealSlurm) -> None:
    until(lambda: rows.batches() >= count, slurm.story, seconds=300)


def home(cluster: Cluster, slurm: RealSlurm, job_id: JobId) -> tuple[int, str]:
    """The Slurm job in which the driver runs, and its node."""
    driver = cluster.job(job_id).emberkeep.driver
    assert driver is not None
    number, _, node = slurm.jobs()[driver.taskmanager_id]
    return number, node
