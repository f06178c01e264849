"""Counts what the state gateway has done since its process started. Many threads count."""

from __future__ import annotations

import threading
from dataclasses import dataclass


@dataclass
class StateCounts:
    """Counts; ``…_bytes`` in bytes."""

    hits: int = 0  # opened files that were read from the local copy, at least in part
    misses: int = 0  # opened files that were read from the durable store only
    local_read_bytes: int = 0
    remote_read_bytes: int = 0
    written_bytes: int = 0  # written to the durable store
    kept_bytes: int = 0  # of these, also kept in a local copy
    verify_failures: int = 0  # local copies with wrong bytes
    stale: int = 0  # local copies of a generation that has been replaced, found when a file was opened
    disk_failures: int = 0  # local copies and notes of renames that this node's disk refused
    evictions: int = 0  # local copies dropped for the quota
    purged: int = 0  # local copies dropped as their durable file was deleted or replaced, found by the comparison
    fenced: int = 0  # requests of attempts that are over
    standby_bytes: int = 0  # copied from the durable store for reserved standbys


class StateCounters:
    """Adds up the counts. Any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = StateCounts()

    def add(self, name: str, amount: int = 1) -> None:
        """Add ``amount`` to ``name``, a field of StateCounts."""
        with self._lock:
            setattr(self._counts, name, getattr(self._counts, name) + amount)

    def take(self) -> StateCounts:
        """Return the current counts."""
        with self._lock:
            return StateCounts(**vars(self._counts))
