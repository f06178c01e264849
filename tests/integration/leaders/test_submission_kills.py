"""A leader that is killed at any step between the first upload and RUNNING: the job is accepted, runs once, and the
client that waits for it notices a delay only."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import SMALL, Shell
from tests.integration.conditions import until
from tests.integration.step_killer import StepKiller

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.req("SAFE-12")]

SESSION = "high-availability.zookeeper.client.session-timeout=4s"
MOST_STEPS = 30
# Together they are more than rpc.offload.min-size, so that the submission is uploaded as well.
ARGUMENTS = ["x" * 100_000] * 12


@pytest.fixture
def cluster(tmp_path: Path, class_archive: Path) -> Iterator[Cluster]:
    cluster = Cluster(Shell(tmp_path, class_archive.parent))
    cluster.shell.environment["EMBERKEEP_SECURITY__ENCRYPTION"] = "none"  # the killer reads each request
    try:
        cluster.up("--ha", "--memory", "12g", "-D", SESSION, *QUICK, "-D", "heartbeat.timeout=15s")
        yield cluster
    finally:
        cluster.close()


def run_once(cluster: Cluster, killer: StepKiller, number: signal.Signals) -> bool:
    """Run a job while ``killer`` sends the leader a signal at a new step. False when no such step was left."""
    address, leading = cluster.leader()
    killer.next_run(address, lambda: os.kill(leading.identity.pid, number))
    before = len(cluster.ask(lambda client: client.jobs()))
    running = cluster.shell.start("run", "--url", killer.url, *SMALL, "app.py", *ARGUMENTS)
    until(lambda: killer.struck.is_set() or running.process.poll() is not None, lambda: str(running))
    if killer.struck.is_set():
        until(lambda: not leading.is_running, "the leader is gone")
        killer.go_on(cluster.leader()[0])
    ended = running.wait()
    assert (ended.code, ended.out) == (0, "ran\n"), f"after {killer.steps[-1:]}: {ended}"
    assert len(cluster.ask(lambda client: client.jobs())) == before + 1, killer.steps[-1:]
    if sum(daemon.is_running for daemon in cluster.record.job_managers) < 2:
        cluster.up()
    return killer.struck.is_set()


def test_a_leader_is_lost_at_any_step_until_the_job_runs(cluster: Cluster) -> None:
    cluster.shell.write("app.py", "print('ran')\n")
    killer = StepKiller()
    with killer.serving():
        while run_once(cluster, killer, signal.SIGKILL):
            assert len(killer.steps) < MOST_STEPS, killer.steps
    names = {step.partition(" (")[0] for step in killer.steps}
    assert {f"{moment} POST /v1/jobs{what}" for moment in ("before", "after") for what in ("", "/:job/blobs")} <= names
    for kind in "pt":  # the script, and the submission
        uploads = {name.partition(" PUT ")[0] for name in names if f"/blobs/{kind}-" in name}
        assert uploads == {"before", "half of", "after"}, names
    assert "before GET /v1/jobs/:job (unknown)" in killer.steps
    # A leader that ends in order, for an upgrade, removes its local store, and with it what is not accepted yet.
    in_order = StepKiller(lambda step: step.startswith("before POST /v1/jobs (unknown"))
    with in_order.serving():
        assert run_once(cluster, in_order, signal.SIGTERM)
