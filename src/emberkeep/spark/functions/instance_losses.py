"""Which instances of functions were lost, until a complete savepoint has told of them."""

from __future__ import annotations

from collections import deque

_MOST_KEPT = 20


class InstanceLosses:
    """The caller locks.

    A savepoint tells of the losses before its snapshot. A loss after it, while the savepoint is written, is for the
    next one to tell of.
    """

    def __init__(self) -> None:
        self._kept: deque[tuple[int, str]] = deque(maxlen=_MOST_KEPT)
        self._count = 0
        self._count_at_snapshot = 0

    def add(self, loss: str) -> None:
        """``loss``: which instance, and why, in words."""
        self._count += 1
        self._kept.append((self._count, loss))

    def untold(self) -> list[str]:
        """All losses that no complete savepoint has told of, oldest first; the newest ones where there are many."""
        return [loss for _, loss in self._kept]

    def snapshot_taken(self) -> None:
        """The savepoint with this snapshot tells of all losses until now."""
        self._count_at_snapshot = self._count

    def savepoint_complete(self) -> None:
        """The savepoint with the newest snapshot is complete."""
        while self._kept and self._kept[0][0] <= self._count_at_snapshot:
            self._kept.popleft()
