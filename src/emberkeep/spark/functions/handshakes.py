"""Bounds the connections whose peer has not proven yet that it is a worker of the job."""

from __future__ import annotations

import threading
from collections import Counter

MOST = 512  # at once; a worker connects once, and its handshake takes milliseconds
MOST_OF_ONE_ADDRESS = 128  # a node has one worker for each core


class Handshakes:
    """Counts unproven connections, in total and per address. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: Counter[str] = Counter()

    def begin(self, address: str) -> bool:
        """Count a new connection. Return False, and count nothing, if there are too many."""
        with self._lock:
            if self._open[address] >= MOST_OF_ONE_ADDRESS or self._open.total() >= MOST:
                return False
            self._open[address] += 1
            return True

    def end(self, address: str) -> None:
        """Uncount a connection: its peer has proven itself, or was refused."""
        with self._lock:
            self._open[address] -= 1
            self._open += Counter()  # drop addresses without a connection
