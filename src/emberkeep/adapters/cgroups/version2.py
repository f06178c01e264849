"""Control groups of version 2: one hierarchy, in which a group with controllers for its children has no processes.

The kernel ends all processes of a group that exceeds its memory.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from emberkeep.adapters.cgroups.files import PROCESSES, GroupFiles, counter, processes_in, remove_all, write_if_there
from emberkeep.adapters.cgroups.port import Share

LEAF: Final = "emberkeep-agent"
"""The group that a task manager moves into, because the group that it was started in gets children."""
CONTROLLERS: Final = frozenset({"cpu", "memory"})
_MIB = 1024**2
_PER_CORE, _LEAST, _MOST = 100, 1, 10000  # of cpu.weight
_MOVES = 10  # rounds in which processes are moved: they may start others in the meantime


class GroupV2:
    """Implements Group."""

    def __init__(self, path: Path, files: GroupFiles) -> None:
        self._path = path
        self._files = files

    def limit(self, share: Share) -> None:
        limited = share.memory_mb is not None
        self._files.write(self._path / "cpu.weight", _weight(share.cores))
        # Before the limit: with it, all processes end together, and none is swapped out to stay below the limit.
        write_if_there(self._files, self._path / "memory.oom.group", "1" if limited else "0")
        write_if_there(self._files, self._path / "memory.swap.max", "0" if limited else "max")
        self._files.write(self._path / "memory.max", "max" if share.memory_mb is None else str(share.memory_mb * _MIB))

    def join(self, pid: int) -> None:
        self._files.write(self._path / PROCESSES, str(pid))

    def memory_limit_mb(self) -> int | None:
        try:
            return int(self._files.read(self._path / "memory.max")) // _MIB
        except (OSError, ValueError):  # "max"
            return None

    def memory_kills(self) -> int:
        events = self._path / "memory.events"
        return counter(self._files, events, "oom_kill") if counter(self._files, events, "oom") else 0

    def remove(self) -> bool:
        return remove_all(self._files, self._path)


class PlaceV2:
    """Implements Place in ``path``, a group with controllers for its children and without processes."""

    version = 2

    def __init__(self, path: Path, files: GroupFiles, cores: int) -> None:
        """``cores``: of the task manager, the weight of all its processes together. Raises OSError."""
        self._path = path
        self._files = files
        files.make(path)
        try:
            files.write(path / "cpu.weight", _weight(cores))
            enable_controllers(path, files)
        except OSError:
            self.close()
            raise

    def make(self, name: str) -> GroupV2:
        self._files.make(self._path / name)
        return GroupV2(self._path / name, self._files)

    def unused(self) -> Mapping[str, GroupV2]:
        return {each.name: GroupV2(each, self._files) for each in self._files.below(self._path) if self._is_empty(each)}

    def close(self) -> None:
        with contextlib.suppress(OSError):  # groups of processes that go on are in it
            self._files.remove(self._path)

    def _is_empty(self, path: Path) -> bool:
        return counter(self._files, path / "cgroup.events", "populated") == 0


def enable_controllers(path: Path, files: GroupFiles) -> None:
    """Let the groups below ``path`` have limits. Raises OSError: EBUSY if there are processes in ``path`` itself."""
    enabled = set(files.read(path / "cgroup.subtree_control").split())
    if not enabled >= CONTROLLERS:
        files.write(path / "cgroup.subtree_control", " ".join(f"+{each}" for each in sorted(CONTROLLERS - enabled)))


def enable_below(own: Path, files: GroupFiles) -> Path:
    """Let the group that the task manager was started in have children with limits. Return that group.

    ``own``: the group that this process is in. All processes of that group move into a leaf if the kernel asks for
    that: version 2 allows no processes beside groups with limits. Raises OSError.
    """
    top = own.parent if own.name == LEAF else own
    try:
        enable_controllers(top, files)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
    else:
        return top
    files.make(top / LEAF)
    for _ in range(_MOVES):
        staying = processes_in(files, top)
        for pid in staying:
            with contextlib.suppress(ProcessLookupError):
                files.write(top / LEAF / PROCESSES, str(pid))
        if not staying:
            break
    enable_controllers(top, files)
    return top


def _weight(cores: int) -> str:
    return str(min(max(cores * _PER_CORE, _LEAST), _MOST))
