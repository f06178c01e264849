"""A cluster whose task managers keep standby processes, and how its jobs came up."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from emberkeep.base.configuration.options.task_managers import JOB_ENVIRONMENT
from emberkeep.base.configuration.sources import environment_variable
from emberkeep.base.ids import JobId
from emberkeep.base.processes.priority import can_be_raised
from emberkeep.daemons.taskmanager.job_environment import EVERYTHING
from emberkeep.jobs.model import JobStatus
from emberkeep.protocol.rest_jobs import JobDetailsInfo
from emberkeep.slots.model import ProcessStart
from emberkeep.spark.java import find_java
from emberkeep.spark.standby.native_calls import JAVA_OF_STANDBYS
from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import NO_STANDBYS, Shell
from tests.integration.conditions import until

_QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # a warm-up mostly compiles
WARM_SECONDS = 900.0  # beside other tests


class WarmCluster(Cluster):
    """A cluster with one standby driver and one standby executor on each node, for tests that also run without them."""

    start = ProcessStart.HOT

    def wait_for_standbys(self) -> None:
        wait_until_warm(self)

    def submit(self, script: Path | str, *options: str, arguments: tuple[str, ...] = (), executors: int = 1) -> JobId:
        """Submit a job once all standbys are warm. Fails unless the job takes a standby driver."""
        wait_until_warm(self)
        job_id = self.submit_at_once(script, *options, arguments=arguments, executors=executors)
        job = self.wait_for(job_id, lambda job: job.emberkeep.attempts and starts(job)[0], "the driver starts")
        assert starts(job)[0] is ProcessStart.HOT, self.story(job_id)
        return job_id

    def submit_at_once(
        self, script: Path | str, *options: str, arguments: tuple[str, ...] = (), executors: int = 1
    ) -> JobId:
        return submit(self, script, *options, arguments=arguments, executors=executors)


def warm_cluster(directory: Path, class_archive: Path, nodes: tuple[str, ...], *words: str) -> WarmCluster:
    """Start such a cluster. Skips the test without Java 17."""
    if find_java(os.environ).major != JAVA_OF_STANDBYS:
        pytest.skip(f"standby processes need Java {JAVA_OF_STANDBYS}")
    cluster = WarmCluster(Shell(directory, class_archive.parent, _without_priorities(directory)))
    for name in NO_STANDBYS:
        del cluster.shell.environment[name]
    inherited = {environment_variable(JOB_ENVIRONMENT.key): EVERYTHING}
    cluster.shell.environment |= {**inherited, "JAVA_TOOL_OPTIONS": _QUICK_JVM}
    cluster.up("--nodes", ",".join(nodes), "--slots", "2", "--memory", "8g", *QUICK, *words)
    return cluster


def _without_priorities(directory: Path) -> Path:
    """Return the command, run so that it may not raise priorities: standby processes then warm at normal priority.

    At idle priority they would wait until the other tests leave a processor idle.
    """
    program = Path(sys.executable).with_name("emberkeep")
    limited = directory / "emberkeep"
    words = f"setpriv --bounding-set -sys_nice --inh-caps -sys_nice {program}" if can_be_raised() else str(program)
    limited.write_text(f'#!/bin/sh\nexec {words} "$@"\n', encoding="utf-8")
    limited.chmod(0o700)
    return limited


def ready(cluster: Cluster) -> dict[str, tuple[int, int]]:
    """Return how many drivers and executors are ready on each task manager."""
    managers = cluster.ask(lambda client: client.task_managers())
    reports = {manager.id: manager.emberkeep.standbys for manager in managers}
    return {name: (0, 0) if each is None else (each.drivers, each.executors) for name, each in reports.items()}


def wait_until_warm(cluster: Cluster) -> None:
    """Return once each task manager has all its standby processes."""

    def all_ready() -> bool:
        managers = cluster.ask(lambda client: client.task_managers())
        reports = [manager.emberkeep.standbys for manager in managers]
        return all(
            each is not None and (each.drivers, each.executors) == (each.drivers_kept, each.executors_kept)
            for each in reports
        )

    until(all_ready, lambda: f"standbys: {ready(cluster)}", WARM_SECONDS)


def submit(
    cluster: Cluster, script: Path | str, *options: str, arguments: tuple[str, ...] = (), executors: int = 1
) -> JobId:
    """Submit a script with Spark's default sizes, which are those of the first standby processes."""
    words = ("submit", "-q", "--num-executors", str(executors), *options, str(script), *arguments)
    return JobId(cluster.shell.done(*words).out.strip())


def run(cluster: Cluster, script: Path, *arguments: str) -> tuple[JobDetailsInfo, str]:
    """Run a script to its end. Return the job as it was while its executor ran, and its output."""
    job_id = submit(cluster, script, arguments=arguments)
    seen = cluster.wait_for(job_id, lambda job: any(each.registered for each in job.emberkeep.executors), "an executor")
    ended = cluster.wait_for_end(job_id)
    output = cluster.output(job_id)
    assert ended.state is JobStatus.FINISHED, output
    return seen, output


def starts(job: JobDetailsInfo) -> tuple[ProcessStart | None, set[ProcessStart | None]]:
    """Return how the driver and the executors came up."""
    recovery = job.emberkeep.attempts[-1].recovery
    return None if recovery is None else recovery.start, {executor.start for executor in job.emberkeep.executors}
