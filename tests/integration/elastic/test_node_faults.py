"""Dynamic allocation with real Spark while a node with executors is lost, or evacuated."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.protocol.rest_jobs import JobDetailsInfo
from tests.integration.clusters import Cluster, roomy_cluster
from tests.integration.conditions import until
from tests.integration.elastic.test_dynamic_allocation import MOST, events, free, registered
from tests.integration.elastic.test_dynamic_allocation_faults import Bursts, away

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.req("ELASTIC-4")]

NODES = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
SLOTS_OF_NODE = 2
STAY = ("--conf", "spark.dynamicAllocation.executorIdleTimeout=1h")  # so only the evacuation makes executors go


@pytest.fixture
def of_three_nodes(tmp_path: Path, class_archive: Path) -> Iterator[Cluster]:
    with roomy_cluster(tmp_path, class_archive, SLOTS_OF_NODE, "--nodes", ",".join(NODES)) as cluster:
        yield cluster


def on_node(job: JobDetailsInfo, node: str) -> int:
    return sum(executor.host == node for executor in job.emberkeep.executors)


def other_node(bursts: Bursts) -> str:
    """A node that has an executor of the job, and not its driver."""
    job = bursts.cluster.job(bursts.job_id)
    assert job.emberkeep.driver is not None
    home = job.emberkeep.driver.taskmanager_id
    return next(node for node in NODES if node not in home and on_node(job, node))


def test_executors_of_a_lost_node_are_replaced_and_slots_follow_the_load_afterwards(of_three_nodes: Cluster) -> None:
    cluster, bursts = of_three_nodes, Bursts(of_three_nodes)
    bursts.wait_for_most("the burst has the most executors")
    bursts.wait_for_tasks(1, MOST)
    lost = other_node(bursts)
    cluster.lose_node(f"tm-{lost}")
    left = SLOTS_OF_NODE * (len(NODES) - 1)
    cluster.wait_for(
        bursts.job_id,
        lambda job: registered(job) == MOST and not away(job) and not on_node(job, lost),
        "other executors replace those of the node",
    )
    allocation = cluster.job(bursts.job_id).emberkeep.dynamic_allocation
    assert allocation is not None
    assert allocation.wanted == MOST
    bursts.finish(1)
    bursts.wait_for_fewest(left)
    bursts.go(1)
    bursts.wait_for_most("the second burst has the most executors on the nodes that are left")
    bursts.finish(2)
    bursts.wait_for_fewest(left)
    bursts.go(2)
    bursts.wait_for_end()
    assert cluster.ask(lambda client: client.exceptions(bursts.job_id)).exception_history.entries
    lines = cluster.shell.done("events", bursts.job_id, "-o", "json").out.splitlines()
    ended = [event for event in map(json.loads, lines) if event["type"] == "executors-ended"]
    assert {event["task-manager"] for event in ended} == {f"tm-{lost}"}


def test_an_evacuated_node_hands_over_what_an_idle_job_still_needs(of_three_nodes: Cluster) -> None:
    cluster, bursts = of_three_nodes, Bursts(of_three_nodes, *STAY)
    bursts.wait_for_most("the burst has the most executors")
    bursts.finish(1)
    left = other_node(bursts)
    cluster.shell.done("node", "evacuate", left, "--cause", "dust", "--wait")
    job = cluster.job(bursts.job_id)
    assert not on_node(job, left)
    assert registered(job) >= MOST - 1
    bursts.go(1)
    bursts.wait_for_most("the second burst has the most executors elsewhere")
    bursts.finish(2)
    cluster.shell.done("node", "unblock", left)
    assert not on_node(cluster.job(bursts.job_id), left)
    until(lambda: free(cluster) == SLOTS_OF_NODE * len(NODES) - MOST, "it holds no more slots than it uses")
    bursts.go(2)
    bursts.wait_for_end()
    bursts.check_nothing_was_computed_again()
    cluster.wait_until_idle()
    stages = [event["Stage Info"] for event in events(bursts.logs) if event["Event"] == "SparkListenerStageSubmitted"]
    assert {stage["Stage Attempt ID"] for stage in stages if isinstance(stage, dict)} == {0}
