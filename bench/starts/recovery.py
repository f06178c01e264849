"""How long nothing comes out: from submission to the first result, and from a killed driver to the next commit.

Clusters with and without standby processes run one after the other, and `spark-submit` beside them.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.commands import EMBERKEEP, JOBS, SPARK_SUBMIT, execute, marked, run, temporary_directory
from bench.measure import Figure, Goal, percentile, ratios
from bench.plan import Plan, say
from bench.starts.streams import cancel, next_commit, submit, wait_for_state
from bench.starts.warm_cluster import BenchCluster, bench_cluster

_FIRST_RESULT = str(JOBS / "first_result.py")
_PEER = "local-cluster[2,1,1024]"
_WAYS = (("hot", 1), ("cold", 0))


def measure_start(plan: Plan) -> list[Figure]:
    """Submission → first SQL result, and submission → first committed micro-batch of a stateful stream."""
    with temporary_directory() as directory, marked({}) as environment:
        results: dict[str, tuple[float, ...]] = {}
        commits: dict[str, tuple[float, ...]] = {}
        for way, standbys in _WAYS:
            with bench_cluster(directory / way, environment, standbys) as cluster:
                say(f"start, {way}: first result")
                results[way] = _each(plan, cluster, partial(_first_result, cluster, directory, environment))
                say(f"start, {way}: first commit")
                commits[way] = _each(plan, cluster, partial(_first_commit, cluster, directory, environment))
        submit = (SPARK_SUBMIT, "--master", _PEER, _FIRST_RESULT)
        peers = [run(submit, directory, {}) for _ in plan.turns("start, spark-submit")]
        results["spark-submit"] = tuple(peer.numbers("FIRST_RESULT")[0] - peer.started for peer in peers)
    goals = {"hot": Goal(at_most=1.5)}
    figures = [Figure(f"submit → first result: {way}", "s", s, goals.get(way)) for way, s in results.items()]
    quicker = ratios(results["spark-submit"], results["hot"])
    figures.append(Figure(f"spark-submit {_PEER} / hot", "×", quicker, Goal(at_least=8.0)))
    goals = {"hot": Goal(at_most=2.0)}
    figures += [Figure(f"submit → first commit: {way}", "s", s, goals.get(way)) for way, s in commits.items()]
    return figures


def measure_recovery(plan: Plan) -> list[Figure]:
    """A killed driver → the next committed micro-batch of a stream with 10 MB of state."""
    figures = []
    with temporary_directory() as directory, marked({}) as environment:
        for way, standbys in _WAYS:
            say(f"recovery, {way}")
            with bench_cluster(directory / way, environment, standbys) as cluster:
                samples = _kills(plan, cluster, directory, environment)
            goal = Goal(at_most=2.0) if way == "hot" else None
            figures.append(Figure(f"driver killed → next commit: {way}", "s", samples, goal))
            worst = (percentile(samples, 1.0),)
            figures.append(Figure(f"driver killed → next commit, worst: {way}", "s", worst))
    return figures


def _each(plan: Plan, cluster: BenchCluster, measure: Callable[[], float]) -> tuple[float, ...]:
    samples = []
    for _ in range(plan.repetitions):
        cluster.wait_until_warm()
        samples.append(measure())
        say(f"  {samples[-1]:.2f} s")
    return tuple(samples)


def _first_result(cluster: BenchCluster, directory: Path, environment: dict[str, str]) -> float:
    words = (EMBERKEEP, "run", *cluster.words, "--quiet", "--num-executors", "2", _FIRST_RESULT)
    done = execute(words, directory, environment)
    return done.numbers("FIRST_RESULT")[0] - done.started


def _first_commit(cluster: BenchCluster, directory: Path, environment: dict[str, str]) -> float:
    started = time.time()
    job, checkpoint = submit(cluster, directory, environment)
    seconds = next_commit(checkpoint, started) - started
    cancel(cluster, job, directory, environment)
    return seconds


def _kills(plan: Plan, cluster: BenchCluster, directory: Path, environment: dict[str, str]) -> tuple[float, ...]:
    cluster.wait_until_warm()
    job, checkpoint = submit(cluster, directory, environment)
    wait_for_state(checkpoint)
    samples = []
    for _ in plan.turns("recovery"):
        cluster.wait_until_warm()
        next_commit(checkpoint, time.time())  # the attempt is up and runs
        pid = cluster.driver_pid(job)
        if pid is None:
            raise SystemExit("the job has no driver")
        killed = time.time()
        os.killpg(pid, signal.SIGKILL)
        samples.append(next_commit(checkpoint, killed) - killed)
        say(f"  {samples[-1]:.2f} s")
    cancel(cluster, job, directory, environment)
    return tuple(samples)
