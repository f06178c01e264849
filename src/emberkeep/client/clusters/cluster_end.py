"""Stops a local cluster: its daemons in order, and the processes that they have started."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.errors import Fatal
from emberkeep.base.started_task_managers import StartedRecord, forget_started, read_started
from emberkeep.client.clusters.cluster_file import ClusterRecord, DaemonRecord
from emberkeep.client.clusters.leftovers import kill_below, processes_below, send, wait_gone

STOP_MARGIN = 35.0  # seconds on top of the jobs' grace, after which a task manager kills what is left


class ClusterEnd:
    """Stops a cluster. ``grace``: seconds for jobs to end by themselves. ``say`` gets each event as a line of text."""

    def __init__(self, layout: StateLayout, grace: float, say: Callable[[str], None]) -> None:
        self._layout = layout
        self._grace = grace
        self._say = say

    def run(self, record: ClusterRecord) -> bool:
        """Stop all processes of the cluster and delete its record. Blocks.

        ``record``: the cluster to stop. Returns False if no process of the cluster was running. Raises Fatal if a
        process cannot be stopped.
        """
        grace = self._grace + STOP_MARGIN
        was_running = is_left(record, self._layout)
        # Stop the JobManager first, so that it does not mistake the end of the other processes for job failures. The
        # jobs continue when the cluster is started again.
        self._end(record.job_managers, "JobManager", STOP_MARGIN)
        started = read_started(self._layout.started_task_managers)
        # After SIGTERM, drivers and executors would continue, for the next task manager in the same directory.
        task_managers = (*record.task_managers, *_live(started))
        self._end(task_managers, "task manager", grace, signal.SIGQUIT)
        self._end(tuple(zookeeper.daemon for zookeeper in record.zookeepers), "ZooKeeper", STOP_MARGIN)
        directories = {daemon.directory for daemon in record.task_managers} | {each.directory for each in started}
        was_running |= bool(processes_below(map(Path, directories)))
        left = kill_below(map(Path, directories))
        left += [daemon.identity for daemon in (*record.daemons, *task_managers) if daemon.is_running]
        if left:
            pids = ", ".join(str(identity.pid) for identity in left)
            raise Fatal(f"processes of the cluster do not end: {pids}", hint="inspect them with `ps`, then try again")
        for each in started:
            forget_started(self._layout.started_task_managers, each.task_manager)
        self._layout.cluster_file.unlink(missing_ok=True)
        return was_running

    def _end(
        self,
        daemons: tuple[DaemonRecord, ...],
        what: str,
        grace: float,
        number: signal.Signals = signal.SIGTERM,
    ) -> None:
        running = [daemon for daemon in daemons if send(daemon.identity, number)]
        if not running:
            return
        self._say(f"stopping {', '.join(daemon.name for daemon in running)}")
        left = wait_gone((daemon.identity for daemon in running), time.monotonic() + grace)
        for identity in left:
            self._say(f"{what} with pid {identity.pid} did not end in {grace:g} s and is killed")
            send(identity, signal.SIGKILL)
        wait_gone(left, time.monotonic() + STOP_MARGIN)


def is_left(record: ClusterRecord, layout: StateLayout) -> bool:
    """True if a daemon of the cluster still runs. If so, start the others at their previous addresses."""
    return any(daemon.is_running for daemon in record.daemons) or bool(
        _live(read_started(layout.started_task_managers))
    )


def has_processes(record: ClusterRecord, layout: StateLayout) -> bool:
    """True if a daemon, a driver or an executor of the cluster still runs."""
    directories = {daemon.directory for daemon in record.task_managers}
    directories |= {each.directory for each in read_started(layout.started_task_managers)}
    return is_left(record, layout) or bool(processes_below(map(Path, directories)))


def _live(started: list[StartedRecord]) -> tuple[DaemonRecord, ...]:
    """Return the live task managers among those that a JobManager has started."""
    live = ((each, each.process()) for each in started)
    return tuple(
        DaemonRecord(name=each.task_manager, identity=identity, directory=each.directory)
        for each, identity in live
        if identity is not None
    )
