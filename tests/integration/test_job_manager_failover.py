"""Three JobManagers over a ZooKeeper: leaders killed, frozen and cut off while jobs run, which must not notice."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from emberkeep.base.errors import RetryLater
from emberkeep.base.ids import JobId
from emberkeep.client.cluster_file import DaemonRecord
from emberkeep.jobs.model import JobStatus
from tests.integration.assassins import Assassin
from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import SMALL, Shell
from tests.integration.conditions import until
from tests.integration.streams import SCRIPT, Stream

pytestmark = [pytest.mark.integration, pytest.mark.req("HA-1"), pytest.mark.req("HA-5"), pytest.mark.req("HA-12")]

SESSION_SECONDS = 4.0
# Nobody is to be taken for lost here because a machine under load is slow.
UNHURRIED = ("-D", "heartbeat.timeout=15s", "-D", "job.driver.lease-timeout=30s")

# Argument: a file; counts before and after it is there.
GATED = """
import sys, time
from pathlib import Path
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
print("before", spark.range(10).count(), flush=True)
while not Path(sys.argv[1]).exists():
    time.sleep(0.1)
print("after", spark.range(20).count(), flush=True)
"""


# Without Spark. Argument: a file; ends once it is there.
PLAIN = """
import sys, time
from pathlib import Path

