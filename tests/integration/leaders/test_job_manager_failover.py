"""Three JobManagers over a ZooKeeper: killed, frozen, cut off and upgraded while jobs run, which must not notice."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from emberkeep.base.errors import RetryLater
from emberkeep.base.ids import JobId
from emberkeep.chronicle.occurrence import What
from emberkeep.client.clusters.cluster_file import DaemonRecord
from emberkeep.jobs.model import JobStatus
from tests.integration.assassins import STEPS, Assassin, stored
from tests.integration.chronicle.shown_events import shown_events
from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import SMALL, Ended, Running, Shell
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


# Without Spark. Arguments: a directory, a file. Counts in a file of its own process until the second one is there.
PLAIN = """
import os, sys, time
from pathlib import Path

print("runs", flush=True)
place, gate = map(Path, sys.argv[1:])
count = 0
while not gate.exists():
    with (place / f"{os.getpid()}").open("a") as file:
        file.write(f"{count}\\n")
    count += 1
    time.sleep(0.2)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, class_archive: Path) -> Iterator[Cluster]:
    cluster = Cluster(Shell(tmp_path_factory.mktemp("failover"), class_archive.parent))
    session = f"high-availability.zookeeper.client.session-timeout={SESSION_SECONDS:g}s"
    try:
        shape = ("--task-managers", "2", "--slots", "2", "--memory", "12g", "-D", "taskmanager.driver-places=8")
        cluster.up("--ha", *shape, "-D", session, *QUICK, *UNHURRIED)
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
    """Jobs in the middle of their work, and who does it."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.ids: dict[str, JobId] = {}
        self.processes: dict[str, list[int]] = {}
        self._directory = cluster.shell.directory / name
        self._directory.mkdir()
        self._gate = self._directory / "gate"
        self._streams: dict[str, Stream] = {}
        self._plains: dict[str, Path] = {}

    def start(self, *, batch: bool, plains: int) -> None:
        """A stream, perhaps a batch job with Spark too, and some without. Returns when they are at work."""
        stream = self._streams["stream"] = Stream(self._directory / "stream")
        self.ids["stream"] = self.cluster.submit("stream.py", arguments=(str(stream.place),))
        if batch:
            self.ids["batch"] = self.cluster.submit("gated.py", arguments=(str(self._gate),))
        for number in range(plains):
            place = self._plains[f"plain-{number}"] = self._directory / f"plain-{number}"
            place.mkdir()
            self.ids[place.name] = self.cluster.submit("plain.py", arguments=(str(place), str(self._gate)))
        self.processes = self.look()
        self.wait_for_batches()

    def look(self) -> dict[str, list[int]]:
        """Pids of the driver and the executor of each job."""
        found = {}
        for name, job_id in self.ids.items():
            found[name] = [self.cluster.wait_for_driver(job_id)]
            if name not in self._plains:
                found[name] += [executor.pid for executor in self.cluster.wait_for_executors(job_id)]
        return found

    def wait_for_batches(self, more: int = 3) -> None:
        """Until there are so many more, and each job without Spark has gone on as well."""
        places = {name: len(counts(place)) for name, place in self._plains.items()}
        for name, stream in self._streams.items():
            wanted = stream.batches() + more
            self._wait(name, lambda stream=stream, wanted=wanted: stream.batches() >= wanted)  # type: ignore[misc]
        for name, before in places.items():
            self._wait(name, lambda name=name, before=before: len(counts(self._plains[name])) > before)  # type: ignore[misc]

    def _wait(self, name: str, condition: Callable[[], bool]) -> None:
        until(condition, lambda: self.cluster.story(self.ids[name]))

    def go_on(self) -> None:
        """No process was replaced, and all are at work."""
        assert self.look() == self.processes
        self.wait_for_batches()

    def finish_undisturbed(self) -> None:
        """No attempt was added, and the output is what it would have been."""
        self.go_on()
        self._gate.touch()
        for stream in self._streams.values():
            stream.finish()
        for name, job_id in self.ids.items():
            assert self.cluster.wait_for_end(job_id).emberkeep.attempt == 1
            if name in self._streams:
                assert self._streams[name].drivers() == [self.processes[name][0]]
                self._streams[name].check()
            elif name in self._plains:
                place = self._plains[name]
                assert [path.name for path in place.iterdir()] == [str(self.processes[name][0])]
                assert counts(place) == list(range(len(counts(place))))
                assert self.cluster.output(job_id) == "runs\n"
            else:
                assert self.cluster.output(job_id) == "before 10\nafter 20\n"


def counts(place: Path) -> list[int]:
    """What jobs without Spark have written there."""
    texts = [path.read_text() for path in sorted(place.iterdir())]
    return [int(line) for text in texts for line in text.splitlines(keepends=True) if line.endswith("\n")]


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


def upgrade(cluster: Cluster, daemon: DaemonRecord, meanwhile: Callable[[], None]) -> None:
    """End a daemon by SIGTERM, start it again."""
    os.kill(daemon.identity.pid, signal.SIGTERM)
    until(lambda: not daemon.is_running, f"{daemon.name} ends")
    meanwhile()
    assert "starting" in cluster.up().err


@pytest.mark.req("HA-4")
@pytest.mark.long
def test_ten_jobs_do_not_notice_killed_leaders_and_a_rolling_upgrade(cluster: Cluster) -> None:
    jobs = Jobs(cluster, "ten")
    jobs.start(batch=True, plains=8)
    shorts: list[JobId] = []

    def submit() -> None:
        """While a daemon is away: the client goes on until it is accepted, once."""
        place = cluster.shell.directory / f"short-{len(shorts)}"
        place.mkdir()
        shorts.append(cluster.submit("plain.py", arguments=(str(place), str(place))))

    for _ in range(2):
        first = leader(cluster)
        os.kill(first.identity.pid, signal.SIGKILL)
        submit()
        assert other_leader(cluster, first).name != first.name
        jobs.go_on()
        assert "starting" in cluster.up().err

    # As docs/high-availability.md tells it: the standbys first, the leader last, then the task managers.
    leading = leader(cluster)
    for daemon in sorted(cluster.record.job_managers, key=lambda each: each.name == leading.name):
        upgrade(cluster, daemon, submit)
        jobs.wait_for_batches(1)
    other_leader(cluster, leading)
    for daemon in cluster.record.task_managers:
        upgrade(cluster, daemon, submit)
        jobs.go_on()

    jobs.finish_undisturbed()
    for job_id in shorts:
        # An order to start that a task manager did not take any more costs a number, but nothing runs twice: one for
        # each task manager that was away.
        assert cluster.wait_for_end(job_id).emberkeep.attempt in {1, 2, 3}
        assert cluster.output(job_id) == "runs\n"
    ids, infos = sorted([*jobs.ids.values(), *shorts]), cluster.ask(lambda client: client.jobs())
    assert sorted(info.jid for info in infos) == ids
    assert {info.state for info in infos} == {JobStatus.FINISHED}
    assert stored(cluster.record) == ([], ids)


@pytest.mark.req("HA-8")
def test_a_leader_and_a_driver_that_are_killed_together(cluster: Cluster) -> None:
    stream = Stream(cluster.shell.directory / "together")
    job_id = cluster.submit("stream.py", arguments=(str(stream.place),))
    driver = cluster.wait_for_driver(job_id)
    until(lambda: stream.batches() >= 3, lambda: cluster.story(job_id))
    following = cluster.shell.start("events", "-f", job_id, "-o", "json")
    until(lambda: "attempt-started" in following.out, lambda: f"{following}")
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
    check_events(cluster, job_id, following)


def check_events(cluster: Cluster, job_id: JobId, following: Running) -> None:
    """The new leader shows what the killed one has noted, continues both streams, and knows how long the start took.

    Who was ``following`` has missed nothing, and has got nothing twice.
    """
    until(lambda: '"FINISHED"' in following.out, lambda: f"{following}")
    following.process.send_signal(signal.SIGINT)
    following.wait()
    story = [json.loads(line) for line in cluster.shell.done("events", job_id, "-o", "json").out.splitlines()]
    started = [event["attempt"] for event in story if event["type"] == "attempt-started"]
    assert (story[0]["type"], started, story[-1]["message"]) == ("submitted", [1, 2], "FINISHED"), story
    assert [event["attempt"] for event in story if event["type"] == "first-result"] == [1, 2], story
    assert len({event["id"].partition("-")[0] for event in story}) == 2, "of two leaders"
    assert [json.loads(line) for line in following.out.splitlines()] == story
    leaders = cluster.shell.done("events", "--type", "leader-started", "-o", "json").out.splitlines()
    before, now = [json.loads(line)["details"]["address"] for line in leaders[-2:]]
    assert before != now == cluster.ask(lambda client: client.overview()).emberkeep.job_manager


@pytest.mark.req("HA-4")
@pytest.mark.parametrize("step", STEPS)
def test_a_leader_killed_right_after_it_has_written_a_step(cluster: Cluster, step: str) -> None:
    place = cluster.shell.directory / step
    place.mkdir()
    gate = place / "gate"
    first = leader(cluster)
    with Assassin(cluster.record, first.identity.pid, step) as assassin:
        job_id = cluster.submit("plain.py", arguments=(str(place), str(gate)))
        if step == "cancel":
            cluster.wait_for_driver(job_id)
            cluster.cancel(job_id)
        else:
            gate.touch()
        assassin.wait()
        job = cluster.wait_for_end(job_id, JobStatus.CANCELED if step == "cancel" else JobStatus.FINISHED)
    # An attempt whose number was written, but whose start was never asked for, is no attempt that ran.
    assert job.emberkeep.attempt in ({1, 2} if step in ("submit", "start") else {1})
    assert logs(cluster, job_id) == "runs\n"
    assert [info.jid for info in cluster.ask(lambda client: client.jobs())].count(job_id) == 1
    handles, results = stored(cluster.record)
    assert (job_id in handles, results.count(job_id)) == (False, 1)
    assert other_leader(cluster, first).name != first.name


def logs(cluster: Cluster, job_id: JobId) -> str:
    """What `emberkeep logs` prints. A new leader may not know the task manager yet, but never says that there are
    none."""

    def look() -> Ended | None:
        ended = cluster.shell.run("logs", job_id)
        assert ended.code == 0 or "cannot be read now" in ended.err, ended
        return ended if ended.code == 0 else None

    return until(look, f"logs of job {job_id}").out


@pytest.mark.req("HA-6")
@pytest.mark.req("HA-9")
@pytest.mark.long
def test_a_leader_frozen_for_three_sessions_changes_nothing_when_it_goes_on(cluster: Cluster) -> None:
    jobs = Jobs(cluster, "frozen")
    jobs.start(batch=False, plains=1)
    place = cluster.shell.directory / "frozen-second"
    place.mkdir()
    gate = place / "gate"
    ending = cluster.submit("plain.py", arguments=(str(place), str(gate)))
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
@pytest.mark.long
def test_without_zookeeper_jobs_go_on_and_it_is_followed_up_by_itself(cluster: Cluster) -> None:
    jobs = Jobs(cluster, "without")
    jobs.start(batch=False, plains=1)
    (zookeeper,) = cluster.record.zookeepers
    os.kill(zookeeper.daemon.identity.pid, signal.SIGKILL)
    until(lambda: not zookeeper.daemon.is_running, "ZooKeeper ends")
    place = cluster.shell.directory / "without-second"
    place.mkdir()
    submitting = cluster.shell.start("submit", "-q", *SMALL, "plain.py", str(place), str(place))
    away = time.monotonic()
    until(lambda: "emberkeep_leader_in_doubt 1.0" in cluster.metrics(), "the leader is not confirmed")
    until(lambda: "IN DOUBT" in cluster.shown("/leadership"), "the page shows it")
    jobs.wait_for_batches(10)
    until(lambda: time.monotonic() > away + 2 * SESSION_SECONDS, "longer than a session")
    assert submitting.process.poll() is None, submitting
    cluster.up()
    ended = submitting.wait()
    assert ended.code == 0, ended
    cluster.wait_for_end(JobId(ended.out.strip()))
    assert "emberkeep_leader_in_doubt 0.0" in cluster.metrics()
    *_, doubt, after = shown_events(cluster, What.STORE_IN_DOUBT, What.STORE_BACK, What.LEADER_STARTED, count=3)
    assert doubt["type"] == What.STORE_IN_DOUBT
    assert after["type"] != What.STORE_IN_DOUBT
    jobs.finish_undisturbed()
