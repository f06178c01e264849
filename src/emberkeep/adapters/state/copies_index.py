"""An index of the local copies: by path, by directory, by owner, and by last use.

It is in memory, for one thread at a time, and is rebuilt from the disk at each start.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from emberkeep.base.ids import AllocationId, JobId
from emberkeep.local_state.model import CopyRecord, StatePath, disk_bytes

Owner: TypeAlias = tuple[JobId, AllocationId]


@dataclass(frozen=True)
class Copy:
    """A local copy. ``file`` is its name in its owner's directory, which no other copy ever gets."""

    record: CopyRecord
    file: str

    @property
    def owner(self) -> Owner:
        return self.record.job_id, self.record.allocation_id


class CopyIndex:
    def __init__(self) -> None:
        self._copies: OrderedDict[StatePath, Copy] = OrderedDict()  # least recently used first
        self._below: dict[tuple[str, str], set[str]] = {}  # root and directory, to the names of the directory's entries
        self._owned: dict[Owner, dict[StatePath, None]] = {}
        self.used = 0  # bytes of disk that all copies take

    def add(self, copy: Copy) -> Copy | None:
        """Add a copy; return the copy at the same path that it replaces, if any."""
        path = copy.record.path
        replaced = self.remove(path)
        self._copies[path] = copy
        self._owned.setdefault(copy.owner, {})[path] = None
        self.used += disk_bytes(copy.record)
        name = path.name
        while name:
            directory, _, leaf = name.rpartition("/")
            entries = self._below.setdefault((path.root, directory), set())
            if leaf in entries:
                break
            entries.add(leaf)
            name = directory
        return replaced

    def hand_over(self, copy: Copy, target: AllocationId) -> None:
        """Change the copy's owner to another allocation of its job, and nothing else."""
        path = copy.record.path
        del self._owned[copy.owner][path]
        if not self._owned[copy.owner]:
            del self._owned[copy.owner]
        given = Copy(msgspec.structs.replace(copy.record, allocation_id=target), copy.file)
        self._copies[path] = given
        self._owned.setdefault(given.owner, {})[path] = None

    def remove(self, path: StatePath) -> Copy | None:
        copy = self._copies.pop(path, None)
        if copy is None:
            return None
        owned = self._owned[copy.owner]
        del owned[path]
        if not owned:
            del self._owned[copy.owner]
        self.used -= disk_bytes(copy.record)
        self._forget_name(path)
        return copy

    def _forget_name(self, path: StatePath) -> None:
        name = path.name
        while name and (path.root, name) not in self._below:
            directory, _, leaf = name.rpartition("/")
            entries = self._below[path.root, directory]
            entries.discard(leaf)
            if entries:
                break
            del self._below[path.root, directory]
            if StatePath(root=path.root, name=directory) in self._copies:
                break
            name = directory

    def find(self, path: StatePath) -> Copy | None:
        return self._copies.get(path)

    def touch(self, path: StatePath) -> None:
        if path in self._copies:
            self._copies.move_to_end(path)

    def below(self, path: StatePath) -> list[Copy]:
        """Return the copy at this path, and all copies below it if it is a directory."""
        found: list[Copy] = []
        waiting = [path.name]
        while waiting:
            name = waiting.pop()
            copy = self._copies.get(StatePath(root=path.root, name=name))
            if copy is not None:
                found.append(copy)
            prefix = f"{name}/" if name else ""
            waiting += [prefix + leaf for leaf in self._below.get((path.root, name), ())]
        return found

    def owned(self, owner: Owner) -> list[Copy]:
        return [self._copies[path] for path in self._owned.get(owner, ())]

    def owners(self, job_id: JobId) -> list[Owner]:
        return [owner for owner in self._owned if owner[0] == job_id]

    def __iter__(self) -> Iterator[Copy]:
        return iter(self._copies.values())
