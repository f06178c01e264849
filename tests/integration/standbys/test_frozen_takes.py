"""A standby driver that is frozen right after an attempt has taken it: the job continues in a newer attempt.

When the frozen driver goes on, it ends and changes nothing, and its place is free again.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from emberkeep.base.ids import JobId
from emberkeep.base.processes.process_identity import ProcessIdentity, identify
from emberkeep.jobs.model import JobStatus
from emberkeep.jobs.traces.recovery_trace import Milestone
from emberkeep.protocol.rest_jobs import JobDetailsInfo
from emberkeep.slots.model import ProcessStart
from tests.integration.clusters import Cluster
from tests.integration.conditions import DEADLINE, until
from tests.integration.standbys.warm_cluster import starts, submit, wait_until_warm, warm_cluster
from tests.integration.streams import SCRIPT, Stream

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.req("HA-7")]

NODES = ("127.0.0.2", "127.0.0.3")
TRIES = 5  # to freeze a driver before it registers
_TAKEN = "a job took a standby process"
LIMITS = ("-D", "job.driver.start-timeout=20s")  # for a frozen driver whose task manager answers


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, class_archive: Path) -> Iterator[Cluster]:
    cluster = warm_cluster(tmp_path_factory.mktemp("frozen"), class_archive, NODES, *LIMITS)
    try:
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(autouse=True)
def everything_is_given_back(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.cancel_all()
    cluster.wait_until_idle()


@dataclass(frozen=True)
class Frozen:
    """A driver that was taken, and what it has started: stopped. ``agent``: its task manager."""

    task_manager: str
    agent: int
    leader: ProcessIdentity
    others: tuple[ProcessIdentity, ...]

    def lives(self) -> bool:
        return any(identify(each.pid) == each for each in (self.leader, *self.others))

    def go_on(self) -> None:
        """Its JVM first, as a JVM that does not answer would hold the leader up."""
        for each in (*self.others, self.leader):
            if identify(each.pid) == each:
                os.kill(each.pid, signal.SIGCONT)


class Freezer(threading.Thread):
    """Stops the first driver that a job takes from the standbys, as soon as its task manager says so.

    ``with_agent``: stop the task manager, too.
    """

    def __init__(self, cluster: Cluster, *, with_agent: bool) -> None:
        super().__init__(name="freezer", daemon=True)
        self._with_agent = with_agent
        self._agents = {each.name: each.identity.pid for each in cluster.record.task_managers}
        root = cluster.shell.state / "taskmanagers"
        self._logs = {name: (root / name / "logs" / "taskmanager.log").open() for name in self._agents}
        for log in self._logs.values():
            log.seek(0, os.SEEK_END)
        self.frozen: Frozen | None = None

    def run(self) -> None:
        try:
            self._watch()
        finally:
            for log in self._logs.values():
                log.close()

    def _watch(self) -> None:
        deadline = time.monotonic() + DEADLINE
        while self.frozen is None and time.monotonic() < deadline:
            for name, log in self._logs.items():
                for line in log:
                    if _TAKEN in line and self.frozen is None:
                        self._look_at(name, json.loads(line))
            time.sleep(0.001)  # a driver that was taken registers within a fraction of a second

    def _look_at(self, task_manager: str, entry: dict[str, object]) -> None:
        if not str(entry["process"]).startswith("driver-"):
            return
        pid, agent = int(str(entry["pid"])), self._agents[task_manager]
        os.kill(pid, signal.SIGSTOP)
        if self._with_agent:
            os.kill(agent, signal.SIGSTOP)
        children = [child.pid for child in psutil.Process(pid).children(recursive=True)]
        for child in children:
            os.kill(child, signal.SIGSTOP)
        leader = identify(pid)
        assert leader is not None
        others = tuple(found for found in map(identify, children) if found is not None)
        self.frozen = Frozen(task_manager, agent, leader, others)


@contextmanager
def freezing(cluster: Cluster, *, with_agent: bool) -> Iterator[Callable[[], Frozen]]:
    """Freeze a driver that is taken in this block. At its end the task manager goes on, whatever has happened."""
    freezer = Freezer(cluster, with_agent=with_agent)
    freezer.start()

    def frozen() -> Frozen:
        freezer.join(DEADLINE)
        assert freezer.frozen is not None, "no driver was taken"
        return freezer.frozen

    try:
        yield frozen
    finally:
        if freezer.frozen is not None:
            freezer.frozen.go_on()
            os.kill(freezer.frozen.agent, signal.SIGCONT)


def is_registered(cluster: Cluster, job_id: JobId) -> bool:
    """True if the driver of the first attempt has registered."""
    trace = cluster.job(job_id).emberkeep.attempts[0].recovery
    assert trace is not None
    return Milestone.REGISTERED in {Milestone(each.milestone) for each in trace.milestones}


def runs(job: JobDetailsInfo) -> bool:
    return job.state is JobStatus.RUNNING and any(each.registered for each in job.emberkeep.executors)


def overtaken(cluster: Cluster, stream: Stream, *, with_agent: bool) -> JobId | None:
    """Submit a stream whose first driver is frozen until its successor runs, then goes on and ends.

    Return None if the driver had registered before it was frozen.
    """
    wait_until_warm(cluster)
    with freezing(cluster, with_agent=with_agent) as frozen:
        job_id = submit(cluster, cluster.shell.write("stream.py", SCRIPT), arguments=(str(stream.place),))
        driver = frozen()
        if is_registered(cluster, job_id):
            return None
        job = cluster.wait_for(job_id, lambda job: job.emberkeep.attempt == 2 and runs(job), "a second attempt")
        if with_agent:
            assert driver.lives(), "it is frozen, not ended"
            assert starts(job)[0] is ProcessStart.HOT
            until(lambda: stream.batches() >= 3, lambda: cluster.story(job_id))
            driver.go_on()
        # Where the task manager is frozen, nothing else ends them.
        until(lambda: not driver.lives(), lambda: f"{driver} lives; {cluster.story(job_id)}")
    return job_id


@pytest.mark.parametrize("with_agent", [True, False], ids=["its node is lost", "its task manager answers"])
def test_a_driver_that_goes_on_after_its_attempt_was_fenced_ends(
    cluster: Cluster, tmp_path: Path, tolerate: Callable[[object], None], with_agent: bool
) -> None:
    for number in range(TRIES):
        stream = Stream(tmp_path / f"stream-{number}")
        job_id = overtaken(cluster, stream, with_agent=with_agent)
        if job_id is not None:
            break
        tolerate(f"try {number}: the driver had registered before it was frozen")
        cluster.cancel_all()
    else:
        pytest.fail("each driver had registered before it was frozen")
    wanted = stream.batches() + 3
    until(lambda: stream.batches() >= wanted, lambda: cluster.story(job_id))
    until(lambda: in_use(cluster) == (1, 1), lambda: f"slots, drivers: {in_use(cluster)}")
    now = cluster.wait_for_driver(job_id, attempt=2)
    stream.finish()
    job = cluster.wait_for_end(job_id)
    assert job.emberkeep.attempt == 2, "nothing that was fenced has ended it"
    assert stream.drivers() == [now], "the frozen one has written nothing"
    stream.check()


def in_use(cluster: Cluster) -> tuple[int, int]:
    """Return how many slots and driver places jobs hold, once all task managers are back."""
    overview = cluster.ask(lambda client: client.overview())
    if overview.taskmanagers - overview.emberkeep.taskmanagers_away != len(NODES):
        return -1, -1
    places = overview.emberkeep.driver_places_total - overview.emberkeep.driver_places_available
    return overview.slots_total - overview.slots_available, places
