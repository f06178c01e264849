"""How much memory this process may use: that of the machine, or of the control groups that it is in."""

from __future__ import annotations

from pathlib import Path

import psutil

from emberkeep.diagnosis.machine import MemoryFacts

_GROUPS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
_LIMITS = {"": ("", "memory.max"), "memory": ("memory", "memory.limit_in_bytes")}
"""For cgroup v2, which names no controllers, and for v1: the folder of the hierarchy, and the file with a limit."""


def read_memory(own: Path = _OWN, groups: Path = _GROUPS) -> MemoryFacts:
    """Return what processes of this machine and of this process's groups may use. Blocks.

    ``own`` lists the groups of this process, ``groups`` is where groups are mounted.
    """
    try:
        free = int(psutil.virtual_memory().available)
    except OSError as error:
        return MemoryFacts(free=None, problem=error.strerror or str(error))
    return MemoryFacts(free=min([free, *_limits(own, groups)]))


def _limits(own: Path, groups: Path) -> list[int]:
    """Return the limits of this process's groups and of those around them. What cannot be read is no limit."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            if controller not in _LIMITS:
                continue
            folder, name = _LIMITS[controller]
            root = groups / folder
            group = root / path.lstrip("/")
            for each in (group, *group.parents):
                if each.is_relative_to(root):
                    found.append(_limit(each / name))
    return [limit for limit in found if limit is not None]


def _limit(file: Path) -> int | None:
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None  # "max": no limit
