"""The standby processes that can be taken, as the task managers' logs tell."""

from __future__ import annotations

import json
from pathlib import Path

_READY, _TAKEN, _ENDED = "a standby process is ready", "a job took a standby process", "ending a standby process"


def ready_standbys(state: Path) -> dict[str, int]:
    """Return the pids of the ready standby processes of a cluster, by "task manager/standby".

    ``state``: the cluster's state directory. A process that ended by itself still counts.
    """
    found = {}
    for log in state.glob("taskmanagers/*/logs/taskmanager.log"):
        manager = log.parents[1].name
        found.update({f"{manager}/{standby}": pid for standby, pid in _ready_in(log).items()})
    return found


def _ready_in(log: Path) -> dict[str, int]:
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
