"""What goes wrong in a recording, one thing after the other, each with what ends it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from emberkeep.base.ids import JobId
from emberkeep.client.clusters.discovery import local_endpoint
from emberkeep.jobs.model import JobStatus
from tests.integration.clusters import QUICK, Cluster
from tests.integration.conditions import until
from tools.metrics_recording.scrapes import Scrape, Scraper, exposition_of, series_in

NODES: Final = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
_SHAPE: Final = ("--ha", "--nodes", ",".join(NODES), "--slots", "1", "-D", "taskmanager.driver-places=3")
_STREAM: Final = """
import sys, time
from pathlib import Path
from pyspark.sql import SparkSession

place = Path(sys.argv[1])

def store(frame, number):
    frame.count()  # without an action, Spark counts no rows
    while (place / "hang").exists():
        time.sleep(0.1)

rates = SparkSession.builder.getOrCreate().readStream.format("rate").option("rowsPerSecond", 40).load()
writer = rates.writeStream.queryName("counts").trigger(processingTime="500 milliseconds").foreachBatch(store)
writer.option("checkpointLocation", str(place / "checkpoint")).start().awaitTermination()  # not where scenes happen
"""
_ALARMS: Final = (
    *("-D", "watchdog.commit.min-time=6s", "-D", "watchdog.commit.first-time=2min", "-D", "watchdog.restarts.max=1"),
    *("-D", "restart-strategy.type=fixed-delay", "-D", "restart-strategy.fixed-delay.delay=100ms"),
    *("-D", "restart-strategy.fixed-delay.attempts=100"),
)


@dataclass
class Scene:
    """``step``: seconds that a sample stands for in the tests. ``peak``: the sample before things got better."""

    name: str
    step: int
    series: dict[str, str]
    peak: int
    samples: int


@dataclass
class Stage:
    """The cluster, its stream, and the scenes so far."""

    cluster: Cluster
    names: frozenset[str]
    aliases: dict[str, str] = field(default_factory=dict)
    scenes: list[Scene] = field(default_factory=list)
    stream: JobId = field(init=False)

    def read(self) -> Scrape:
        """Return what Prometheus would read of all JobManagers now; of those that do not lead, nothing."""
        endpoint = local_endpoint(self.cluster.record, self.cluster.shell.state)
        found: Scrape = {}
        record = self.cluster.record
        for number, url in enumerate((record.url, *record.standby_urls)):
            text = exposition_of(url, endpoint.token, endpoint.ca)
            if text is not None:
                found |= series_in(text, self.names, f"jm-{number + 1}", self.aliases)
        return found

    @contextmanager
    def scene(self, name: str, step: int, *, calm: int = 5) -> Iterator[Callable[[int], None]]:
        """Record until the end of the block, and some calm samples around it.

        What is yielded waits for so many scrapes; the last one is the peak.
        """
        print(name, flush=True)
        scraper, peaks = Scraper(self.read), [0]

        def lasts(scrapes: int) -> None:
            end = len(scraper) + scrapes
            until(lambda: len(scraper) >= end, f"{scrapes} scrapes")
            peaks.append(end - 1)

        try:
            lasts(calm)
            yield lasts
            end = len(scraper) + calm
            until(lambda: len(scraper) >= end, "scrapes after")
        finally:
            count, series = len(scraper), scraper.close()
        self.scenes.append(Scene(name, step, series, peaks[-1], count))

    def has(self, start: str, value: float) -> bool:
        """Read now, and return True if a series begins so and has this value."""
        return any(key.startswith(start) and found == value for key, found in self.read().items())

    def submit(self, name: str, script: str, *options: str, executors: int = 1) -> JobId:
        path = self.cluster.shell.write(f"{name}.py", script)
        place = self.cluster.shell.directory / name
        place.mkdir(exist_ok=True)
        job = self.cluster.submit(path, "--name", name, *options, arguments=(str(place),), executors=executors)
        self.aliases[job] = name
        return job

    def place(self, name: str) -> Path:
        return self.cluster.shell.directory / name

    def pid(self, name: str) -> int:
        return self.cluster.daemon(name).identity.pid


def play(stage: Stage) -> None:
    """Play all scenes on a cluster that this starts."""
    cluster = stage.cluster
    stage.place("storage").mkdir()
    place = f"high-availability.storageDir={stage.place('storage')}"
    cluster.up(*_SHAPE, *QUICK, "-D", place, "-D", "high-availability.zookeeper.client.session-timeout=4s")
    stage.stream = stage.submit("stream", _STREAM, *_ALARMS)
    cluster.wait_for_executors(stage.stream)
    until(lambda: _processes_rows(stage), "the stream works")
    for scene in (_takeover, _no_leader, _doubt, _storage, _stuck, _silent, _lost, _blocked, _waits, _fails, _restarts):
        scene(stage)


def _processes_rows(stage: Stage) -> bool:
    return any(
        key.startswith("emberkeep_query_processed_rows_per_second{") and value > 0
        for key, value in stage.read().items()
    )


def _takeover(stage: Stage) -> None:
    with stage.scene("a takeover", step=1) as lasts:
        _, leader = stage.cluster.leader()
        os.kill(leader.identity.pid, signal.SIGKILL)
        stage.cluster.leader()
        lasts(3)
    stage.cluster.up()


def _no_leader(stage: Stage) -> None:
    with stage.scene("no JobManager leads", step=15, calm=6) as lasts:
        pids = [each.identity.pid for each in stage.cluster.record.job_managers]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        lasts(8)
        stage.cluster.up()
        stage.cluster.leader()


def _doubt(stage: Stage) -> None:
    pids = [each.daemon.identity.pid for each in stage.cluster.record.zookeepers]
    with stage.scene("ZooKeeper does not answer", step=15) as lasts:
        try:
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            until(lambda: stage.has("emberkeep_leader_in_doubt", 1.0), "the leader is in doubt")
            lasts(4)
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        until(lambda: stage.has("emberkeep_leader_in_doubt", 0.0), "a leader is sure again")


def _storage(stage: Stage) -> None:
    storage = stage.place("storage")
    aside = storage.with_name("away")
    with stage.scene("the shared storage is away", step=15) as lasts:
        storage.rename(aside)
        try:
            until(lambda: stage.has("emberkeep_storage_unreadable", 1.0), "the storage cannot be read")
            lasts(10)
        finally:
            aside.rename(storage)
        until(lambda: stage.has("emberkeep_storage_unreadable", 0.0), "the storage can be read")


def _stuck(stage: Stage) -> None:
    hang = stage.place("stream") / "hang"
    with stage.scene("a query hangs", step=15) as lasts:
        hang.touch()
        until(lambda: _raised(stage, "no-commit"), "an alarm")
        lasts(3)
        hang.unlink()
        until(lambda: not _raised(stage, "no-commit"), "no alarm")


def _raised(stage: Stage, kind: str) -> bool:
    return any(
        key.startswith("emberkeep_alarm{") and f'kind="{kind}"' in key and value for key, value in stage.read().items()
    )


def _silent(stage: Stage) -> None:
    (executor, *_) = stage.cluster.wait_for_executors(stage.stream)
    pid = stage.pid(executor.taskmanager_id)
    with stage.scene("a task manager is silent", step=15) as lasts:
        os.kill(pid, signal.SIGSTOP)
        try:
            until(lambda: stage.has("emberkeep_task_managers_away", 1.0), "it is away")
            lasts(10)
        finally:
            os.kill(pid, signal.SIGCONT)
        until(lambda: stage.has("emberkeep_task_managers_away", 0.0), "it is back")
    stage.cluster.wait_for_executors(stage.stream)


def _lost(stage: Stage) -> None:
    job = stage.cluster.job(stage.stream).emberkeep
    busy = {each.taskmanager_id for each in (*job.executors, job.driver) if each is not None}
    idle = next(f"tm-{node}" for node in NODES if f"tm-{node}" not in busy)
    with stage.scene("a task manager is lost", step=15) as lasts:
        stage.cluster.kill(idle)
        until(lambda: stage.has("emberkeep_task_managers{", 2.0), "it is lost")
        lasts(22)
        stage.cluster.up()
        until(lambda: stage.has("emberkeep_task_managers{", 3.0), "it is there again")


def _blocked(stage: Stage) -> None:
    with stage.scene("a node is blocked", step=60) as lasts:
        stage.cluster.shell.done("node", "block", "spare", "--cause", "not there yet")
        lasts(12)
        stage.cluster.shell.done("node", "unblock", "spare")


def _waits(stage: Stage) -> None:
    script = "from pyspark.sql import SparkSession\nimport time\nSparkSession.builder.getOrCreate()\ntime.sleep(3600)\n"
    job = stage.submit("greedy", script, executors=4)
    stage.cluster.wait_for(job, lambda job: job.state is JobStatus.RUNNING and job.emberkeep.waiting, "it lacks slots")
    with stage.scene("a job waits for slots", step=60) as lasts:
        lasts(17)
        stage.cluster.cancel(job)
        until(lambda: stage.cluster.job(job).state.is_globally_terminal, "it is cancelled")


def _fails(stage: Stage) -> None:
    with stage.scene("a job fails", step=60, calm=16) as lasts:
        job = stage.submit("broken", "raise SystemExit(3)\n", "-D", "restart-strategy.type=none")
        until(lambda: stage.cluster.job(job).state.is_globally_terminal, "it fails")
        lasts(4)


def _restarts(stage: Stage) -> None:
    with stage.scene("a driver is lost again and again", step=15) as lasts:
        for _ in range(2):
            attempt = stage.cluster.job(stage.stream).emberkeep.attempt
            os.kill(stage.cluster.wait_for_driver(stage.stream, attempt), signal.SIGKILL)
            stage.cluster.wait_for_driver(stage.stream, attempt + 1)
        until(lambda: _raised(stage, "restarts"), "an alarm")
        lasts(3)
        stage.cluster.cancel(stage.stream)
        until(lambda: not _raised(stage, "restarts"), "its alarm ends with it")
