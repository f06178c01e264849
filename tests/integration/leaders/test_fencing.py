"""A node frozen for so long that its jobs run elsewhere: when it goes on, nothing of it changes anything any more."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from emberkeep.base.ids import JobId
from tests.integration.clusters import QUICK, Cluster, environment_of
from tests.integration.commands import Shell
from tests.integration.conditions import until
from tests.integration.streams import SCRIPT, Stream

FREEZE_SECONDS = 3.0  # half of the lease in QUICK

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.req("HA-7")]

# Beside the stream of SCRIPT: one into Spark's own file sink, and a batch write that is due while the node is frozen.
FENCED = SCRIPT.replace(
    "while not (place",
    """files = (
    rates.select("value").writeStream.format("json").option("path", str(place / "files"))
    .option("checkpointLocation", str(place / "files-checkpoint")).trigger(processingTime="500 milliseconds").start()
)
while not (place / "write-now").exists():
    time.sleep(0.02)
spark.range(10).coalesce(1).write.mode("append").json(str(place / "appended"))
while not (place""",
).replace("import os, sys", "import os, sys, time")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, class_archive: Path) -> Iterator[Cluster]:
    cluster = Cluster(Shell(tmp_path_factory.mktemp("fencing"), class_archive.parent))
    try:
        cluster.up("--nodes", "127.0.0.2,127.0.0.3", "--slots", "2", "--memory", "4g", *QUICK)
        cluster.shell.write("fenced.py", FENCED)
        yield cluster
    finally:
        cluster.close()


class FrozenNode:
    """The task manager of a job's driver and all that it has started, and the job's executor: stopped."""

    def __init__(self, cluster: Cluster, job_id: JobId, executor: int) -> None:
        driver = cluster.job(job_id).emberkeep.driver
        assert driver is not None
        self.driver = driver.pid
        daemon = cluster.daemon(driver.taskmanager_id)
        self._agent = daemon.identity.pid
        self._marker = f"SPARK_LOCAL_DIRS={daemon.directory}/"
        self._traces = cluster.shell.traces
        os.kill(self._agent, signal.SIGSTOP)
        self._stopped = {executor}
        send(executor, signal.SIGSTOP)
        while found := self._started() - self._stopped:
            for pid in found:
                send(pid, signal.SIGSTOP)
            self._stopped |= found
        assert self.driver in self._stopped

    def _started(self) -> set[int]:
        pids = {seen.identity.pid for seen in self._traces.processes()}
        return {pid for pid in pids if any(each.startswith(self._marker) for each in environment_of(pid))}

    def left(self) -> set[int]:
        """Those that still live, but for the task manager."""
        return {seen.identity.pid for seen in self._traces.processes()} & self._stopped

    def thaw_jobs(self) -> None:
        """JVMs and Python workers go on first, the driver's own process last: the worst order."""
        for pid in (*(self.left() - {self.driver}), self.driver):
            send(pid, signal.SIGCONT)

    def thaw(self) -> None:
        """Whatever of it is left."""
        for pid in (*self.left(), self._agent):
            send(pid, signal.SIGCONT)


def send(pid: int, number: signal.Signals) -> None:
    """A process that has just ended by itself, such as a Python worker, needs no signal."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


@pytest.mark.parametrize("moment", ["its successor starts", "its successor runs"])
def test_a_frozen_node_that_goes_on_when(cluster: Cluster, moment: str) -> None:
    stream = Stream(cluster.shell.directory / moment.replace(" ", "-"))
    place = stream.place
    job_id = cluster.submit("fenced.py", arguments=(str(place),))
    cluster.wait_for_driver(job_id)
    (executor,) = cluster.wait_for_executors(job_id)
    until(lambda: stream.batches() >= 3 and committed(place) >= 3, lambda: cluster.story(job_id))
    if moment == "its successor starts":
        go_on_unharmed_after_a_stop_that_nobody_has_seen(cluster, job_id, stream)
    node = FrozenNode(cluster, job_id, executor.pid)
    try:
        written = stream.history()
        cluster.wait_for(job_id, lambda job: job.emberkeep.attempt == 2, "a second attempt")
        if moment == "its successor runs":
            until(lambda: len(stream.drivers()) == 2, lambda: cluster.story(job_id))
        (place / "write-now").touch()
        node.thaw_jobs()
        # Their task manager is still frozen: they end by themselves.
        until(lambda: not node.left(), lambda: f"still there: {node.left()}; {cluster.story(job_id)}")
    finally:
        node.thaw()
    by_old = [batch for pid, batch in stream.history() if pid == node.driver]
    # A batch that was being handed out when the node froze may have been handed out twice, under its number.
    assert by_old[: len(written)] == [batch for _, batch in written]
    assert len(by_old) <= len(written) + 1
    until(lambda: len(values_in(place / "appended")) >= 10, lambda: cluster.story(job_id))
    until(lambda: [pid for pid, _ in stream.history()][-3:].count(node.driver) == 0, lambda: cluster.story(job_id))
    stream.finish()
    job = cluster.wait_for_end(job_id)
    # A renaming that was under way when the node froze is done when it goes on: the attempt that wanted to write that
    # entry is overtaken then, and a third one continues. Nobody decides whether that happens.
    assert job.emberkeep.attempt in {2, 3}
    stream.check()
    assert stream.drivers()[0] == node.driver
    # Each attempt appends once, before it may be overtaken. The frozen one appends nothing.
    once = list(range(10))
    assert values_in(place / "appended") in [sorted(once * times) for times in range(1, job.emberkeep.attempt)]
    rows = values_in(place / "files")
    assert rows == list(range(len(rows)))
    blobs = cluster.ask(lambda client: client.blobs.all(job_id)).blobs
    assert blobs == []


def go_on_unharmed_after_a_stop_that_nobody_has_seen(cluster: Cluster, job_id: JobId, stream: Stream) -> None:
    """The JobManager was stopped as well: the attempt is confirmed, and goes on."""
    driver = cluster.job(job_id).emberkeep.driver
    assert driver is not None
    jobmanager = cluster.daemon("jobmanager").identity.pid
    jvm = [child.pid for child in psutil.Process(driver.pid).children()]
    begin = time.monotonic()
    for pid in (jobmanager, driver.pid, *jvm):
        os.kill(pid, signal.SIGSTOP)
    until(lambda: time.monotonic() - begin > 1.5 * FREEZE_SECONDS, "longer than half of the lease")
    for pid in (*jvm, driver.pid, jobmanager):
        os.kill(pid, signal.SIGCONT)
    log = driver_log(cluster, job_id)
    until(lambda: "the JobManager has confirmed the attempt" in log.read_text(), lambda: cluster.story(job_id))
    wanted = stream.batches() + 3
    until(lambda: stream.batches() >= wanted, lambda: cluster.story(job_id))
    assert cluster.job(job_id).emberkeep.attempt == 1


def driver_log(cluster: Cluster, job_id: JobId) -> Path:
    """Of Emberkeep's own part of the first attempt's driver."""
    (found,) = cluster.shell.state.glob(f"taskmanagers/*/logs/jobs/{job_id}/1/driver.log")
    return found


def committed(place: Path) -> int:
    """Batches of the file sink's query."""
    return len(list((place / "files-checkpoint" / "commits").glob("[0-9]*")))


def values_in(directory: Path) -> list[int]:
    """Of the JSON files that count: those in the log of Spark's file sink, or all where it has none."""
    logs = list((directory / "_spark_metadata").glob("[0-9]*"))
    listed = {Path(json.loads(line)["path"]).name for log in logs for line in log.read_text().splitlines()[1:]}
    files = [file for file in directory.glob("*.json") if not logs or file.name in listed]
    lines = [line for file in files for line in file.read_text().splitlines()]
    return sorted(int(next(iter(json.loads(line).values()))) for line in lines)
