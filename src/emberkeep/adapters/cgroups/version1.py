"""Control groups of version 1: each controller has a hierarchy of its own.

The kernel ends one process of a group that exceeds its memory, the largest, and leaves the others running.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from emberkeep.adapters.cgroups.files import PROCESSES, GroupFiles, counter, processes_in, remove_all, write_if_there
from emberkeep.adapters.cgroups.port import Share

_MIB = 1024**2
_PIECES = 4 * _MIB  # the kernel gives memory out in pieces of at most 2 MiB: below this, the next one was refused
_UNLIMITED = 2**62  # bytes: the kernel writes the largest number of pages for no limit
_PER_CORE, _LEAST, _MOST = 1024, 2, 262144  # of cpu.shares


class GroupV1:
    """Implements Group. ``memory`` and ``cpu``: its directories, which are one if the hierarchies are."""

    def __init__(self, memory: Path, cpu: Path, files: GroupFiles) -> None:
        self._memory, self._cpu = memory, cpu
        self._files = files

    def limit(self, share: Share) -> None:
        self._files.write(self._cpu / "cpu.shares", _shares(share.cores))
        limit = "-1" if share.memory_mb is None else str(share.memory_mb * _MIB)
        with_swap = self._memory / "memory.memsw.limit_in_bytes"  # never below the limit without swap
        if share.memory_mb is None:
            write_if_there(self._files, with_swap, limit)
        self._files.write(self._memory / "memory.limit_in_bytes", limit)
        if share.memory_mb is not None:
            write_if_there(self._files, with_swap, limit)

    def join(self, pid: int) -> None:
        for directory in dict.fromkeys((self._memory, self._cpu)):
            self._files.write(directory / PROCESSES, str(pid))

    def memory_limit_mb(self) -> int | None:
        try:
            limit = int(self._files.read(self._memory / "memory.limit_in_bytes"))
        except (OSError, ValueError):
            return None
        return None if limit >= _UNLIMITED else limit // _MIB

    def memory_kills(self) -> int:
        if not self._was_at_its_limit():
            return 0
        return counter(self._files, self._memory / "memory.oom_control", "oom_kill")  # Linux 4.13 and newer

    def _was_at_its_limit(self) -> bool:
        """True unless the group has never used as much memory as it may. Not all kernels count what they refuse."""
        try:
            limit = int(self._files.read(self._memory / "memory.limit_in_bytes"))
            most = int(self._files.read(self._memory / "memory.max_usage_in_bytes"))
        except (OSError, ValueError):
            return True
        return most + _PIECES >= limit

    def remove(self) -> bool:
        removed = [remove_all(self._files, directory) for directory in dict.fromkeys((self._memory, self._cpu))]
        return all(removed)


class PlaceV1:
    """Implements Place below the task manager's own groups, ``memory`` and ``cpu``."""

    version = 1

    def __init__(self, memory: Path, cpu: Path, files: GroupFiles, cores: int) -> None:
        """``cores``: of the task manager, the weight of all its processes together. Raises OSError."""
        self._memory, self._cpu = memory, cpu
        self._files = files
        try:
            for directory in (memory, cpu):
                files.make(directory)
            with contextlib.suppress(OSError):  # it is always 1 in new kernels
                write_if_there(files, memory / "memory.use_hierarchy", "1")
            files.write(cpu / "cpu.shares", _shares(cores))
        except OSError:
            self.close()
            raise

    def make(self, name: str) -> GroupV1:
        group = self._group(name)
        try:
            for directory in (self._memory / name, self._cpu / name):
                self._files.make(directory)
        except OSError:
            group.remove()
            raise
        return group

    def unused(self) -> Mapping[str, GroupV1]:
        names = {each.name for place in (self._memory, self._cpu) for each in self._files.below(place)}
        return {name: self._group(name) for name in sorted(names) if self._is_empty(name)}

    def close(self) -> None:
        for directory in dict.fromkeys((self._memory, self._cpu)):
            with contextlib.suppress(OSError):  # groups of processes that go on are in it
                self._files.remove(directory)

    def _group(self, name: str) -> GroupV1:
        return GroupV1(self._memory / name, self._cpu / name, self._files)

    def _is_empty(self, name: str) -> bool:
        for place in (self._memory, self._cpu):
            with contextlib.suppress(FileNotFoundError):
                if self._files.below(place / name) or processes_in(self._files, place / name):
                    return False
        return True


def group_from(paths: Mapping[str, Path], files: GroupFiles) -> GroupV1 | None:
    """Return the group whose directories these are, by controller; None if one is missing."""
    if "memory" not in paths or "cpu" not in paths:
        return None
    return GroupV1(paths["memory"], paths["cpu"], files)


def _shares(cores: int) -> str:
    return str(min(max(cores * _PER_CORE, _LEAST), _MOST))
