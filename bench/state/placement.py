"""Whether the tasks of a query that starts again run where their state lies, with and without being told (LOC-11)."""

from __future__ import annotations

import json
import os

from bench.clusters import emberkeep_cluster
from bench.commands import EMBERKEEP, JOBS, execute, temporary_directory
from bench.measure import Figure, Goal
from bench.plan import Plan, say

_PARTITIONS = 8
_NODES = ("127.0.0.2", "127.0.0.3")
_TIMEOUT_SECONDS = 900.0
_GOAL = Goal(at_least=1.0)


def measure(plan: Plan) -> list[Figure]:
    """Shares of partitions, one sample per start of the query."""
    pairs = plan.size(5, 2) * plan.repetitions
    say(f"placement: a query of {_PARTITIONS} partitions on {len(_NODES)} executors is started {2 * pairs} times")
    with temporary_directory() as directory:
        environment = {**os.environ, "TMPDIR": str(directory)}
        options = ("-D", "state.backend.local-recovery=true")
        with emberkeep_cluster(directory, _NODES, environment, *options) as where:
            words = ["--driver-memory", "512m", "--executor-memory", "512m", "--num-executors", str(len(_NODES))]
            job = [str(JOBS / "placed.py"), str(pairs), str(_PARTITIONS)]
            done = execute([EMBERKEEP, "run", *where, *words, *job], directory, environment, _TIMEOUT_SECONDS)
    shares = json.loads(done.output.strip().splitlines()[-1])
    return [
        Figure("partitions that run where their state lies", "of 1", tuple(shares["with"]), _GOAL),
        Figure("the same when Spark is not told", "of 1", tuple(shares["without"])),
    ]
