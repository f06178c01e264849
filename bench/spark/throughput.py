"""Jobs that load the CPU and the shuffle, on Emberkeep and on plain Spark standalone, with the same executors.

Standalone does not encrypt. So Emberkeep runs the jobs without Spark's encryption for this comparison, and once more
with it, as it does by default, for the price of encryption.

Wall time is what a user waits; where other programs compute at the same time it says more about them. So the CPU time
of all processes of a side is measured as well: daemons, driver, executors and Python workers, for the same work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bench.clusters import emberkeep_cluster, standalone_cluster
from bench.commands import EMBERKEEP, JOBS, SPARK_SUBMIT, Run, execute, marked, temporary_directory
from bench.measure import Figure, Goal, ratios
from bench.plan import Plan, say

_HOSTS = ("127.0.0.2", "127.0.0.3")
_OPTIONS = ["--executor-cores", "1", "--executor-memory", "1g", "--py-files", str(JOBS / "timing.py")]
_UNENCRYPTED = ["--conf", "spark.network.crypto.enabled=false", "--conf", "spark.io.encryption.enabled=false"]
_GOAL = Goal(at_least=0.98)
_ENCRYPTION_GOAL = Goal(at_least=0.93)

Jobs = dict[str, list[str]]  # by name: script, timed repetitions in one run, size


@dataclass
class _Samples:
    """Of each repetition of one job on one side."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def add(self, run: Run) -> None:
        """Without the first repetition, in which JVMs compile and Python workers start."""
        self.wall += run.numbers("SECONDS")[1:]
        self.cpu += run.numbers("CPU")[1:]


Results = dict[str, _Samples]  # by job


def measure(plan: Plan) -> list[Figure]:
    """Seconds of the work itself, start-up excluded; ratio of speeds, standalone = 1, pair by pair.

    Each side's cluster is up only while it is measured; which side comes first changes from pair to pair.
    """
    times = str(plan.size(4, 1))
    jobs = {
        "CPU-bound": [str(JOBS / "cpu_bound.py"), times, str(plan.size(1_000_000, 100_000))],
        "shuffle-bound": [str(JOBS / "shuffle_bound.py"), times, str(plan.size(2_000_000, 500_000))],
    }
    ours, encrypted, plain = ({name: _Samples() for name in jobs} for _ in range(3))
    sides: dict[str, Callable[[Path], None]] = {
        "emberkeep": partial(_emberkeep, jobs, ours, encrypted),
        "standalone": partial(_standalone, jobs, plain),
    }
    for pair in range(plan.repetitions):
        for side in sides if pair % 2 == 0 else reversed(sides):
            say(f"throughput: pair {pair + 1} of {plan.repetitions}, {side}")
            with temporary_directory() as directory:
                sides[side](directory)
    return [figure for name in jobs for figure in _figures(name, ours[name], encrypted[name], plain[name])]


def _figures(name: str, ours: _Samples, encrypted: _Samples, plain: _Samples) -> list[Figure]:
    return [
        Figure(f"{name}: emberkeep", "s", tuple(ours.wall)),
        Figure(f"{name}: Spark standalone", "s", tuple(plain.wall)),
        Figure(f"{name}: speed, emberkeep / standalone", "×", ratios(plain.wall, ours.wall), _GOAL),
        Figure(f"{name}: CPU time, emberkeep", "s", tuple(ours.cpu)),
        Figure(f"{name}: CPU time, Spark standalone", "s", tuple(plain.cpu)),
        Figure(f"{name}: work per CPU time, emberkeep / standalone", "×", ratios(plain.cpu, ours.cpu), _GOAL),
        Figure(f"{name}: speed, encrypted / not", "×", ratios(ours.wall, encrypted.wall), _ENCRYPTION_GOAL),
        Figure(f"{name}: work per CPU time, encrypted / not", "×", ratios(ours.cpu, encrypted.cpu), _ENCRYPTION_GOAL),
    ]


def _emberkeep(jobs: Jobs, results: Results, encrypted: Results, directory: Path) -> None:
    # Without a class-data archive, which the other side does not have either.
    with (
        marked({"XDG_CACHE_HOME": str(directory / "cache")}) as environment,
        emberkeep_cluster(directory, _HOSTS, environment) as cluster,
    ):
        command = [EMBERKEEP, "run", "--quiet", *cluster, "--num-executors", "2", *_OPTIONS]
        _run_all([*command, *_UNENCRYPTED], directory, environment, jobs, results)
        _run_all(command, directory, environment, jobs, encrypted)


def _standalone(jobs: Jobs, results: Results, directory: Path) -> None:
    with marked({}) as environment, standalone_cluster(directory, _HOSTS, 1408, environment) as url:
        command = [SPARK_SUBMIT, "--master", url, "--total-executor-cores", "2", *_OPTIONS]
        _run_all(command, directory, environment, jobs, results)


def _run_all(command: list[str], directory: Path, environment: Mapping[str, str], jobs: Jobs, results: Results) -> None:
    for name, arguments in jobs.items():
        results[name].add(execute([*command, *arguments], directory, environment))
