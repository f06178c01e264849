"""A node with two executors and their shuffle files is given up: evacuated by Emberkeep, killed under Spark standalone.

The same job on both sides, one after the other: between two stages its node is lost, and what counts is when the second
stage has ended, and how many tasks of the first one had to run again.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from bench.clusters import emberkeep_cluster, standalone_cluster
from bench.commands import EMBERKEEP, JOBS, MARK, SPARK_SUBMIT, Run, end, execute, marked, temporary_directory
from bench.measure import Figure, Goal, ratios
from bench.plan import Plan, say

_HOSTS = ("127.0.0.2", "127.0.0.3")
_OPTIONS = ["--executor-cores", "1", "--executor-memory", "768m", "--driver-memory", "512m"]
_MAP_TASKS = 16
_WAIT_SECONDS = 600.0


@dataclass
class _Side:
    leave: list[float] = field(default_factory=list)  # seconds until the node is empty
    ready: list[float] = field(default_factory=list)  # seconds until the next stage has ended
    recomputed: list[float] = field(default_factory=list)
    written: list[float] = field(default_factory=list)  # MiB

    def add(self, run: Run, began: float, left: float) -> None:
        self.leave.append(left - began)
        self.ready += [ended - began for ended in run.numbers("ENDED")]
        self.recomputed += run.numbers("RECOMPUTED")
        self.written += run.numbers("WRITTEN")


def measure(plan: Plan) -> list[Figure]:
    """Seconds from the order to evacuate, or from the kill; which side comes first changes from pair to pair."""
    size = plan.size(500, 50)
    ours, plain = _Side(), _Side()
    sides: list[tuple[Callable[[Path, int, _Side], None], _Side]] = [(_emberkeep, ours), (_standalone, plain)]
    for pair in range(plan.repetitions):
        for run_side, results in sides if pair % 2 == 0 else sides[::-1]:
            say(f"evacuation: {size} MiB, pair {pair + 1} of {plan.repetitions}, {run_side.__name__.strip('_')}")
            with temporary_directory() as directory:
                run_side(directory, size, results)
    return [
        Figure("shuffle files on the node", "MiB", tuple(ours.written)),
        Figure("evacuated: until the node is empty", "s", tuple(ours.leave)),
        Figure("evacuated: until the next stage has ended", "s", tuple(ours.ready)),
        Figure("worker killed: until the next stage has ended", "s", tuple(plain.ready)),
        Figure("time, evacuated / killed", "×", ratios(ours.ready, plain.ready)),
        Figure("evacuated: tasks computed again", "tasks", tuple(ours.recomputed), Goal(at_most=0.0)),
        Figure("worker killed: tasks computed again", "tasks", tuple(plain.recomputed)),
    ]


def _emberkeep(directory: Path, size: int, results: _Side) -> None:
    with (
        marked({"XDG_CACHE_HOME": str(directory / "cache")}) as environment,
        emberkeep_cluster(directory, _HOSTS, environment, slots=2) as cluster,
    ):
        first, other = _HOSTS

        def node(*words: str) -> None:
            execute([EMBERKEEP, "node", words[0], *cluster, *words[1:]], directory, environment)

        node("block", other, "--cause", "the job must begin elsewhere")
        command = [EMBERKEEP, "run", "--quiet", *cluster, "--num-executors", "2", *_OPTIONS]
        with _Job(command, directory, size, environment) as job:
            assert job.hosts() == first, "both executors are where they were to be"
            node("unblock", other)
            began = time.time()
            node("evacuate", first, "--cause", "a disk is failing", "--drivers", "wait", "--wait")
            left = time.time()
            results.add(job.result(), began, left)


def _standalone(directory: Path, size: int, results: _Side) -> None:
    packed = {"SPARK_MASTER_OPTS": "-Dspark.deploy.spreadOutApps=false"}
    with (
        marked(packed) as environment,
        standalone_cluster(directory, _HOSTS, 2 * 1200, environment, cores=2) as url,
    ):
        command = [SPARK_SUBMIT, "--master", url, "--total-executor-cores", "2", *_OPTIONS]
        with _Job(command, directory, size, environment) as job:
            host = job.hosts()
            began = time.time()
            _kill_worker(host, environment[MARK])
            results.add(job.result(), began, time.time())


def _kill_worker(host: str, mark: str) -> None:
    """This measurement's Worker of a host, and its executors."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            words = process.cmdline()
            is_worker = "org.apache.spark.deploy.worker.Worker" in words and host in words
            if is_worker and process.environ().get(MARK) == mark:
                for child in (*process.children(recursive=True), process):
                    child.kill()


class _Job:
    """The job while it runs; on leaving it is ended."""

    def __init__(self, command: list[str], directory: Path, size: int, environment: Mapping[str, str]) -> None:
        self._directory = directory
        self._process = subprocess.Popen(
            [*command, str(JOBS / "shuffled.py"), str(directory), str(size), str(_MAP_TASKS)],
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=(directory / "job.log").open("wb"),
            text=True,
            start_new_session=True,
        )
        self._started, self._begin = time.time(), time.perf_counter()

    def __enter__(self) -> _Job:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            end(self._process)

    def hosts(self) -> str:
        """Where its executors are, once its shuffle files are written."""
        ready, deadline = self._directory / "ready", time.monotonic() + _WAIT_SECONDS
        while not ready.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the job did not write its shuffle files:\n{self._errors()}")
            time.sleep(0.05)
        return ready.read_text()

    def result(self) -> Run:
        """Let it go on, to its end."""
        (self._directory / "go").touch()
        output, _ = self._process.communicate(timeout=_WAIT_SECONDS)
        if self._process.returncode != 0:
            raise SystemExit(f"the job ended with {self._process.returncode}:\n{self._errors()}")
        return Run(self._started, time.perf_counter() - self._begin, output)

    def _errors(self) -> str:
        return (self._directory / "job.log").read_text(errors="replace")[-2000:]
