"""Task managers as pods of a real Kubernetes: on demand, adopted, replaced elsewhere, gone when idle."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.base.ids import JobId
from emberkeep.jobs.model import JobStatus
from tests.integration.clusters import QUICK, Cluster, kill_process
from tests.integration.commands import Shell
from tests.integration.conditions import until
from tests.integration.kubernetes.real_kubernetes import (
    NAMESPACE,
    NODES,
    RealKubernetes,
    real_kubernetes,
    why_impossible,
)
from tests.integration.slurm.real_slurm import ADDRESS

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


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path / "user", tmp_path / "no-class-archives")


@pytest.fixture
def kubernetes(tmp_path: Path, shell: Shell) -> Iterator[RealKubernetes]:
    with real_kubernetes(tmp_path / "kubernetes", shell.environment) as kubernetes:
        yield kubernetes


@pytest.fixture
def cluster(shell: Shell, kubernetes: RealKubernetes) -> Iterator[Cluster]:
    cluster = Cluster(shell)
    settings = {
        "resourcemanager.type": "kubernetes",
        "resourcemanager.taskmanager-timeout": "3s",
        "kubernetes.namespace": NAMESPACE,
        "kubernetes.container.image.ref": "emberkeep:test",
        "kubernetes.config.file": str(kubernetes.config_file),
        "process.taskmanager.working-dir": str(shell.directory / "place"),
        "taskmanager.driver-places": "1",
        "taskmanager.cpu.cores": "1",
        "rest.address": ADDRESS,
        "rest.bind-address": ADDRESS,
        "rest.port": "18081",
        "security.token-file": str(shell.state / "token"),
    }
    words = [word for key, value in settings.items() for word in ("-D", f"{key}={value}")]
    try:
        cluster.up("--slots", "1", "--memory", "3g", *QUICK, *words)
        yield cluster
    finally:
        try:
            kubernetes.delete_pods()
        finally:
            cluster.close()


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
