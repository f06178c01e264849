"""`emberkeep apply` while the leader is killed between a request and its reply, or the command itself is killed: each
declaration becomes one job."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emberkeep.base.ids import JobId
from emberkeep.jobs.model import JobStatus
from emberkeep.jobs.upgrades.model import UpgradePhase
from tests.integration.clusters import QUICK, Cluster, kill_process
from tests.integration.commands import Shell
from tests.integration.conditions import until
from tests.integration.declared_file import DeclaredFile
from tests.integration.step_killer import StepKiller
from tests.integration.streams import SCRIPT

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.req("SAFE-12"), pytest.mark.req("HA-5")]

SESSION = "high-availability.zookeeper.client.session-timeout=4s"


@pytest.fixture
def cluster(tmp_path: Path, class_archive: Path) -> Iterator[Cluster]:
    cluster = Cluster(Shell(tmp_path, class_archive.parent))
    cluster.shell.environment["EMBERKEEP_SECURITY__ENCRYPTION"] = "none"  # the killer reads each request
    try:
        cluster.up("--ha", "--memory", "4g", "-D", SESSION, *QUICK, "-D", "heartbeat.timeout=15s")
        yield cluster
        cluster.cancel_all()
    finally:
        cluster.close()


def applied_without_reply(cluster: Cluster, file: DeclaredFile, request: str) -> JobId:
    """Apply the file. The leader is killed when it has carried out ``request`` and before the client has the reply."""
    killer = StepKiller(lambda step: step.startswith(f"after POST {request} ("), until_running=False)
    with killer.serving():
        address, leading = cluster.leader()
        killer.next_run(address, lambda: os.kill(leading.identity.pid, signal.SIGKILL))
        running = cluster.shell.start("apply", "--url", killer.url, str(file.path))
        until(lambda: killer.struck.is_set() or running.process.poll() is not None, lambda: str(running))
        assert killer.struck.is_set(), running
        until(lambda: not leading.is_running, "the leader is gone")
        killer.go_on(cluster.leader()[0])
        ended = running.wait()
    assert ended.code == 0, ended
    cluster.up()  # starts the lost JobManager again
    return JobId(ended.out.strip())


def begun(cluster: Cluster, job_id: JobId) -> Callable[[], bool]:
    """Return what looks whether an upgrade of the job goes on."""

    def look() -> bool:
        upgrade = cluster.job(job_id).emberkeep.upgrade
        return upgrade is not None and upgrade.old_job == job_id and not upgrade.phase.is_final

    return look


def test_neither_a_lost_leader_nor_a_lost_client_makes_a_second_job(cluster: Cluster, tmp_path: Path) -> None:
    file = DeclaredFile(cluster, tmp_path / "counts")
    policy = {"batches": 2, "within": "3min"}
    file.declare(SCRIPT, upgrade=policy)
    first = applied_without_reply(cluster, file, "/v1/jobs")
    assert file.jobs() == {first}
    file.wait_for_batches(first)
    assert file.apply() == first
    assert cluster.job(first).emberkeep.attempt == 1

    file.declare(SCRIPT + "# version 2\n", upgrade=policy)
    second = applied_without_reply(cluster, file, "/v1/jobs/:job/upgrade")
    assert file.jobs() == {first, second}
    assert cluster.job(first).state is JobStatus.FINISHED
    file.wait_for_batches(second)

    file.declare(SCRIPT + "# version 3\n", upgrade=policy)
    client = cluster.shell.start("apply", str(file.path))
    until(begun(cluster, second), lambda: str(client))
    kill_process(client.process.pid)
    client.wait()
    third = file.apply()
    assert file.jobs() == {first, second, third}
    upgrade = cluster.ask(lambda client: client.upgrades.of_job(third))
    assert (upgrade.phase, upgrade.old_job) == (UpgradePhase.DONE, second)
    file.wait_for_batches(third)
    file.stream.finish()
    cluster.wait_for_end(third)
    file.stream.check_rows()
