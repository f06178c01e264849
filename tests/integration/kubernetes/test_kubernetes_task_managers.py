"""Task managers as pods of a real Kubernetes: on demand, adopted, replaced elsewhere, gone when idle."""

from __future__ import annotations

from pathlib import Path

import pytest

from emberkeep.base.ids import JobId
from emberkeep.jobs.model import JobStatus
from tests.integration.clusters import Cluster, kill_process
from tests.integration.conditions import until
from tests.integration.kubernetes.real_kubernetes import NAMESPACE, NODES, RealKubernetes, why_impossible

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    pytest.mark.skipif(bool(why_impossible()), reason=why_impossible()),
    pytest.mark.req("BLK-9"),
]

SCRIPT = """
import sys, time
from pathlib import Path
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
print("sum", spark.range(1000).selectExpr("sum(id)").first()[0], flush=True)
while not Path(sys.argv[1]).exists():
    time.sleep(0.1)
"""


def submit(cluster: Cluster, ends: Path) -> JobId:
    cluster.shell.write("script.py", SCRIPT)
    return cluster.submit("script.py", arguments=(str(ends),))


def test_they_come_when_needed_are_adopted_and_replaced_on_a_node_that_is_not_blocked_and_go(
    cluster: Cluster, kubernetes: RealKubernetes
) -> None:
    assert kubernetes.pods() == {}
    ends = cluster.shell.work / "ends"
    job_id = submit(cluster, ends)
    driver = cluster.wait_for_driver(job_id)
    cluster.wait_for_executors(job_id)
    until(lambda: "sum 499500" in cluster.output(job_id), kubernetes.story)
    (pod,) = kubernetes.pods().values()
    node, uid = pod["spec"]["nodeName"], pod["metadata"]["uid"]
    (task_manager,) = cluster.ask(lambda client: client.task_managers())
    assert (task_manager.id, task_manager.emberkeep.node_id) == ("tm-0", node)
    assert NODES[node] in task_manager.path

    # A task manager process that is killed in its pod is started again there, and takes its driver over.
    (agent,) = kubernetes.kubelets[node].agents(uid)
    kill_process(agent)

    def is_adopted() -> bool:
        return any(each.emberkeep.adopted for each in cluster.ask(lambda client: client.task_managers()))

    until(is_adopted, kubernetes.story)
    assert cluster.wait_for_driver(job_id) == driver

    # A deleted pod is a loss. The other pod is not on the blocked node.
    cluster.shell.done("node", "block", node, "--cause", "test")
    kubernetes.core.delete_namespaced_pod(pod["metadata"]["name"], NAMESPACE, grace_period_seconds=1)
    cluster.wait_for_driver(job_id, attempt=2)
    cluster.wait_for_executors(job_id)
    assert set(kubernetes.settled().values()) == set(NODES) - {node}

    ends.touch()
    cluster.wait_for_end(job_id, JobStatus.FINISHED)
    until(lambda: kubernetes.pods() == {}, kubernetes.story)
