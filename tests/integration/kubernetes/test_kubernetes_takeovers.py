"""Several JobManagers in pods of Kubernetes: the next leader knows the pods of the one before from the API server."""

from __future__ import annotations

import os
import shlex
import signal
from pathlib import Path

import pytest

from emberkeep.jobs.model import JobStatus
from tests.integration.clusters import Cluster
from tests.integration.commands import Shell
from tests.integration.conditions import until
from tests.integration.kubernetes.real_kubernetes import SERVICE, RealKubernetes, why_impossible
from tests.integration.streams import SCRIPT, Stream

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    pytest.mark.skipif(bool(why_impossible()), reason=why_impossible()),
    pytest.mark.req("BLK-9"),
]

# What the JobManagers see of the machine has the files of their service account, and no others in /run.
_IN_POD = """#!/bin/sh
export place=/run/secrets/kubernetes.io/serviceaccount account={account}
exec unshare --mount sh -ec '
mount -t tmpfs none /run
mkdir -p "$place"
mount --bind "$account" "$place"
exec "$@"' sh {program} "$@"
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Its commands run as in a pod of the JobManager's service account."""
    program = tmp_path / "in-pod"
    shell = Shell(tmp_path / "user", tmp_path / "no-class-archives")
    account = tmp_path / "kubernetes" / "serviceaccount"
    program.write_text(_IN_POD.format(account=shlex.quote(str(account)), program=shlex.quote(str(shell.program))))
    program.chmod(0o700)
    shell.program = program
    host, port = SERVICE
    shell.environment |= {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    return shell


@pytest.fixture
def settings() -> dict[str, str]:
    # Several JobManagers of a local cluster are at loopback addresses, which the pods reach here.
    return {"kubernetes.config.file": "", "rest.address": "127.0.0.1", "rest.bind-address": "127.0.0.1"}


def uids(kubernetes: RealKubernetes) -> dict[str, str]:
    """Those of the pods, by task manager."""
    return {key: pod["metadata"]["uid"] for key, pod in kubernetes.pods().items()}


def kill_leader(cluster: Cluster, kubernetes: RealKubernetes) -> None:
    """SIGKILL to the leader. Return once the other JobManager leads, and has listed the pods several times."""
    address, leader = cluster.leader()
    os.kill(leader.identity.pid, signal.SIGKILL)
    until(lambda: cluster.leader()[0] != address, "the other JobManager leads")
    cluster.up()  # the killed one is a standby from now on
    lists = kubernetes.asked("list")
    until(lambda: kubernetes.asked("list") >= lists + 3, kubernetes.story)


def wait_for_batches(rows: Stream, count: int, kubernetes: RealKubernetes) -> None:
    until(lambda: rows.batches() >= count, kubernetes.story, seconds=300)


@pytest.mark.parametrize("cluster", [("--ha", "--job-managers", "2")], indirect=True)
def test_the_next_leader_goes_on_with_the_pods_of_the_one_before(cluster: Cluster, kubernetes: RealKubernetes) -> None:
    # Nobody chooses a node: the pod that one leader has created for the driver waits, and is the next one's.
    kubernetes.freeze("kube-scheduler")
    rows = Stream(cluster.shell.work / "rows")
    cluster.shell.write("counted.py", SCRIPT)
    job_id = cluster.submit("counted.py", arguments=(str(rows.place),), executors=2)
    requested = until(lambda: uids(kubernetes), kubernetes.story)
    kill_leader(cluster, kubernetes)
    assert uids(kubernetes) == requested
    assert list(requested) == ["tm-0"]
    kubernetes.thaw("kube-scheduler")
    cluster.wait_for_executors(job_id, 2)
    wait_for_batches(rows, 3, kubernetes)

    # Pods that run: none is deleted, and none is created for what runs already.
    running = uids(kubernetes)
    assert running == {**requested, "tm-1": running["tm-1"]}
    kill_leader(cluster, kubernetes)
    wait_for_batches(rows, rows.batches() + 3, kubernetes)
    cluster.wait_for_executors(job_id, 2)
    assert uids(kubernetes) == running
    assert (kubernetes.asked("create"), kubernetes.asked("delete")) == (2, 0)

    # Those that are idle end by themselves.
    rows.finish()
    assert cluster.wait_for_end(job_id, JobStatus.FINISHED).emberkeep.attempt == 1
    rows.check()
    assert len(rows.drivers()) == 1
    until(lambda: kubernetes.pods() == {}, kubernetes.story)
    assert kubernetes.asked("create") == 2
