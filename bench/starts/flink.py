"""Flink after a kill, as the peer of ``recovery``: a lost task manager, and a lost JobManager.

Flink has as many processes as Emberkeep has for the same faults: a spare task manager, and a standby JobManager.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from bench.commands import marked, temporary_directory
from bench.measure import Figure, percentile
from bench.plan import Plan, say
from bench.starts.flink_cluster import FlinkCluster, flink_cluster
from tools import flink_jar

_KEYS = 100_000  # as `bench.starts.streams` has
# Each kill is the first failure in a row, as in `bench.starts.streams`: Flink waits longer before each further restart.
_SETTLED_SECONDS = 12.0


def measure(plan: Plan) -> list[Figure]:
    """A killed process → the next complete checkpoint, which is what Flink commits results with.

    Return no figures if Flink's jars were not fetched.
    """
    if flink_jar.kept() is None:
        say("flink: left out, because its jars are not there (make flink)")
        return []
    with temporary_directory() as directory, marked({}) as environment:
        workers, leaders = [], []
        with flink_cluster(directory / "flink", environment, task_managers=2) as cluster:
            cluster.submit(_KEYS)
            for _ in plan.turns("flink, task manager killed"):
                workers.append(_kill(cluster, cluster.task_manager_of_job, cluster.add_task_manager))
            for _ in plan.turns("flink, JobManager killed"):
                leaders.append(_kill(cluster, cluster.leader, cluster.add_job_manager))
    return [
        *_figures("Flink: task manager killed → next checkpoint", workers),
        *_figures("Flink: JobManager killed → next checkpoint", leaders),
    ]


def _kill(cluster: FlinkCluster, victim: Callable[[], str], replace: Callable[[], str]) -> float:
    cluster.wait_for_slots(2)
    settled = time.time() + _SETTLED_SECONDS
    while cluster.next_checkpoint(time.time()) < settled:
        pass
    killed = cluster.kill(victim())
    seconds = cluster.next_checkpoint(killed) - killed
    say(f"  {seconds:.2f} s")
    replace()
    return seconds


def _figures(name: str, samples: list[float]) -> list[Figure]:
    return [Figure(name, "s", tuple(samples)), Figure(f"{name}, worst", "s", (percentile(samples, 1.0),))]
