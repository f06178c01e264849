"""Lost instances of functions, until a complete savepoint has reported them."""

from __future__ import annotations

from collections import deque

_MOST_KEPT = 20


class InstanceLosses:
    """The losses that no complete savepoint has reported. Not thread-safe: the caller must hold a lock.

    A savepoint reports the losses that occurred before its snapshot; the next savepoint reports later ones.
    """

    def __init__(self) -> None:
        self._kept: deque[tuple[int, str]] = deque(maxlen=_MOST_KEPT)
        self._count = 0
        self._count_at_snapshot = 0

    def add(self, loss: str) -> None:
        """Add a loss. ``loss``: text that names the instance and the reason."""
        self._count += 1
        self._kept.append((self._count, loss))

    def unreported(self) -> list[str]:
        """Return the losses that no complete savepoint has reported, oldest first; only the newest 20 are kept."""
        return [loss for _, loss in self._kept]

    def snapshot_taken(self) -> None:
        """Record that a snapshot was taken: its savepoint will report all losses recorded so far."""
        self._count_at_snapshot = self._count

    def savepoint_complete(self) -> None:
        """Remove the losses that the newest snapshot's savepoint has reported. Call this when it is complete."""
        while self._kept and self._kept[0][0] <= self._count_at_snapshot:
            self._kept.popleft()
