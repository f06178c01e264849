"""What the loss of an executor and of a whole node costs, what standbys cost, and a short job beside spark-submit's.

A node is lost as a machine is: its task manager, drivers, executors and standby processes are killed together. Until
the driver is known to be gone, its lease has to pass; the figure is what comes after that.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import psutil

from bench.commands import EMBERKEEP, JOBS, SPARK_SUBMIT, execute, marked, run, temporary_directory
from bench.measure import Figure, Goal, percentile, ratios
from bench.plan import Plan, say
from bench.starts.standby_costs import waiting_costs
from bench.starts.streams import cancel, next_commit, submit, wait_for_state
from bench.starts.warm_cluster import BenchCluster, bench_cluster

T = TypeVar("T")

_MARKS = str(JOBS / "marks.py")
_FIRST_RESULT = str(JOBS / "first_result.py")
_PEER = "local-cluster[2,1,1024]"
_RESERVED = ("-D", "execution.standby=hot", "-D", "state.backend.local-recovery=true")
_FIRST_LOSSES = ("-D", "executor.failure-window=1s")  # each loss is a first one, which has no pause
_TASK_SECONDS = 120.0


def measure_costs(plan: Plan) -> list[Figure]:
    """What waiting standby processes cost, and the processor time of a short job beside spark-submit's."""
    with temporary_directory() as directory, marked({}) as environment:
        execute([EMBERKEEP, "prepare"], directory, environment)  # as a cluster does that has run for a while
        with bench_cluster(directory / "hot", environment, 1) as cluster:
            cluster.wait_until_warm()
            costs = waiting_costs(str(directory))
            ours = _processor_time(plan, cluster, partial(_run_short_job, cluster, directory, environment))
        words = (SPARK_SUBMIT, "--master", _PEER, _FIRST_RESULT)
        peers = _processor_time(plan, None, lambda: run(words, directory, {}))
    return [
        *costs,
        Figure("processor time of a short job, all processes: hot", "s", ours),
        Figure(f"processor time of a short job, all processes: spark-submit {_PEER}", "s", peers),
        Figure(f"processor time: spark-submit {_PEER} / hot", "×", ratios(peers, ours), Goal(at_least=4.0)),
    ]


def measure_executor(plan: Plan) -> list[Figure]:
    """A killed executor → its replacement runs a task."""
    with (
        temporary_directory() as directory,
        marked({}) as environment,
        bench_cluster(directory / "hot", environment, 1) as cluster,
    ):
        samples = _executor_kills(plan, cluster, directory, environment)
    return [Figure("executor killed → its replacement runs a task: hot", "s", samples, Goal(at_most=1.0))]


def measure_node(plan: Plan) -> list[Figure]:
    """The killed node of a driver, once known to be gone → the next commit, with a reserved standby elsewhere."""
    with (
        temporary_directory() as directory,
        marked({}) as environment,
        bench_cluster(directory / "hot", environment, 1, *_RESERVED) as cluster,
    ):
        samples = _node_kills(plan, cluster, directory, environment)
    what = "driver's node killed and known to be gone → next commit"
    return [
        Figure(f"{what}: hot", "s", samples, Goal(at_most=3.0)),
        Figure(f"{what}, worst: hot", "s", (percentile(samples, 1.0),)),
    ]


def _processor_time(plan: Plan, cluster: BenchCluster | None, job: Callable[[], object]) -> tuple[float, ...]:
    """Return the seconds that the whole machine works for each run, less what it works without one."""
    samples = []
    for _ in plan.turns("processor time"):
        if cluster is not None:
            cluster.wait_until_warm()
        idle = _busy_share()
        began, before = time.monotonic(), _busy_seconds()
        job()
        seconds = time.monotonic() - began
        samples.append(_busy_seconds() - before - idle * seconds)
        say(f"  {samples[-1]:.2f} s in {seconds:.2f} s")
    return tuple(samples)


def _busy_seconds() -> float:
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq)


def _busy_share() -> float:
    """Return how many cores work while nothing is measured."""
    before, seconds = _busy_seconds(), 3.0
    time.sleep(seconds)
    return (_busy_seconds() - before) / seconds


def _run_short_job(cluster: BenchCluster, directory: Path, environment: dict[str, str]) -> None:
    words = (EMBERKEEP, "run", *cluster.words, "--quiet", "--num-executors", "2", _FIRST_RESULT)
    execute(words, directory, environment)


# --- executors --------------------------------------------------------------------------------------------------------


def _executor_kills(
    plan: Plan, cluster: BenchCluster, directory: Path, environment: dict[str, str]
) -> tuple[float, ...]:
    cluster.wait_until_warm()
    place = directory / "marks"
    place.mkdir()
    words = (EMBERKEEP, "submit", *cluster.words, "-q", "--num-executors", "2", *_FIRST_LOSSES, _MARKS, str(place))
    job = execute(words, directory, environment).output.strip()
    samples = []
    for _ in plan.turns("loss of an executor"):
        cluster.wait_until_warm()
        pids = _until(lambda: pids if len(pids := cluster.executor_pids(job)) == 2 else None, "two executors")
        known = {path.name for path in place.iterdir()}
        killed = time.time()
        os.kill(min(pids), signal.SIGKILL)
        samples.append(_until(partial(_first_mark, place, known), "a task of the replacement") - killed)
        say(f"  {samples[-1]:.2f} s")
    cancel(cluster, job, directory, environment)
    return tuple(samples)


def _first_mark(place: Path, known: set[str]) -> float | None:
    """Return when a task first ran in a daemon that is not ``known`` (Unix seconds); None if there is none yet."""
    firsts = [path.read_text().partition("\n") for path in place.iterdir() if path.name not in known]
    return min((float(text) for text, end, _ in firsts if end), default=None)


def _until(look: Callable[[], T | None], what: str) -> T:
    deadline = time.monotonic() + _TASK_SECONDS
    while time.monotonic() < deadline:
        found = look()
        if found is not None:
            return found
        time.sleep(0.01)
    raise SystemExit(f"not within {_TASK_SECONDS:g} s: {what}")


# --- nodes ------------------------------------------------------------------------------------------------------------


def _node_kills(plan: Plan, cluster: BenchCluster, directory: Path, environment: dict[str, str]) -> tuple[float, ...]:
    cluster.wait_until_warm()
    job, checkpoint = submit(cluster, directory, environment)
    wait_for_state(checkpoint)
    samples = []
    for _ in plan.turns("loss of a node"):
        cluster.wait_until_warm()
        cluster.wait_for_reserved_standby(job)
        next_commit(checkpoint, time.time())  # the attempt is up and runs
        killed = time.time()
        _kill_node(cluster.home(job))
        committed = next_commit(checkpoint, killed)
        gone = cluster.gone(job)
        samples.append(committed - gone)
        say(f"  {committed - killed:.2f} s, of which {gone - killed:.2f} s until the driver was known to be gone")
        execute((EMBERKEEP, "cluster", "up", *cluster.words), directory, environment)
    cancel(cluster, job, directory, environment)
    return tuple(samples)


def _kill_node(directory: str) -> None:
    """Kill all processes of the task manager that works in ``directory``, and itself."""
    mark = f"{directory}/"
    victims = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            # The task manager itself has its directory as the value of an option.
            is_here = any(word.rpartition("=")[2] == directory for word in process.cmdline())
            if is_here or process.environ().get("SPARK_LOCAL_DIRS", "").startswith(mark):
                victims.append(process)
    for process in victims:
        with suppress(psutil.Error):
            process.kill()
