"""A streaming query whose load is known: what its batches take with a number of executors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from emberkeep.autoscale.machine import Autoscaler
from emberkeep.autoscale.model import AutoscaleSettings, BatchFacts, Resized

MINUTE = 60_000
SETTINGS = AutoscaleSettings(
    minimum=1,
    maximum=16,
    target=0.7,
    batch_ms=10_000,
    catch_up_ms=5 * MINUTE,
    up_pause_ms=MINUTE,
    down_pause_ms=10 * MINUTE,
)


@dataclass
class SimulatedStream:
    """A query that reads at most ``most_rows`` in a batch, and one executor ``speed`` rows in a second.

    ``rate`` returns rows per second at a time in ms. ``fixed_ms``: time of a batch that more executors do not shorten.
    ``start_ms``: time until an executor that was asked for takes tasks; ``available``: executors that the cluster has.
    """

    rate: Callable[[int], float]
    settings: AutoscaleSettings = SETTINGS
    speed: float = 1000.0
    fixed_ms: int = 500
    most_rows: int = 10**12
    interval_ms: int = 10_000
    start_ms: int = 15_000
    available: int = 10**9
    count: int = 1
    now_ms: int = 0
    backlog: float = 0.0
    worst_backlog_seconds: float = 0.0
    executor_ms: int = 0
    changes: list[tuple[int, Resized]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scaler = Autoscaler(self.settings, self.count)
        self._ready: list[tuple[int, int]] = [(0, self.count)]

    @property
    def running(self) -> int:
        return next(count for since, count in reversed(self._ready) if since <= self.now_ms)

    def run(self, until_ms: int) -> None:
        """Run batch after batch."""
        while self.now_ms < until_ms:
            self._batch()
            self.scaler.check_invariants()

    def _batch(self) -> None:
        began, running = self.now_ms, self.running
        rows = min(self.backlog, self.most_rows)
        duration = max(1, self.fixed_ms + round(rows / (running * self.speed) * 1000))
        step = max(duration, -(-duration // self.interval_ms) * self.interval_ms) if self.interval_ms else duration
        step = max(step, 1000)  # Spark looks for new data as often
        arrived = self.rate(began) * step / 1000
        self.backlog += arrived - rows
        unread = max(0.0, self.backlog - arrived)
        processed = rows / duration if rows else running * self.speed / 1000  # rows per ms
        waits_ms = unread / processed if processed else 0.0
        self.worst_backlog_seconds = max(self.worst_backlog_seconds, waits_ms / 1000)
        self.executor_ms += running * step
        self.now_ms += step
        facts = BatchFacts(
            query="counts",
            began_ms=began,
            duration_ms=duration,
            rows=int(rows),
            interval_ms=self.interval_ms,
            backlog_ms=waits_ms,
        )
        resized = self.scaler.look([facts], running, self.now_ms)
        if resized is not None:
            self.changes.append((self.now_ms, resized))
            held = min(resized.count, self.available)
            delay = self.start_ms if held > running else 0
            self._ready = [(0, running), (self.now_ms + delay, held)]
