"""Task managers that the JobManager starts when jobs need them: on free nodes, once, and no longer than needed.

The jobs use no Spark: each needs the only driver place of a task manager.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.base.errors import RetryLater
from emberkeep.base.ids import JobId
from emberkeep.base.processes.process_identity import is_alive
from emberkeep.base.started_task_managers import read_started
from emberkeep.jobs.model import JobStatus
from emberkeep.protocol.rest_task_managers import TaskManagerSummary
from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import Shell
from tests.integration.conditions import until
from tests.integration.leaks import Seen

pytestmark = [pytest.mark.integration, pytest.mark.long]

FIRST, SECOND = "127.0.0.2", "second"  # node ids
ON_DEMAND = (
    *("-D", "resourcemanager.type=local-processes"),
    *("-D", f"resourcemanager.local-processes.nodes={FIRST},{SECOND}=127.0.0.3"),
    *("-D", "resourcemanager.taskmanager-timeout=3s", "-D", "taskmanager.driver-places=1"),
)

SCRIPT = """
import sys, time
from pathlib import Path

while not Path(sys.argv[1]).exists():
    time.sleep(0.1)
print("done", flush=True)
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(Shell(tmp_path, tmp_path / "no-jvm-is-started"))
    try:
        cluster.up("--slots", "1", "--memory", "4g", *QUICK, *ON_DEMAND)
        yield cluster
    finally:
        cluster.close()


def agents(cluster: Cluster) -> list[Seen]:
    """Task managers' processes."""
    return cluster.shell.traces.find("emberkeep.daemons.taskmanager")


def registered(cluster: Cluster) -> dict[str, TaskManagerSummary]:
    """By node; none while the JobManager does not answer."""
    try:
        managers = cluster.ask(lambda client: client.task_managers())
    except RetryLater:
        return {}
    return {each.emberkeep.node_id: each for each in managers}


def submit(cluster: Cluster, ends: Path) -> JobId:
    cluster.shell.write("script.py", SCRIPT)
    return cluster.submit("script.py", arguments=(str(ends),))


def home_of(cluster: Cluster, job_id: JobId) -> tuple[str, int]:
    """Task manager and pid of its driver, once its script runs."""
    pid = cluster.wait_for_driver(job_id)
    driver = cluster.job(job_id).emberkeep.driver
    assert driver is not None
    return driver.taskmanager_id, pid


@pytest.mark.req("BLK-9")
@pytest.mark.req("BLK-10")
def test_task_managers_come_when_needed_avoid_blocked_nodes_and_go_when_idle(cluster: Cluster) -> None:
    records = cluster.shell.state / "resourcemanager"
    assert not agents(cluster)
    assert not registered(cluster)
    cluster.shell.done("node", "block", FIRST, "--cause", "memory is swapped")

    # The leader is killed at some point between the start of the process and its registration, or soon after.
    ends, other_ends = cluster.shell.work / "ends", cluster.shell.work / "other-ends"
    job_id = submit(cluster, ends)
    until(lambda: read_started(records), "a start is recorded")
    cluster.kill("jobmanager")
    cluster.up()
    home = home_of(cluster, job_id)
    assert home[0] == f"tm-{SECOND}", "not on the blocked node"
    assert list(registered(cluster)) == [SECOND]
    (agent,) = agents(cluster)
    assert [each.process() for each in read_started(records)] == [agent.identity]

    # One more job has no place there. The blocked node is not used for it either; given back, it is.
    other = submit(cluster, other_ends)
    cluster.wait_for(other, lambda job: job.emberkeep.waiting, "it waits for a place")
    assert list(registered(cluster)) == [SECOND]
    cluster.shell.done("node", "unblock", FIRST)
    assert home_of(cluster, other)[0] == f"tm-{FIRST}"
    assert len(agents(cluster)) == 2

    # One whose process has died is started again for the sake of what runs there, and takes that over.
    os.kill(agent.identity.pid, signal.SIGKILL)
    until(lambda: not is_alive(agent.identity), "the task manager's process ends")
    until(
        lambda: SECOND in (there := registered(cluster)) and there[SECOND].emberkeep.pid != agent.identity.pid,
        "the task manager is registered again",
    )
    assert home_of(cluster, job_id) == home

    # With nothing to do they end, each by itself.
    other_ends.touch()
    cluster.wait_for_end(other, JobStatus.FINISHED)
    until(lambda: list(registered(cluster)) == [SECOND] and len(agents(cluster)) == 1, "the idle one ends")
    ends.touch()
    job = cluster.wait_for_end(job_id, JobStatus.FINISHED)
    assert job.emberkeep.attempt == 1
    until(lambda: not registered(cluster) and not agents(cluster), "the last one ends")
    until(lambda: not read_started(records), "their records are gone")
