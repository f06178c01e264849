"""A cluster of one task manager per node whose standby processes are warm before each measurement."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.clusters import emberkeep_cluster
from emberkeep.base.ids import JobId
from emberkeep.client.clusters.cluster_file import read_cluster
from emberkeep.client.clusters.discovery import local_endpoint
from emberkeep.client.rest_client import RestClient

NODES = ("127.0.0.2", "127.0.0.3")
_WARM_SECONDS = 900.0
_READY, _TAKEN, _ENDED = "a standby process is ready", "a job took a standby process", "ending a standby process"
_PATIENCE = 30.0


@dataclass(frozen=True)
class BenchCluster:
    """A running cluster. ``words``: the options that name it. ``standbys``: of each kind on each node; 0 for none."""

    state: Path
    words: list[str]
    standbys: int

    def wait_until_warm(self) -> None:
        """Return once each node has all its standby processes. Raises SystemExit."""
        deadline = time.monotonic() + _WARM_SECONDS
        while self._ready() < 2 * self.standbys * len(NODES):
            if time.monotonic() > deadline:
                raise SystemExit(f"standby processes were not warm after {_WARM_SECONDS:g} s")
            time.sleep(0.5)

    def _ready(self) -> int:
        """Return how many standby processes can be taken, as the task managers' logs have it."""
        return sum(len(_ready_in(log)) for log in self.state.glob("taskmanagers/*/logs/taskmanager.log"))

    def driver_pid(self, job: str) -> int | None:
        """Return the pid of a job's driver; None while it has none."""

        async def ask() -> int | None:
            record = read_cluster(self.state / "cluster.json")
            if record is None:
                raise SystemExit("no cluster runs")
            async with RestClient(local_endpoint(record, self.state), patience=_PATIENCE) as client:
                driver = (await client.job(JobId(job))).emberkeep.driver
                return None if driver is None else driver.pid

        return asyncio.run(ask())


def _ready_in(log: Path) -> dict[str, int]:
    """Return the pids of one task manager's ready standby processes, by their ids."""
    ready: dict[str, int] = {}
    for line in log.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line) if line.startswith("{") else {}
        if entry.get("event") == _READY:
            ready[entry["standby"]] = entry["pid"]
        elif entry.get("event") == _TAKEN:
            ready = {standby: pid for standby, pid in ready.items() if pid != entry["pid"]}
        elif entry.get("event") == _ENDED:
            ready.pop(entry["standby"], None)
    return ready


@contextmanager
def bench_cluster(directory: Path, environment: dict[str, str], standbys: int, *options: str) -> Iterator[BenchCluster]:
    """Run a cluster that keeps ``standbys`` processes of each kind on each node."""
    words = [
        *("-D", f"taskmanager.standby.drivers={standbys}"),
        *("-D", f"taskmanager.standby.executors={standbys}"),
    ]
    directory.mkdir()
    with emberkeep_cluster(directory, NODES, environment, *words, *options, slots=2) as where:
        yield BenchCluster(directory, where, standbys)
