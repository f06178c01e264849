"""Nodes blocked, evacuated and given back by the command under real jobs, the JobManager killed in between."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emberkeep.jobs.model import JobStatus
from emberkeep.protocol.rest import ExecutorInfo, JobDetailsInfo
from tests.integration.clusters import QUICK, Cluster, kill_process
from tests.integration.commands import Shell
from tests.integration.conditions import until
from tests.integration.streams import SCRIPT, Stream

pytestmark = pytest.mark.integration

NODES = ("127.0.0.2", "127.0.0.3")


@pytest.fixture
def cluster(tmp_path: Path, class_archive: Path) -> Iterator[Cluster]:
    cluster = Cluster(Shell(tmp_path, class_archive.parent))
    try:
        cluster.up("--nodes", ",".join(NODES), "--slots", "2", "--memory", "4g", *QUICK)
        yield cluster
    finally:
        cluster.close()


def listed(cluster: Cluster) -> Any:
    return json.loads(cluster.shell.done("node", "list", "-o", "json").out)


def slots_in_use(cluster: Cluster, node: str) -> int:
    """As the node's task manager reports it."""
    managers = cluster.ask(lambda client: client.task_managers())
    there = [manager for manager in managers if manager.emberkeep.node_id == node]
    return sum(manager.slots_number - manager.free_slots for manager in there)


def where(executors: list[ExecutorInfo]) -> list[str]:
    return sorted(executor.host for executor in executors)


def usable(job: JobDetailsInfo) -> list[ExecutorInfo]:
    return [executor for executor in job.emberkeep.executors if executor.registered and executor.pid]


def wait_for_hosts(cluster: Cluster, job_id: Any, hosts: list[str]) -> list[ExecutorInfo]:
    """Executors that Spark can use, once they are on these hosts."""
    job = cluster.wait_for(job_id, lambda job: where(usable(job)) == hosts, f"executors on {hosts}")
    return usable(job)


def wait_for_batches(cluster: Cluster, job_id: Any, stream: Stream) -> None:
    wanted = stream.batches() + 2
    until(lambda: stream.batches() >= wanted, lambda: cluster.story(job_id))


@pytest.mark.req("BLK-2")
@pytest.mark.req("BLK-8")
@pytest.mark.req("BLK-9")
@pytest.mark.req("BLK-17")
def test_nodes_are_blocked_evacuated_and_come_back_under_a_stream(cluster: Cluster) -> None:
    stream = Stream(cluster.shell.directory / "stream")
    cluster.shell.write("stream.py", SCRIPT)
    job_id = cluster.submit("stream.py", arguments=(str(stream.place),), executors=2)
    before = wait_for_hosts(cluster, job_id, list(NODES))
    wait_for_batches(cluster, job_id, stream)
    pid = cluster.wait_for_driver(job_id)
    driver = cluster.job(job_id).emberkeep.driver
    assert driver is not None
    home = next(node for node in NODES if node in driver.taskmanager_id)
    other = next(node for node in NODES if node != home)

    # It times out before the end of this test, and long after the command.
    cluster.shell.done("node", "block", "third", "--cause", "not there yet", "--for", "45s")

    # A blocked node keeps what it has, but what is lost there is replaced elsewhere.
    told = cluster.shell.done("node", "block", other, "--cause", "fan is loud", "--for", "2h").err
    assert f"node {other} gets no new work until" in told
    wait_for_batches(cluster, job_id, stream)
    assert {executor.pid for executor in usable(cluster.job(job_id))} == {executor.pid for executor in before}
    kill_process(next(executor.pid for executor in before if executor.host == other))
    wait_for_hosts(cluster, job_id, [home, home])
    until(lambda: slots_in_use(cluster, other) == 0, "the slot on the blocked node is given back")

    # The next JobManager knows it before it gives anything.
    cluster.kill("jobmanager")
    cluster.up()
    entry = listed(cluster)["blockedNodes"][other]
    assert (entry["action"], entry["cause"]) == ("MARK_BLOCKED", "fan is loud")
    again = cluster.shell.run("node", "block", other, "--cause", "again")
    assert again.code == 1
    assert "blocked already: fan is loud" in again.err

    # The last usable node is evacuated: its executors leave at once, and the job waits for others and says so.
    told = cluster.shell.done("node", "evacuate", home, "--cause", "power", "--wait").err
    assert f"no slot of {home} is in use" in told
    assert "1 driver" in told
    cluster.wait_for(job_id, lambda job: "blocked nodes" in job.emberkeep.waiting, "it waits for slots")
    assert (slots_in_use(cluster, home), slots_in_use(cluster, other)) == (0, 0)
    assert "MARK_BLOCKED_AND_EVACUATE_TASKS" in cluster.shell.done("node").out
    cluster.shell.done("node", "unblock", other)
    wait_for_hosts(cluster, job_id, [other, other])
    wait_for_batches(cluster, job_id, stream)

    until(lambda: list(listed(cluster)["blockedNodes"]) == [home], "the block of the third node times out")
    cluster.shell.done("node", "unblock", home)
    assert cluster.shell.run("node", "unblock", home).code == 4

    assert cluster.wait_for_driver(job_id) == pid
    lost = cluster.ask(lambda client: client.exceptions(job_id)).exception_history.entries
    assert len(lost) == 1, f"only the executor that was killed counts: {lost}"
    stream.finish()
    job = cluster.wait_for_end(job_id, JobStatus.FINISHED)
    assert job.emberkeep.attempt == 1
    stream.check()
