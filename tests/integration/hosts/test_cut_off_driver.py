"""A host that no JobManager and no ZooKeeper reaches, while it still reaches the shared storage and its neighbours.

Nobody can end a driver there from outside. It must notice by itself that a newer attempt has begun.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from emberkeep.jobs.model import JobStatus
from tests.integration.conditions import until
from tests.integration.hosts.flights import DELAYS, Flights, Pipeline
from tests.integration.hosts.host import SHARED, Host
from tests.integration.hosts.network import Network
from tests.integration.hosts.numbered_rows import NumberedRows
from tests.integration.hosts.sessions import ROTATIONS
from tests.integration.hosts.site import USER, HostedCluster
from tests.integration.hosts.test_hosted_cluster import finished, more, submitted

pytestmark = [pytest.mark.integration, pytest.mark.long]

# Room for the whole job on either host: an executor of the old attempt beside its driver, and all of the new one.
ROOMY = {"taskmanager.numberOfTaskSlots": "2", "taskmanager.memory.process.size": "5g", "taskmanager.cpu.cores": "4"}


EACH_PIPELINE = pytest.mark.parametrize("pipeline", [DELAYS, ROTATIONS], ids=["delays", "rotations"])


def has_driver(host: Host) -> bool:
    return host.run("pgrep", "-f", "emberkeep.daemons.driver").code == 0


def driver_logs(host: Host) -> str:
    """Return all logs of drivers. Directories of processes that end meanwhile may disappear."""
    files = (
        Path(directory, name) for directory, _, names in os.walk(host.disk / "home" / USER / ".local") for name in names
    )
    return "\n".join(file.read_text() for file in files if file.match("driver*.log"))


@pytest.mark.req("HA-7", "NET-3")
def test_a_driver_that_is_cut_off_with_its_task_manager_ends_itself(network: Network) -> None:
    cluster = HostedCluster(network, job_managers=2, task_managers=2)
    cluster.prepare()
    cluster.start({host.name: ROOMY for host in cluster.task_managers})
    rows = NumberedRows(network.shared / "rows")
    job_id = submitted(cluster, rows, executors=2)
    more(cluster, rows, "at first")
    host = cluster.driver_host(cluster.running(job_id))
    other = next(each for each in cluster.task_managers if each is not host)

    network.cut(host, *cluster.job_managers, *cluster.zookeeper.hosts)

    def is_replaced() -> bool:
        if rows.is_read():
            rows.feed()  # the old driver always has a batch to commit
        job = cluster.job(job_id)
        return job is not None and job.emberkeep.attempt > 1 and job.state is JobStatus.RUNNING

    until(is_replaced, cluster.story)
    until(lambda: not has_driver(host), lambda: f"the old driver ends\n{driver_logs(host)}\n{cluster.story()}")
    assert "attempt 2 has begun, and no JobManager can be reached" in driver_logs(host)
    assert (host.path(SHARED) / "emberkeep").is_dir(), "the storage was there all the time"
    more(cluster, rows, "from the newer attempt, while the host is cut off")

    network.heal()
    until(lambda: cluster.registered() == 2, cluster.story)
    more(cluster, rows, "after the host is back")
    assert [has_driver(host), has_driver(other)] == [False, True]
    assert cluster.running(job_id).emberkeep.attempt == 2, "no attempt has failed because of the old one"
    finished(cluster, rows, job_id)


@pytest.mark.req("HA-9", "NET-3")
def test_a_driver_that_no_job_manager_reaches_goes_on_while_no_newer_attempt_begins(network: Network) -> None:
    cluster = HostedCluster(network, job_managers=1, task_managers=1)
    cluster.prepare()
    cluster.start({host.name: ROOMY for host in cluster.task_managers})
    rows = NumberedRows(network.shared / "rows")
    job_id = submitted(cluster, rows)
    more(cluster, rows, "at first")
    network.cut(cluster.task_managers[0], *cluster.job_managers, *cluster.zookeeper.hosts)
    batches = 0

    def are_done() -> bool:
        nonlocal batches
        if rows.is_read():
            rows.feed()
            batches += 1
        return batches > 40  # at 0.3 s or more each, in all longer than a lease

    until(are_done, cluster.story)
    network.heal()
    more(cluster, rows, "after the JobManager is back")
    assert cluster.running(job_id).emberkeep.attempt == 1
    finished(cluster, rows, job_id)


@pytest.mark.req("HA-7", "NET-3")
@EACH_PIPELINE
def test_the_host_of_the_driver_and_of_an_executor_is_cut_off_from_all_others(
    network: Network, pipeline: Pipeline
) -> None:
    """Only the shared storage is reached there: the old driver goes on with its executor until it finds the mark."""
    cluster = HostedCluster(network, job_managers=2, task_managers=2)
    cluster.prepare()
    cluster.start({host.name: ROOMY for host in cluster.task_managers})
    flights = Flights(cluster, pipeline=pipeline, executors=2)
    flights.go_on("at first")
    host = cluster.driver_host(cluster.running(flights.job_id))
    other = next(each for each in cluster.task_managers if each is not host)

    network.cut(host)
    cluster.wait_for_attempt(flights.job_id, 2)
    flights.go_on("from the newer attempt, while the host is cut off")
    until(lambda: not has_driver(host), lambda: f"the old driver ends\n{driver_logs(host)}\n{cluster.story()}")

    network.heal()
    until(lambda: cluster.registered() == 2, cluster.story)
    flights.go_on("after the host is back")
    assert [has_driver(host), has_driver(other)] == [False, True]
    assert cluster.running(flights.job_id).emberkeep.attempt == 2, "no attempt has failed because of the old one"
    flights.end()
