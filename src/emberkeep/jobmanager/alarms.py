"""One deadline per key, and one loop that calls back when a deadline is due."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable

from emberkeep.base.ids import JobId

SHORTEST_SLEEP = 0.01  # seconds; while the clock stands still, a near deadline comes no nearer
LONGEST_SLEEP = 0.5  # seconds; short enough to notice a stall of the process


class Alarms:
    """Deadlines in seconds on the clock ``now``; ``ring`` is called once for each.

    Moving a deadline is cheap: the old entry in the heap is dropped when it comes up.
    """

    def __init__(self, now: Callable[[], float], ring: Callable[[JobId], None]) -> None:
        self._now = now
        self._ring = ring
        self._due: dict[JobId, float] = {}
        self._heap: list[tuple[float, JobId]] = []
        self._sooner = asyncio.Event()

    def set(self, key: JobId, at: float | None) -> None:
        """Set or move the deadline of ``key``; ``at`` None drops the deadline."""
        if at is None:
            self._due.pop(key, None)
            return
        before = self._due.get(key)
        self._due[key] = at
        # A later deadline needs no entry of its own: the earlier one comes up first and is put back.
        if before is None or at < before:
            if not self._heap or at < self._heap[0][0]:
                self._sooner.set()
            heapq.heappush(self._heap, (at, key))

    async def run(self) -> None:
        """Call ``ring`` for due deadlines until cancelled."""
        while True:
            self._sooner.clear()
            pause = self._ring_due()
            try:
                async with asyncio.timeout(pause):
                    await self._sooner.wait()
            except TimeoutError:
                continue

    def _ring_due(self) -> float:
        now = self._now()
        while self._heap and self._heap[0][0] <= now:
            at, key = heapq.heappop(self._heap)
            due = self._due.get(key)
            if due is None:
                continue
            if due <= now:
                del self._due[key]
                self._ring(key)
            elif due > at:
                heapq.heappush(self._heap, (due, key))
        return max(SHORTEST_SLEEP, min(LONGEST_SLEEP, self._heap[0][0] - now)) if self._heap else LONGEST_SLEEP
