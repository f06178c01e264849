"""A streaming query with a known load in a scripted driver: what its batches take with the executors that it has."""

from __future__ import annotations

import msgspec

from emberkeep.autoscale.model import AutoscaleSettings
from emberkeep.jobs.progress.records import ProgressRecord, SourceProgress


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The rows that arrive in a second, one number for each ``step`` seconds of virtual time, again and again.

    ``speed``: rows that an executor reads in a second. ``fixed``: seconds of a batch that more executors do not
    shorten. ``interval``: of the query's trigger, in seconds.
    """

    rates: tuple[float, ...]
    step: float
    speed: float
    fixed: float
    interval: float
    autoscale: AutoscaleSettings

    def arrived(self, since: float, until: float) -> float:
        """Return how many rows arrive between two moments, which are no more than a few steps apart."""
        rows = 0.0
        while since < until:
            end = min(until, (since // self.step + 1) * self.step)
            rows += self.rates[int(since // self.step) % len(self.rates)] * (end - since)
            since = end
        return rows


class LoadedQuery:
    """The query, from ``now`` on. All times are virtual seconds."""

    def __init__(self, load: Load, now: float) -> None:
        self.load = load
        self.longest_batch = 0.0  # seconds
        self._read_until = now
        self._backlog = 0.0
        self._next_at = now
        self._number = 0
        self._running: tuple[float, float, float] | None = None  # when the batch began and ends, its rows

    def ended(self, now: float, executors: int, now_ms: int) -> tuple[ProgressRecord, ...]:
        """Return the batches that have ended since the last call. ``executors``: those that take tasks now."""
        records = []
        while True:
            if self._running is not None:
                if self._running[1] > now:
                    break
                records.append(self._end(now, now_ms))
            elif executors and self._next_at <= now:
                self._begin(executors)
            else:
                break
        if not executors:
            self._next_at = max(self._next_at, now)
        return tuple(records)

    def _begin(self, executors: int) -> None:
        began = self._next_at
        self._backlog += self.load.arrived(self._read_until, began)
        self._read_until = began
        rows = self._backlog
        self._backlog = 0.0
        self._running = (began, began + self.load.fixed + rows / (executors * self.load.speed), rows)

    def _end(self, now: float, now_ms: int) -> ProgressRecord:
        assert self._running is not None
        began, ended, rows = self._running
        duration, self._running = ended - began, None
        self.longest_batch = max(self.longest_batch, duration)
        batches = -(-duration // self.load.interval)
        self._next_at = began + max(1.0, batches) * self.load.interval
        self._number += 1
        return ProgressRecord(
            query_id="1",
            run_id="1",
            name="recorded",
            batch_id=self._number,
            triggered_ms=now_ms - round((now - began) * 1000),
            duration_ms=round(duration * 1000),
            rows=int(rows),
            processed_rate=rows / duration,
            interval_ms=round(self.load.interval * 1000),
            sources=(SourceProgress(description="recorded", rows=int(rows), backlog_rows=0),),  # a batch reads all
        )
