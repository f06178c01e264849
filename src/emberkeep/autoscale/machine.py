"""The autoscaler of one job as a pure state machine: progress of its queries goes in, numbers of executors come out.

A query's *load* is the share of its time in which it works, plus the share that it needs to read its backlog in
time. The machine assumes that all executors share the work evenly, which is the best that more executors can do. These
rules hold at every step:

- The number stays within the bounds, at most doubles, and is at most halved.
- At most one change is decided within a pause, and none from batches that began with another number of executors.
- Executors are added above one load, and removed only if the load of those that stay will be below a clearly lower
  one. So a constant load makes the number rise or fall, never both.
- Executors that did not help are not followed by more for the same load.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from emberkeep.autoscale.model import AutoscaleSettings, BatchFacts, Resized

QUERIES_JUDGED = 100  # of one job; a script may start any number of queries
_SAMPLES_KEPT = 1000  # of one query
_FORGET_MS = 300_000  # without a report of the query: it has ended
_UP_BATCHES = 3  # that must agree before executors are added; a long one counts for several
_DOWN_BATCHES = 5  # that must agree before executors are removed
_HIGH = 1.1  # times the target: above it, executors are added
_LOW = 0.8  # times the target: executors are removed down to this load
_HELPED = 1.1  # added executors have helped if the load has fallen, or the rate of rows has risen, by this factor
_GROWN = 1.25  # times the load at which executors have not helped: above it, more are tried again


@dataclass(frozen=True)
class _Sample:
    began_ms: int
    load: float
    rate: float  # rows for each ms of work
    weight: float  # 1, or more for a batch that took the time of several


@dataclass
class _Query:
    samples: deque[_Sample] = field(default_factory=lambda: deque(maxlen=_SAMPLES_KEPT))
    allowed_ms: int = 0  # for one batch

    def newest(self, weight: float) -> list[_Sample]:
        """Return the newest batches that have this weight together; nothing if all have not."""
        newest = []
        for sample in reversed(self.samples):
            newest.append(sample)
            weight -= sample.weight
            if weight <= 0:
                return newest
        return []

    def since(self, began_ms: int) -> list[_Sample]:
        return [sample for sample in self.samples if sample.began_ms >= began_ms]

    def has_ended(self, now_ms: int) -> bool:
        newest = self.samples[-1]
        return now_ms - newest.began_ms > max(_FORGET_MS, 3 * self.allowed_ms * newest.weight)


class Autoscaler:
    """The autoscaler of one application. ``count``: executors that it begins with."""

    def __init__(self, settings: AutoscaleSettings, count: int) -> None:
        self.settings = settings
        self.count = self._bounded(count)
        self._running = 0
        self._looked_ms = 0
        self._steady_ms: int | None = None  # since when this many executors run
        self._changed_ms: int | None = None
        self._queries: dict[str, _Query] = {}
        self._before: tuple[_Sample, int] | None = None  # a batch and its executors before they were added
        self._useless = 0.0  # load at which more executors have not helped; 0: none

    def look(self, batches: Iterable[BatchFacts], running: int, now_ms: int) -> Resized | None:
        """Note new batches, the oldest of each query first, and decide. ``running``: executors that take tasks now."""
        if now_ms < self._looked_ms:  # the clock was set back: what is known has times that have not come yet
            self._steady_ms, self._changed_ms = None, now_ms
        self._looked_ms = now_ms
        if running != self._running or self._steady_ms is None:
            self._running, self._steady_ms = running, now_ms
            self._queries.clear()
        if self._changed_ms is None:
            self._changed_ms = now_ms
        for batch in batches:
            self._note(batch)
        self._queries = {name: query for name, query in self._queries.items() if not query.has_ended(now_ms)}
        if not running:
            return None
        return self._grown(now_ms) or self._shrunk(now_ms)

    def check_invariants(self) -> None:
        """Raise AssertionError if the state contradicts itself. For tests and the simulator."""
        assert self.settings.minimum <= self.count <= self.settings.maximum  # noqa: S101
        assert len(self._queries) <= QUERIES_JUDGED  # noqa: S101

    def _note(self, batch: BatchFacts) -> None:
        if self._steady_ms is None or not self._steady_ms <= batch.began_ms <= self._looked_ms:
            return
        if batch.query not in self._queries and len(self._queries) >= QUERIES_JUDGED:
            return
        allowed = batch.interval_ms or self.settings.batch_ms
        load = batch.duration_ms / allowed + batch.backlog_ms / self.settings.catch_up_ms
        query = self._queries.setdefault(batch.query, _Query())
        rate = batch.rows / max(1, batch.duration_ms)
        query.samples.append(_Sample(batch.began_ms, load, rate, max(1.0, batch.duration_ms / allowed)))
        query.allowed_ms = allowed

    def _grown(self, now_ms: int) -> Resized | None:
        """Add executors for the query with the highest load, judged by the lowest of its newest batches."""
        target, running = self.settings.target, self._running
        newest = {name: query.newest(_UP_BATCHES) for name, query in self._queries.items()}
        least = {name: min(batches, key=lambda each: each.load) for name, batches in newest.items() if batches}
        if not least:
            return None
        name = max(least, key=lambda each: least[each].load)
        load = least[name].load
        self._judge_last_growth(least[name])
        wanted = self._bounded(min(math.ceil(running * load / target), 2 * running))
        is_useless = bool(self._useless) and load < self._useless * _GROWN
        if (
            load <= target * _HIGH
            or wanted <= self.count
            or is_useless
            or self._pauses(now_ms, self.settings.up_pause_ms)
        ):
            return None
        self._before = (least[name], running)
        return self._change(wanted, name, load, now_ms)

    def _judge_last_growth(self, batch: _Sample) -> None:
        if self._before is None or self._running <= self._before[1]:
            return
        before, _ = self._before
        has_helped = batch.load * _HELPED < before.load or batch.rate > before.rate * _HELPED
        self._useless = 0.0 if has_helped else batch.load
        self._before = None

    def _shrunk(self, now_ms: int) -> Resized | None:
        """Remove executors if none of the batches within the pause has needed them."""
        settings, running = self.settings, self._running
        if not self._queries or self._pauses(now_ms, settings.down_pause_ms):
            return None
        since = now_ms - settings.down_pause_ms
        worst, busiest = 0.0, ""
        for name, query in self._queries.items():
            agreeing = query.newest(_DOWN_BATCHES)
            if not agreeing:
                return None
            load = max(batch.load for batch in (*agreeing, *query.since(since)))
            if load >= worst:
                worst, busiest = load, name
        wanted = self._bounded(max(math.ceil(running * worst / (settings.target * _LOW)), math.ceil(running / 2)))
        if wanted >= self.count:
            return None
        self._before, self._useless = None, 0.0
        return self._change(wanted, busiest, worst, now_ms)

    def _change(self, count: int, query: str, load: float, now_ms: int) -> Resized:
        before, self.count, self._changed_ms = self.count, count, now_ms
        self._queries.clear()
        relation = "above" if count > before else "below"
        return Resized(
            count, f"query {query} needs {load:.0%} of its time, {relation} the target of {self.settings.target:.0%}"
        )

    def _pauses(self, now_ms: int, pause_ms: int) -> bool:
        return self._changed_ms is not None and now_ms - self._changed_ms < pause_ms

    def _bounded(self, count: int) -> int:
        return max(self.settings.minimum, min(self.settings.maximum, count))
