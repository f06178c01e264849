"""The driver of a stream is lost again and again: what the runbook says about it, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.base.ids import JobId
from emberkeep.jobs.model import FailureKind
from emberkeep.watchdog.model import AlarmKind
from tests.integration.clusters import QUICK, Cluster, kill_process
from tests.integration.commands import Shell
from tests.integration.conditions import until
from tests.integration.streams import SCRIPT, Stream

pytestmark = [pytest.mark.integration, pytest.mark.long]

NODES = ("127.0.0.2", "127.0.0.3")
KILLS = 4
# The kills are the only losses, on a busy machine as well.
PATIENT = ("-D", "heartbeat.timeout=60s", "-D", "job.driver.lease-timeout=60s")
FEW = ("-D", f"watchdog.restarts.max={KILLS - 1}", "-D", "watchdog.restarts.window=60s")


@pytest.fixture
def cluster(tmp_path: Path, class_archive: Path) -> Iterator[Cluster]:
    cluster = Cluster(Shell(tmp_path / "user", class_archive.parent))
    try:
        cluster.up("--nodes", ",".join(NODES), "--slots", "1", "--memory", "4g", *QUICK, *PATIENT)
        yield cluster
    finally:
        cluster.close()


def home(cluster: Cluster, job_id: JobId) -> str:
    """The node on which the driver runs."""
    driver = cluster.job(job_id).emberkeep.driver
    assert driver is not None
    (node,) = (node for node in NODES if node in driver.taskmanager_id)
    return node


def test_the_storm_is_told_and_ends_once_the_node_is_blocked(cluster: Cluster, tmp_path: Path) -> None:
    stream = Stream(tmp_path / "rows")
    cluster.shell.write("counted.py", SCRIPT)
    job_id = cluster.submit("counted.py", *FEW, arguments=(str(stream.place),))
    node = ""
    for attempt in range(1, KILLS + 1):
        driver = cluster.wait_for_driver(job_id, attempt)
        node = home(cluster, job_id)
        kill_process(driver)

    def alarms() -> list[AlarmKind]:
        return [alarm.kind for alarm in cluster.job(job_id).emberkeep.alarms]

    until(lambda: alarms() == [AlarmKind.RESTARTS], lambda: cluster.story(job_id))
    words = f"the driver was restarted more than {KILLS - 1} times within 60 s"
    shown = cluster.shell.done("info", job_id).out
    assert f"{words} (restarts, since " in shown, shown
    ended = [each for each in cluster.job(job_id).emberkeep.attempts if each.failure_kind is FailureKind.LOST]
    assert [each.root_cause for each in ended] == KILLS * ["the driver process was killed by signal 9"]
    assert words in cluster.shell.done("list").out
    labels = f'job="{job_id}",kind="restarts"'
    assert any(labels in line and line.endswith(" 1.0") for line in cluster.metrics().splitlines())

    cluster.shell.done("node", "block", node, "--cause", "restart storm")
    kill_process(cluster.wait_for_driver(job_id, KILLS + 1))
    cluster.wait_for_driver(job_id, KILLS + 2)
    assert home(cluster, job_id) != node
    wanted = stream.batches() + 5
    until(lambda: stream.batches() >= wanted, lambda: cluster.story(job_id))
    cluster.shell.done("node", "unblock", node)
    until(lambda: alarms() == [], lambda: cluster.story(job_id), seconds=120)
    stream.finish()
    cluster.wait_for_end(job_id)
    stream.check_rows()