print("runs", flush=True)
while len(sys.argv) > 1 and not Path(sys.argv[1]).exists():
    time.sleep(0.1)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, class_archive: Path) -> Iterator[Cluster]:
    cluster = Cluster(Shell(tmp_path_factory.mktemp("failover"), class_archive.parent))
    session = f"high-availability.zookeeper.client.session-timeout={SESSION_SECONDS:g}s"
    try:
        cluster.up("--ha", "--slots", "4", "--memory", "6g", "-D", session, *QUICK, *UNHURRIED)
        cluster.shell.write("gated.py", GATED)
        cluster.shell.write("plain.py", PLAIN)
        cluster.shell.write("stream.py", SCRIPT)
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(autouse=True)
def all_processes_run_and_nothing_is_held(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.up()
    cluster.cancel_all()
    cluster.wait_until_idle()


class Jobs:
    """A stream and a batch job in the middle of their work, and who does it."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.stream = Stream(cluster.shell.directory / name)
        self.gate = cluster.shell.directory / f"{name}-gate"
        self.ids = {
            "stream": cluster.submit("stream.py", arguments=(str(self.stream.place),)),
            "batch": cluster.submit("gated.py", arguments=(str(self.gate),)),
        }
        self.processes = self.look()
        self.wait_for_batches()

    def look(self) -> dict[str, list[int]]:
        """Pids of the driver and the executor of each job."""
        found = {}
        for name, job_id in self.ids.items():
            driver = self.cluster.wait_for_driver(job_id)
            found[name] = [driver, *(executor.pid for executor in self.cluster.wait_for_executors(job_id))]
        return found

    def wait_for_batches(self, more: int = 3) -> None:
        wanted = self.stream.batches() + more
        until(lambda: self.stream.batches() >= wanted, lambda: self.cluster.story(self.ids["stream"]))

    def finish_undisturbed(self) -> None:
        """No process was replaced, no attempt was added, and the output is what it would have been."""
        assert self.look() == self.processes
        self.wait_for_batches()
        self.gate.touch()
        self.stream.finish()
        for job_id in self.ids.values():
            assert self.cluster.wait_for_end(job_id).emberkeep.attempt == 1
        assert self.stream.drivers() == [self.processes["stream"][0]]
        self.stream.check()
        assert self.cluster.output(self.ids["batch"]) == "before 10\nafter 20\n"


def leader(cluster: Cluster) -> DaemonRecord:
    """The one that answers for all."""
    overview = cluster.ask(lambda client: client.overview())
    record = cluster.record
    urls = (record.url, *record.standby_urls)
    addresses = {urlsplit(url).netloc: daemon for url, daemon in zip(urls, record.job_managers, strict=True)}
    return addresses[overview.emberkeep.job_manager]


def other_leader(cluster: Cluster, before: DaemonRecord) -> DaemonRecord:
    def look() -> DaemonRecord | None:
        try:
            found = leader(cluster)
        except RetryLater:
            return None
        return found if found.name != before.name else None

    return until(look, "another JobManager leads")


def test_a_killed_leader_is_followed_and_no_job_notices(cluster: Cluster) -> None:
    jobs = Jobs(cluster, "killed")
    for _ in range(2):
        first = leader(cluster)
        os.kill(first.identity.pid, signal.SIGKILL)
        # Submitted while nobody leads: the client goes on until it is accepted, once.
        job_id = cluster.submit("gated.py", arguments=(str(cluster.shell.work),))
        assert other_leader(cluster, first).name != first.name
        cluster.wait_for_end(job_id)
        assert jobs.look() == jobs.processes
        assert "starting" in cluster.up().err
    jobs.finish_undisturbed()
    names = [job.jid for job in cluster.ask(lambda client: client.jobs())]
    assert len(names) == len(set(names)) == 4
    assert {job.state for job in cluster.ask(lambda client: client.jobs())} == {JobStatus.FINISHED}


@pytest.mark.req("HA-8")
def test_a_leader_and_a_driver_that_are_killed_together(cluster: Cluster) -> None:
    stream = Stream(cluster.shell.directory / "together")
    job_id = cluster.submit("stream.py", arguments=(str(stream.place),))
    driver = cluster.wait_for_driver(job_id)
    until(lambda: stream.batches() >= 3, lambda: cluster.story(job_id))
    first = leader(cluster)
    for pid in (first.identity.pid, driver):
        os.kill(pid, signal.SIGKILL)
    other_leader(cluster, first)
    written = stream.batches()
    until(lambda: stream.batches() >= written + 3, lambda: cluster.story(job_id))
    stream.finish()
    assert cluster.wait_for_end(job_id).emberkeep.attempt == 2
    assert len(stream.drivers()) == 2
    stream.check()


@pytest.mark.parametrize("step", ["submit", "start"])
def test_a_leader_killed_right_after_it_has_written_a_step(cluster: Cluster, step: str) -> None:
    gate = cluster.shell.directory / f"{step}-gate"
    first = leader(cluster)
    (zookeeper,) = cluster.record.zookeepers
    with Assassin(zookeeper.server.connect, first.identity.pid, step) as assassin:
        job_id = cluster.submit("plain.py", arguments=(str(gate),))
        gate.touch()
        assassin.wait()
        # An attempt whose number was written, but whose start was never asked for, is no attempt that ran.
        assert cluster.wait_for_end(job_id).emberkeep.attempt in {1, 2}
        assert cluster.output(job_id) == "runs\n"
        assert [info.jid for info in cluster.ask(lambda client: client.jobs())].count(job_id) == 1
        assert job_id not in assassin.handles()
    assert other_leader(cluster, first).name != first.name


@pytest.mark.req("HA-6")
@pytest.mark.req("HA-9")
def test_a_leader_frozen_for_three_sessions_changes_nothing_when_it_goes_on(cluster: Cluster) -> None:
    jobs = Jobs(cluster, "frozen")
    gate = cluster.shell.directory / "frozen-second-gate"
    ending = cluster.submit("gated.py", arguments=(str(gate),))
    cluster.wait_for_driver(ending)
    first = leader(cluster)
    os.kill(first.identity.pid, signal.SIGSTOP)
    try:
        frozen = time.monotonic()
        other_leader(cluster, first)
        gate.touch()
        cluster.wait_for_end(ending)
        until(lambda: time.monotonic() > frozen + 3 * SESSION_SECONDS, "three session timeouts")
    finally:
        os.kill(first.identity.pid, signal.SIGCONT)
    until(lambda: stands_by(cluster, first), "it has found out that it leads no more")
    # It has gone to the end of the queue. That the second leads still, a machine under load does not say.
    assert leader(cluster).name != first.name
    assert cluster.job(ending).emberkeep.attempt == 1
    assert cluster.job(ending).state is JobStatus.FINISHED
    jobs.finish_undisturbed()


def stands_by(cluster: Cluster, daemon: DaemonRecord) -> bool:
    """Whether its log says last that it waits for its turn."""
    log = (Path(daemon.directory) / "logs" / "jobmanager.log").read_text()
    changes = [line for line in log.splitlines() if '"event": "leadership"' in line]
    return '"now": "WAITING"' in changes[-1]


@pytest.mark.req("HA-9")
def test_without_zookeeper_jobs_go_on_and_it_is_followed_up_by_itself(cluster: Cluster) -> None:
    jobs = Jobs(cluster, "without")
    (zookeeper,) = cluster.record.zookeepers
    os.kill(zookeeper.daemon.identity.pid, signal.SIGKILL)
    until(lambda: not zookeeper.daemon.is_running, "ZooKeeper ends")
    words = ("submit", "-q", *SMALL, "--num-executors", "1", "gated.py", str(cluster.shell.work))
    submitting = cluster.shell.start(*words)
    away = time.monotonic()
    jobs.wait_for_batches(10)
    until(lambda: time.monotonic() > away + 2 * SESSION_SECONDS, "longer than a session")
    assert submitting.process.poll() is None, submitting
    cluster.up()
    ended = submitting.wait()
    assert ended.code == 0, ended
    cluster.wait_for_end(JobId(ended.out.strip()))
    jobs.finish_undisturbed()
