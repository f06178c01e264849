"""What the state gateway has done since its process started, counted from many threads."""

from __future__ import annotations

import threading
from dataclasses import dataclass


@dataclass
class StateCounts:
    """Whole numbers; ``…_bytes`` in bytes."""

    hits: int = 0  # files opened that were read from the local copy, at least in part
    misses: int = 0  # files opened that were read from the durable store alone
    local_read_bytes: int = 0
    remote_read_bytes: int = 0
    written_bytes: int = 0  # given to the durable store
    kept_bytes: int = 0  # of these, with a local copy
    verify_failures: int = 0  # local copies whose bytes were wrong
    stale: int = 0  # local copies of a generation that is over
    disk_failures: int = 0  # local copies and notes of renames that this node's disk refused
    evictions: int = 0  # local copies dropped for the quota
    purged: int = 0  # local copies dropped as their durable file was gone
    fenced: int = 0  # requests of attempts that are over


class StateCounters:
    """Adds up; any thread may."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = StateCounts()

    def add(self, name: str, amount: int = 1) -> None:
        """``name``: a field of StateCounts."""
        with self._lock:
            setattr(self._counts, name, getattr(self._counts, name) + amount)

    def take(self) -> StateCounts:
        """As of now."""
        with self._lock:
            return StateCounts(**vars(self._counts))
