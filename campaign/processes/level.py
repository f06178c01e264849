"""The level ``processes``: histories of real clusters, one after the other, until the time is over."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from campaign.kept import write_record
from campaign.processes.cluster import RealCluster, names_of
from campaign.processes.figures import LONGEST_VIOLATION, FailedHistory, ProcessFigures
from campaign.processes.history import play_history
from campaign.processes.hosts import Hosts
from campaign.processes.places import Loopback
from campaign.processes.plan import HistoryPlan, draw_plan
from campaign.processes.record import HistoryRecord, judge_record, read_record
from campaign.processes.transfers.caches import RETENTION
from campaign.processes.transfers.runtime import starting, stub_java
from emberkeep.base.configuration.options.blobs import BLOB_HA_STORAGE, BLOB_RETENTION
from emberkeep.base.configuration.options.high_availability import ZOOKEEPER_INSECURE_ACCESS
from emberkeep.base.configuration.options.jobs import EXECUTOR_BACKOFF_MAX, EXECUTOR_FAILURES
from emberkeep.base.configuration.options.local_state import LOCAL_RECOVERY
from emberkeep.base.configuration.options.security import INSECURE_NETWORK, TOKEN_FILE
from emberkeep.base.errors import EmberkeepError
from tests.integration.hosts.requirements import why_not

HISTORY_SECONDS = 40.0
FAULTS_PER_SECOND = 3.0
HISTORIES_PER_CLUSTER = 10
JOB_MANAGERS = TASK_MANAGERS = 3
_NOWHERE = "/dev/null/blobs"  # task managers that cannot read the HA store fetch files of jobs over the network
# Executors end with what strikes their node, and must be started again at once.
_EXECUTORS = {"taskmanager.numberOfTaskSlots": "2", EXECUTOR_FAILURES.key: "1000", EXECUTOR_BACKOFF_MAX.key: "1s"}
CLUSTERS_WITH_ONE = 3  # of so many clusters, one has a single ZooKeeper server; the others have three
FAILURES_AT_MOST = 10
Shown = Callable[[str], None]


def plan_of(seed: int, number: int, *, hosted: bool = False) -> HistoryPlan:
    """Return a history of a campaign. ``hosted``: its members have hosts whose network can fail."""
    return draw_plan(f"{seed}-{number}", HISTORY_SECONDS, FAULTS_PER_SECOND, hosted=hosted)


async def run(
    figures: ProcessFigures,
    seed: int,
    folder: Path,
    until: float,
    show: Shown,
    took: Callable[[], bool],
) -> None:
    """Continue with the next history until a time (of ``time.monotonic``), or ``FAILURES_AT_MOST`` have failed.

    ``folder``: for the records of those that fail. ``took``: called after each history; it ends the level if it returns
    True.
    """
    is_over = False
    without_hosts = why_not()
    if without_hosts:
        show(f"no faults of the network: {without_hosts}")
    while not is_over and time.monotonic() < until and len(figures.failures) < FAILURES_AT_MOST:
        async with AsyncExitStack() as stack:
            place = Path(tempfile.mkdtemp(prefix="emberkeep-processes-"))
            stack.callback(shutil.rmtree, place, ignore_errors=True)
            # With several servers, a client may be connected to one that is behind, and a quorum may be lost.
            zookeepers = 1 if figures.histories // HISTORIES_PER_CLUSTER % CLUSTERS_WITH_ONE == 1 else 3
            is_hosted = not without_hosts and figures.histories // HISTORIES_PER_CLUSTER % 2 == 0
            hosts = stack.enter_context(_hosts(place, zookeepers)) if is_hosted else None
            cluster = _cluster(place, zookeepers, hosts)
            await stack.enter_async_context(cluster)
            for _ in range(HISTORIES_PER_CLUSTER):
                number, began = figures.histories, time.monotonic()
                try:
                    plan = plan_of(seed, number, hosted=is_hosted)
                    record = await play_history(cluster, plan, place / f"jobs-{number}", hosts)
                except (EmberkeepError, TimeoutError) as error:
                    shown = why_not_played(error)
                    logs = keep_logs(folder, number, cluster.directory)
                    figures.not_judged(FailedHistory(number, shown, str(logs)), time.monotonic() - began)
                    show(f"history {number}: {shown}\nlogs: {logs}")
                    is_over = took()
                    break
                violations = await asyncio.to_thread(_judge, figures, record, began)
                if violations:
                    kept = _keep(folder, number, record, cluster)
                    shown = violations[0][:LONGEST_VIOLATION]
                    figures.failures.append(FailedHistory(number, shown, str(kept)))
                    show(f"history {number}: {shown}\nkept as {kept}; look again: python -m campaign --replay {kept}")
                is_over = took()
                show(f"{figures.histories} histories, {sum(figures.faults.values())} faults, {_failed(figures)}")
                # What has failed may have left the cluster in a state that spoils the next history.
                if violations or is_over or time.monotonic() > until:
                    break


def _hosts(place: Path, zookeepers: int) -> Hosts:
    names = names_of(JOB_MANAGERS, TASK_MANAGERS, zookeepers)
    return Hosts(place / "hosts", names, slow=[name for name in names if name.startswith("tm-")])


def _cluster(place: Path, zookeepers: int, hosts: Hosts | None) -> RealCluster:
    """Return a cluster whose task managers have state gateways. ``hosts``: for its members; None: on loopback."""
    settings = {LOCAL_RECOVERY.key: "true", **_EXECUTORS}
    if hosts is not None:
        settings |= dict.fromkeys((INSECURE_NETWORK.key, ZOOKEEPER_INSECURE_ACCESS.key), "true")
        settings[TOKEN_FILE.key] = str(place / "token")
    cluster = RealCluster(
        place / "cluster",
        job_managers=JOB_MANAGERS,
        task_managers=TASK_MANAGERS,
        zookeepers=zookeepers,
        settings=settings,
        places=hosts or Loopback(),
        starts=starting(stub_java(place / "java")),
    )
    for number, task_manager in enumerate(cluster.task_managers):
        task_manager.settings[BLOB_RETENTION.key] = f"{RETENTION:g}s"
        if hosts is not None or number:
            task_manager.settings[BLOB_HA_STORAGE.key] = _NOWHERE
    return cluster


def _judge(figures: ProcessFigures, record: HistoryRecord, began: float) -> tuple[str, ...]:
    judgement = judge_record(record)
    figures.took(record, judgement, time.monotonic() - began)
    return judgement.violations


def _failed(figures: ProcessFigures) -> str:
    return f"{len(figures.failures)} failed, {figures.undecided} of {figures.objects} objects undecided"


def _keep(folder: Path, number: int, record: HistoryRecord, cluster: RealCluster) -> Path:
    """Write the record, and beside it what the processes have logged."""
    kept = folder / f"history-{number}.json"
    write_record(kept, record)
    keep_logs(folder, number, cluster.directory)
    return kept


def why_not_played(error: EmberkeepError | TimeoutError) -> str:
    """Return why a history could not be played to its end, as its failure says it."""
    return f"the cluster does not start, or does not recover: {str(error) or 'not in time'}"[:LONGEST_VIOLATION]


def keep_logs(folder: Path, number: int, cluster: Path) -> Path:
    """Copy what the processes of a cluster have logged. Return the directory. ``cluster``: the cluster's directory."""
    kept = folder / f"history-{number}-logs"
    kept.mkdir(parents=True, exist_ok=True)
    for log in (*cluster.rglob("*.log"), *cluster.rglob("*.err")):
        shutil.copyfile(log, kept / str(log.relative_to(cluster)).replace(os.sep, "_"))
    return kept


def replay(path: Path, show: Shown, *, verbose: bool) -> int:
    """Judge a kept history again, and show its faults. Return 1 if it has violations."""
    record = read_record(path)
    began = min((strike.at for strike in record.strikes), default=0.0)
    if verbose:
        for strike in sorted(record.strikes, key=lambda each: each.at):
            show(f"{strike.at - began:7.3f}–{strike.until - began:.3f} {strike.kind}: {strike.target}")
    judgement = judge_record(record)
    for violation in judgement.violations:
        show(f"violation: {violation}")
    return 1 if judgement.violations else 0
