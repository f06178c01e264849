"""What streaming jobs notice when the leading JobManager is killed: real drivers and executors, in their own output.

Ten jobs of one executor each write down when each micro-batch came out. The longest pause in the seconds after a kill
is held against the longest one in as many seconds before it, job by job.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import signal
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from bench.commands import EMBERKEEP, JOBS, execute, marked, temporary_directory
from bench.leader_poll import until_known
from bench.measure import Figure, Goal
from bench.plan import Plan, say
from emberkeep.client.clusters.cluster_file import ClusterRecord, read_cluster
from emberkeep.client.clusters.discovery import local_endpoint
from emberkeep.client.endpoint import Endpoint
from emberkeep.client.rest_client import RestClient
from emberkeep.jobs.model import JobStatus

_TRIGGER_SECONDS = 2.0
_WINDOW = 20.0  # seconds before and after a kill that are looked at
_START_SECONDS = 600.0  # twenty JVMs on a small machine
_PATIENCE = 30.0  # seconds for a leader to answer
# Sizes of JVMs that do next to nothing.
_SMALL = ("--driver-memory", "512m", "--executor-memory", "512m", "--num-executors", "1")
_SMALLER = ("--conf", "spark.executor.memoryOverhead=128m", "--conf", "spark.ui.enabled=false")
# By nothing but chance a pause is longer than the one before: by less than a trigger interval.
_GAP_GOAL = Goal(at_most=1.0)


@dataclass(frozen=True)
class _Kill:
    """``known``: seconds until another leader knew all jobs to be RUNNING. Per job: longest pause before and after."""

    known: float
    before: tuple[float, ...]
    after: tuple[float, ...]

    @property
    def longer(self) -> tuple[float, ...]:
        """By how many trigger intervals the pause was longer than before."""
        return tuple((after - before) / _TRIGGER_SECONDS for after, before in zip(self.after, self.before, strict=True))


def measure(plan: Plan) -> list[Figure]:
    """One cluster, and some kills of its leader."""
    jobs, kills = plan.size(10, 2), plan.repetitions
    say(f"takeover, real jobs: {jobs}")
    with temporary_directory() as directory, marked({}) as environment:
        found = _kills(directory, environment, jobs, kills)
    name = f"{jobs} streaming jobs, a trigger each {_TRIGGER_SECONDS:g} s"
    return [
        Figure(f"{name}: killed → all are RUNNING", "s", tuple(kill.known for kill in found)),
        Figure(
            f"{name}: longest pause in {_WINDOW:g} s before, median", "s", _medians(found, lambda kill: kill.before)
        ),
        Figure(f"{name}: longest pause in {_WINDOW:g} s after, median", "s", _medians(found, lambda kill: kill.after)),
        Figure(f"{name}: longer by, in triggers, median", "", _medians(found, lambda kill: kill.longer), _GAP_GOAL),
        Figure(f"{name}: longer by, in triggers, worst job", "", tuple(max(kill.longer) for kill in found)),
    ]


def _medians(kills: list[_Kill], of: Callable[[_Kill], tuple[float, ...]]) -> tuple[float, ...]:
    return tuple(statistics.median(of(kill)) for kill in kills)


def _kills(directory: Path, environment: dict[str, str], jobs: int, kills: int) -> list[_Kill]:
    state = directory / "state"
    where = ["--state-dir", str(state)]
    shape = ["--ha", "--slots", str(jobs), "--memory", "24g"]
    definitions = ["-D", f"taskmanager.driver-places={jobs}", "-D", "rest.port=0"]
    up = [EMBERKEEP, "cluster", "up", *where, *shape, *definitions]
    try:
        execute(up, directory, environment)
        outputs = [directory / f"output-{number}" for number in range(jobs)]
        for number, output in enumerate(outputs):
            words = [EMBERKEEP, "submit", *where, "-q", *_SMALL, *_SMALLER, str(JOBS / "ticking.py"), str(output)]
            execute([*words, str(int(_TRIGGER_SECONDS * 1000))], directory, environment)
            # One after the other: all at once would take each other for lost on a small machine.
            _wait(lambda output=output: _batches(output) >= 3, f"job {number}")  # type: ignore[misc]
        pids = asyncio.run(_pids(state))
        found = []
        for turn in range(kills):
            say(f"takeover, real jobs: {turn + 1} of {kills}")
            found.append(_kill(state, outputs))
            if asyncio.run(_pids(state)) != pids:
                raise SystemExit("a driver or executor was replaced: a bug, so there is no measurement")
            execute(up, directory, environment)
        return found
    finally:
        execute([EMBERKEEP, "cluster", "down", *where], directory, environment)


def _kill(state: Path, outputs: list[Path]) -> _Kill:
    time.sleep(_WINDOW)
    leader, others = asyncio.run(_leader(state))
    killed, begin = time.time(), time.perf_counter()
    os.kill(leader, signal.SIGKILL)
    takeover = asyncio.run(until_known(others, JobStatus.RUNNING, len(outputs), begin))
    time.sleep(max(0.0, killed + _WINDOW - time.time()))
    times = [batch_times(output) for output in outputs]
    return _Kill(
        takeover.known,
        tuple(longest_pause(each, killed - _WINDOW, killed) for each in times),
        tuple(longest_pause(each, killed, killed + _WINDOW) for each in times),
    )


def batch_times(output: Path) -> list[float]:
    """When batches came out (Unix seconds), and now. Raises SystemExit when one is missing or came twice."""
    lines = [line.split() for line in output.read_text().splitlines() if re.fullmatch(r"\d+ [\d.]+ \d+", line)]
    numbers = [int(number) for number, *_ in lines]
    if numbers != list(range(len(numbers))) or any(count != "10" for _, _, count in lines[1:]):
        raise SystemExit(f"micro-batches were lost or repeated in {output}: a bug, so there is no measurement")
    return [*(float(moment) for _, moment, _ in lines), time.time()]


def longest_pause(times: list[float], begin: float, end: float) -> float:
    """The longest pause that touches this span; one that has not ended yet counts as far as it goes."""
    return max(b - a for a, b in itertools.pairwise(times) if b > begin and a < end)


def _batches(output: Path) -> int:
    return len(output.read_text().splitlines()) if output.exists() else 0


def _wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"{what} did not work after {_START_SECONDS:g} s")
        time.sleep(0.1)


def _record(state: Path) -> ClusterRecord:
    record = read_cluster(state / "cluster.json")
    if record is None:
        raise SystemExit("no cluster runs")
    return record


async def _pids(state: Path) -> dict[str, list[int]]:
    """Of drivers and executors, by job; waits until all are known."""
    deadline = time.monotonic() + _START_SECONDS
    async with RestClient(local_endpoint(_record(state), state), patience=_PATIENCE) as client:
        while time.monotonic() < deadline:
            infos = [await client.job(job.jid) for job in await client.jobs()]
            shown = {
                str(info.jid): [info.emberkeep.driver.pid, *(each.pid for each in info.emberkeep.executors if each.pid)]
                for info in infos
                if info.emberkeep.driver is not None
            }
            if len(shown) == len(infos) and all(len(pids) == 2 for pids in shown.values()):
                return shown
            await asyncio.sleep(0.5)
    raise SystemExit("not all jobs have their executors")


async def _leader(state: Path) -> tuple[int, list[Endpoint]]:
    """The leader's pid, and where all the others are."""
    record = _record(state)
    async with RestClient(local_endpoint(record, state), patience=_PATIENCE) as client:
        leader = record.url_of((await client.overview()).emberkeep.job_manager)
    endpoint = local_endpoint(record, state)
    pids = [daemon.identity.pid for url, daemon in zip(record.urls, record.job_managers, strict=True) if url == leader]
    return pids[0], [replace(endpoint, url=url, others=()) for url in record.urls if url != leader]
