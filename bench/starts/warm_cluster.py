"""A cluster of one task manager per node whose standby processes are warm before each measurement."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from bench.clusters import emberkeep_cluster
from emberkeep.base.ids import JobId
from emberkeep.client.clusters.cluster_file import read_cluster
from emberkeep.client.clusters.discovery import local_endpoint
from emberkeep.client.rest_client import RestClient

T = TypeVar("T")

NODES = ("127.0.0.2", "127.0.0.3")
_WARM_SECONDS = 900.0
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
        while not self._ask(partial(_are_warm, least=2 * self.standbys * len(NODES))):
            if time.monotonic() > deadline:
                raise SystemExit(f"standby processes were not warm after {_WARM_SECONDS:g} s")
            time.sleep(0.5)

    def driver_pid(self, job: str) -> int | None:
        """Return the pid of a job's driver; None while it has none."""

        async def pid(client: RestClient) -> int | None:
            driver = (await client.job(JobId(job))).emberkeep.driver
            return None if driver is None else driver.pid

        return self._ask(pid)

    def executor_pids(self, job: str) -> list[int]:
        """Return the pids of the job's executors that Spark can use."""

        async def pids(client: RestClient) -> list[int]:
            executors = (await client.job(JobId(job))).emberkeep.executors
            return [each.pid for each in executors if each.registered and each.pid]

        return self._ask(pids)

    def wait_for_reserved_standby(self, job: str) -> None:
        """Return once the job's reserved standby is ready. Raises SystemExit."""

        async def is_ready(client: RestClient) -> bool:
            standby = (await client.job(JobId(job))).emberkeep.reserved_standby
            return standby is not None and standby.ready

        deadline = time.monotonic() + _WARM_SECONDS
        while not self._ask(is_ready):
            if time.monotonic() > deadline:
                raise SystemExit(f"the job's reserved standby was not ready after {_WARM_SECONDS:g} s")
            time.sleep(0.5)

    def home(self, job: str) -> str:
        """Return the working directory of the task manager with the job's driver. Raises SystemExit."""

        async def task_manager(client: RestClient) -> str:
            driver = (await client.job(JobId(job))).emberkeep.driver
            return "" if driver is None else driver.taskmanager_id

        name, record = self._ask(task_manager), read_cluster(self.state / "cluster.json")
        for daemon in () if record is None else record.task_managers:
            if daemon.name == name:
                return daemon.directory
        raise SystemExit("the job has no driver")

    def gone(self, job: str) -> float:
        """Return when the driver before the newest one was proven to have ended (Unix seconds). Raises SystemExit."""

        async def moment(client: RestClient) -> float | None:
            recovery = (await client.job(JobId(job))).emberkeep.attempts[-1].recovery
            if recovery is None:
                return None
            found = {milestone.milestone: milestone.after for milestone in recovery.milestones}
            return (recovery.began + found["gone"]) / 1000.0 if "gone" in found else None

        found = self._ask(moment)
        if found is None:
            raise SystemExit("no trace says when the driver was known to be gone")
        return found

    def _ask(self, question: Callable[[RestClient], Awaitable[T]]) -> T:
        async def ask() -> T:
            record = read_cluster(self.state / "cluster.json")
            if record is None:
                raise SystemExit("no cluster runs")
            async with RestClient(local_endpoint(record, self.state), patience=_PATIENCE) as client:
                return await question(client)

        return asyncio.run(ask())


async def _are_warm(client: RestClient, least: int) -> bool:
    """True if all standby processes for any job are ready: ``least``, and more where some are reserved."""
    reports = [manager.emberkeep.standbys for manager in await client.task_managers()]
    ready = sum(report.drivers + report.executors for report in reports if report is not None)
    kept = sum(report.drivers_kept + report.executors_kept for report in reports if report is not None)
    return ready == kept >= least


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
