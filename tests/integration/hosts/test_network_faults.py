"""What a stream on several hosts survives of a bad network: no row is lost or comes twice."""

from __future__ import annotations

import pytest

from tests.integration.hosts.flights import DELAYS, Flights, Pipeline
from tests.integration.hosts.network import Fault, Network
from tests.integration.hosts.sessions import ROTATIONS
from tests.integration.hosts.site import HostedCluster

pytestmark = [pytest.mark.integration, pytest.mark.long]

EACH_PIPELINE = pytest.mark.parametrize("pipeline", [DELAYS, ROTATIONS], ids=["delays", "rotations"])
STILL_SECONDS = 10.0  # longer than a micro-batch
LATE_SECONDS = 0.02  # in each direction, at each host
# Spark notices within seconds that it has no contact with an executor.
SHORT_TIMEOUTS = (
    *("--conf", "spark.network.timeout=20s", "--conf", "spark.network.timeoutInterval=5s"),
    *("--conf", "spark.executor.heartbeatInterval=3s"),
)


def started(network: Network, pipeline: Pipeline) -> tuple[HostedCluster, Flights]:
    """A cluster and a stream. The first task manager has executors only, the other two have drivers only."""
    cluster = HostedCluster(network, job_managers=2)
    cluster.prepare()
    first, *others = cluster.task_managers
    of_drivers = {host.name: {"taskmanager.numberOfTaskSlots": "0"} for host in others}
    cluster.start({first.name: {"taskmanager.driver-places": "0"}, **of_drivers})
    flights = Flights(cluster, *SHORT_TIMEOUTS, pipeline=pipeline)
    flights.go_on("at first")
    return cluster, flights


@pytest.mark.req("NET-3")
@EACH_PIPELINE
def test_packets_come_late_or_twice_or_not_at_all_or_overtake_each_other(network: Network, pipeline: Pipeline) -> None:
    cluster, flights = started(network, pipeline)
    hosts = [*cluster.job_managers, *cluster.task_managers, *cluster.zookeeper.hosts]
    for host in hosts:
        network.delay(host, LATE_SECONDS)
    flights.go_on("while all packets come late")
    network.heal()
    for fault in (Fault(lost=2), Fault(doubled=20), Fault(delayed=10), Fault(lost=1, doubled=5, delayed=5)):
        network.disturb(fault)
        flights.go_on(f"while the network does this to packets: {fault}")
        network.heal()
    for host in hosts:
        network.slow(host, "8mbit")
    flights.go_on("while the network is slow")
    network.heal()
    flights.end()


@pytest.mark.req("NET-3")
@EACH_PIPELINE
def test_packets_pass_in_one_direction_only(network: Network, pipeline: Pipeline) -> None:
    cluster, flights = started(network, pipeline)
    of_driver = cluster.driver_host(cluster.running(flights.job_id))
    of_executor, leader = cluster.task_managers[0], cluster.leader()
    network.lose(of_executor, of_driver)
    flights.stand_still(STILL_SECONDS)
    network.heal()
    flights.go_on("after the driver's host gets packets from the executor's again")
    network.lose(leader, of_executor)
    flights.go_on("while the executor's host gets no packet from the leader's")
    network.heal()
    attempt = cluster.running(flights.job_id).emberkeep.attempt
    network.lose(leader, of_driver)
    cluster.wait_for_attempt(flights.job_id, attempt + 1)
    flights.go_on("from another host, while the driver's gets no packet from the leader's")
    network.heal()
    flights.end()
