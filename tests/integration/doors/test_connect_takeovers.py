"""A Spark Connect server on a cluster with two JobManagers: takeovers end neither its address nor a session."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.base.ids import JobId
from tests.integration.clusters import Cluster, roomy_cluster
from tests.integration.commands import SMALL
from tests.integration.conditions import until
from tests.integration.doors.connect_scripts import FREQUENT, HOLDING
from tests.integration.doors.test_connect import client, line, opened, place_of

pytestmark = [pytest.mark.integration, pytest.mark.long]

MORE = 5  # answers after a takeover


@pytest.fixture
def led_by_two(tmp_path: Path, class_archive: Path) -> Iterator[Cluster]:
    session = ("-D", "high-availability.zookeeper.client.session-timeout=4s")
    with roomy_cluster(tmp_path / "site", class_archive, 2, "--ha", "--job-managers", "2", *session) as cluster:
        yield cluster


def wait_for_another_leader(cluster: Cluster, name: str) -> None:
    until(lambda: cluster.leader()[1].name != name, f"another JobManager than {name} leads")


def answers(place: Path, name: str) -> int:
    """How many answers that client has got. It ends with the first error that it sees."""
    path = place / f"answers-{name}"
    return len(path.read_text().split()) if path.exists() else 0


def wait_for_answers(cluster: Cluster, job_id: JobId, place: Path, name: str) -> None:
    count = answers(place, name) + MORE
    until(lambda: answers(place, name) >= count, lambda: f"answers for {name}: {cluster.story(job_id)}")


def test_clients_keep_their_sessions_while_leaders_are_killed_and_frozen(led_by_two: Cluster) -> None:
    cluster, shell, place = led_by_two, led_by_two.shell, place_of(led_by_two.shell)
    job_id = JobId(shell.done("connect", "up", "-q", "--num-executors", "2", *SMALL).out.strip())
    with opened(shell) as command:
        address = command.out.strip()
        driver = cluster.wait_for_driver(job_id)
        with (
            client(shell, HOLDING, address, str(place)) as holding,
            client(shell, FREQUENT, address, str(place), "first") as first,
        ):
            until((place / "runs-0").exists, lambda: f"the query runs: {command} {cluster.story(job_id)}")
            wait_for_answers(cluster, job_id, place, "first")

            # Killed: another client comes meanwhile.
            _, leading = cluster.leader()
            os.kill(leading.identity.pid, signal.SIGKILL)
            with client(shell, FREQUENT, address, str(place), "second") as second:
                wait_for_another_leader(cluster, leading.name)
                wait_for_answers(cluster, job_id, place, "first")
                (place / "go-0").touch()
                assert line(holding) == "held 7 view 45", cluster.story(job_id)
                wait_for_answers(cluster, job_id, place, "second")
                cluster.up()

                # Frozen: its connections stay, and say nothing.
                until((place / "runs-1").exists, lambda: f"the next query runs: {cluster.story(job_id)}")
                _, leading = cluster.leader()
                os.kill(leading.identity.pid, signal.SIGSTOP)
                try:
                    wait_for_another_leader(cluster, leading.name)
                    for name in ("first", "second"):
                        wait_for_answers(cluster, job_id, place, name)
                    (place / "go-1").touch()
                    assert line(holding) == "held 7 view 45", cluster.story(job_id)
                finally:
                    os.kill(leading.identity.pid, signal.SIGCONT)
                for name in ("first", "second"):
                    wait_for_answers(cluster, job_id, place, name)

                (place / "enough").touch()
                for ended in (first, second):
                    assert line(ended) == "no error", cluster.story(job_id)
                assert [ended.wait(60) for ended in (first, second, holding)] == [0, 0, 0]
        assert "RUNNING" in shell.done("connect", "status").out
        assert cluster.wait_for_driver(job_id) == driver
        shell.done("connect", "down")
