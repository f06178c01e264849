"""Dynamic allocation with real Spark while a leader, an agent and a driver are lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.base.ids import JobId
from emberkeep.protocol.rest_jobs import JobDetailsInfo
from tests.integration.clusters import Cluster, roomy_cluster
from tests.integration.conditions import until
from tests.integration.elastic.test_dynamic_allocation import (
    BURSTS,
    LEAST,
    MOST,
    ROWS,
    SLOTS,
    TASKS,
    free,
    output,
    registered,
    settings,
)

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.req("ELASTIC-4")]

RESULT = {
    "first": ROWS,
    "at once": sum(range(ROWS)),
    "after idling": sum(range(ROWS)),
    "second": ROWS,
    "joined": 10,
}


@pytest.fixture
def cluster(tmp_path: Path, class_archive: Path) -> Iterator[Cluster]:
    with roomy_cluster(tmp_path, class_archive, SLOTS) as cluster:
        yield cluster


@pytest.fixture
def led_by_two(tmp_path: Path, class_archive: Path) -> Iterator[Cluster]:
    session = ("-D", "high-availability.zookeeper.client.session-timeout=4s")
    with roomy_cluster(tmp_path, class_archive, SLOTS, "--ha", "--job-managers", "2", *session) as cluster:
        yield cluster


class Bursts:
    """A job with two bursts, each of which waits until the test has seen its executors, and then is idle."""

    def __init__(self, cluster: Cluster, *options: str) -> None:
        self.cluster = cluster
        self.place, self.logs = cluster.shell.directory / "bursts", cluster.shell.directory / "event-logs"
        self.place.mkdir()
        self.logs.mkdir()
        script = cluster.shell.write("bursts.py", BURSTS)
        words = (*settings(self.logs), *options)
        self.job_id: JobId = cluster.submit(script, *words, arguments=(str(self.place),), executors=LEAST)

    def wait_for_most(self, what: str) -> JobDetailsInfo:
        return self.cluster.wait_for(self.job_id, lambda job: registered(job) == MOST and not away(job), what)

    def wait_for_tasks(self, burst: int, count: int) -> None:
        until(lambda: self.computed(burst) >= count, lambda: self.cluster.story(self.job_id))

    def computed(self, burst: int) -> int:
        return len(list(self.place.glob(f"computed-{burst}-*")))

    def finish(self, burst: int) -> None:
        """Let the tasks of a burst end; return when the job is idle."""
        (self.place / f"burst-{burst}").touch()
        until((self.place / f"idle-{burst}").exists, lambda: self.cluster.story(self.job_id))

    def go(self, phase: int) -> None:
        (self.place / f"go-{phase}").touch()

    def wait_for_fewest(self, slots: int) -> None:
        """The idle job keeps its smallest number of executors, and has given back all other slots."""
        self.cluster.wait_for(self.job_id, lambda job: len(job.emberkeep.executors) == LEAST, "it has the fewest")
        until(lambda: free(self.cluster) == slots - LEAST, "the other slots are free")

    def wait_for_end(self, attempts: int = 1) -> JobDetailsInfo:
        """The job has ended with the right result, in its last attempt, which is of this number."""
        job = self.cluster.wait_for_end(self.job_id)
        assert output(self.cluster, self.job_id) == RESULT
        assert len(job.emberkeep.attempts) == attempts
        return job

    def check_nothing_was_computed_again(self) -> None:
        assert [self.computed(burst) for burst in (1, 2)] == [TASKS, TASKS]
        assert not self.cluster.ask(lambda client: client.exceptions(self.job_id)).exception_history.entries


def away(job: JobDetailsInfo) -> bool:
    return any(executor.away for executor in job.emberkeep.executors)


def pids(job: JobDetailsInfo) -> set[int]:
    """Of all executors, and of the driver."""
    assert job.emberkeep.driver is not None
    return {job.emberkeep.driver.pid, *(executor.pid for executor in job.emberkeep.executors)}


def test_a_killed_leader_and_a_killed_agent_change_nothing_for_bursts(led_by_two: Cluster) -> None:
    cluster, bursts = led_by_two, Bursts(led_by_two)
    bursts.wait_for_tasks(1, 1)
    _, leading = cluster.leader()  # it is killed while the job asks for more executors
    os.kill(leading.identity.pid, signal.SIGKILL)
    bursts.wait_for_most("the burst has the most executors")
    assert cluster.leader()[1].name != leading.name
    bursts.finish(1)
    bursts.wait_for_fewest(SLOTS)

    bursts.go(1)
    before = bursts.wait_for_most("the second burst has the most executors")
    bursts.wait_for_tasks(2, MOST)
    assert before.emberkeep.driver is not None
    cluster.kill(before.emberkeep.driver.taskmanager_id)
    cluster.up()
    assert pids(bursts.wait_for_most("they are adopted")) == pids(before)
    bursts.finish(2)
    bursts.wait_for_fewest(SLOTS)
    bursts.go(2)
    bursts.wait_for_end()
    bursts.check_nothing_was_computed_again()


def test_a_job_whose_driver_is_killed_gets_the_most_executors_again(cluster: Cluster) -> None:
    bursts = Bursts(cluster)
    killed = bursts.wait_for_most("the burst has the most executors")
    bursts.wait_for_tasks(1, MOST)
    assert killed.emberkeep.driver is not None
    os.kill(killed.emberkeep.driver.pid, signal.SIGKILL)

    cluster.wait_for_driver(bursts.job_id, attempt=2)
    again = bursts.wait_for_most("the second attempt has the most executors")
    assert again.emberkeep.attempt == 2
    assert not pids(again) & pids(killed)
    bursts.finish(1)
    bursts.wait_for_fewest(SLOTS)
    for name in ("burst-2", "go-1", "go-2"):  # the rest needs no executors of its own
        (bursts.place / name).touch()
    bursts.wait_for_end(attempts=2)
    until(lambda: free(cluster) == SLOTS, "all slots are free")
