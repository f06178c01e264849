"""The control groups of the processes of one supervisor, by the markers with which these were started."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from emberkeep.adapters.cgroups.port import LEAST, Group, Place, Share

log = structlog.get_logger(__name__)

Find = Callable[[str, int], Group | None]
"""Returns the group that was made with this name, if the process with this pid is in it."""


@dataclass
class _Known:
    name: str  # the process's, which changes when a job takes a standby process
    group: Group
    limit_mb: int | None


class ProcessGroups:
    """Makes, finds and removes the groups. May be called from any thread; blocks for a moment.

    Without a place no groups are made, and those that an earlier task manager process made are found and removed.
    """

    def __init__(self, place: Place | None = None, find: Find = lambda _marker, _pid: None) -> None:
        self._place = place
        self._find = find
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}  # by marker
        self._lingering: dict[str, Group] = {}  # in which the kernel still counts processes of a family that has ended

    @property
    def are_made(self) -> bool:
        """True if each process gets a group."""
        return self._place is not None

    def make(self, marker: str, name: str, share: Share | None) -> Group:
        """Make a group for a process that is about to start. ``share``: None for the least. Raises OSError."""
        assert self._place is not None, "the caller asks are_made"  # noqa: S101
        group = self._place.make(marker)
        try:
            group.limit(share or LEAST)
        except OSError:
            group.remove()
            raise
        with self._lock:
            self._known[marker] = _Known(name, group, None if share is None else share.memory_mb)
        return group

    def find(self, marker: str, name: str, pid: int) -> None:
        """Find the group of a process that an earlier task manager process started."""
        group = self._find(marker, pid)
        if group is not None:
            with self._lock:
                self._known[marker] = _Known(name, group, group.memory_limit_mb())

    def hand_over(self, marker: str, name: str, share: Share | None) -> None:
        """Give the group of a standby process the share of the process that it becomes. Raises OSError."""
        with self._lock:
            known = self._known.get(marker)
        if known is not None and share is not None:
            known.group.limit(share)
            known.limit_mb = share.memory_mb
            known.name = name

    def end(self, marker: str) -> int | None:
        """Remove the group of a process that has ended with all that it has started.

        Return the limit in MiB if the kernel has ended one of them because of it, else None.
        """
        with self._lock:
            known = self._known.pop(marker, None)
        if known is not None:
            exceeded = known.limit_mb if known.limit_mb is not None and known.group.memory_kills() else None
            self._lingering[marker] = known.group
        else:
            exceeded = None
        for each, group in list(self._lingering.items()):
            if group.remove():
                self._lingering.pop(each, None)
        return exceeded

    def limited(self) -> frozenset[str]:
        """Return the names of the processes whose memory the kernel limits."""
        with self._lock:
            return frozenset(known.name for known in self._known.values() if known.limit_mb is not None)

    def exceeding(self) -> dict[str, int]:
        """Return the processes of which the kernel has ended one because of the limit, and that limit in MiB."""
        with self._lock:
            known = [each for each in self._known.values() if each.limit_mb is not None]
        return {each.name: each.limit_mb or 0 for each in known if each.group.memory_kills()}

    def close(self) -> None:
        """Remove what is empty. Groups of processes that go on stay, and the next task manager process finds them."""
        for group in self._lingering.values():
            group.remove()
        if self._place is not None:
            self._place.close()
