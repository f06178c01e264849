"""What warm standby processes cost while they wait: memory of each kind, and processor time of the pool."""

from __future__ import annotations

import time
from contextlib import suppress

import psutil

from bench.measure import Figure, Goal
from emberkeep.adapters.processes.table import MARKER_VARIABLE

_STANDBY = "standby-"
_DRIVER = "emberkeep.daemons.driver.standby"
_IDLE_SECONDS = 20.0
_MIB = 1024**2


def waiting_costs(directory: str) -> list[Figure]:
    """Measure the standby processes of the cluster in ``directory``, all of which are warm.

    Memory is the proportional set size: pages that processes share are divided among them.
    """
    groups = _standbys(directory)
    drivers: list[float] = []
    executors: list[float] = []
    for processes in groups:
        pss = sum(process.memory_full_info().pss for process in processes) / _MIB
        is_driver = any(_DRIVER in process.cmdline() for process in processes)
        (drivers if is_driver else executors).append(pss)
    before = _processor_seconds(groups)
    time.sleep(_IDLE_SECONDS)
    share = (_processor_seconds(groups) - before) / _IDLE_SECONDS
    return [
        Figure("memory of a warm driver: JVM and Python (PSS)", "MiB", tuple(drivers), Goal(at_most=450.0)),
        Figure("memory of a warm executor: JVM and Python (PSS)", "MiB", tuple(executors), Goal(at_most=300.0)),
        Figure("processor time of the whole pool while it waits", "cores", (share,), Goal(at_most=0.01)),
    ]


def _standbys(directory: str) -> list[list[psutil.Process]]:
    """Return the processes of each standby, which carry the same marker."""
    groups: dict[str, list[psutil.Process]] = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            environment = process.environ()
            marker = environment.get(MARKER_VARIABLE, "")
            if _STANDBY in marker and environment.get("SPARK_LOCAL_DIRS", "").startswith(directory):
                groups.setdefault(marker, []).append(process)
    return list(groups.values())


def _processor_seconds(groups: list[list[psutil.Process]]) -> float:
    total = 0.0
    for processes in groups:
        for process in processes:
            with suppress(psutil.Error):
                times = process.cpu_times()
                total += times.user + times.system
    return total
