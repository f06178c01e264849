"""What a job has done in the last minutes, in one number for each ten seconds. Pure.

A JobMaster reports the trend of its job with each status, so a list of a thousand jobs needs no further request.
"""

from __future__ import annotations

import enum
import math
from collections import deque
from collections.abc import Iterable

from emberkeep.base.compatible import Compatible
from emberkeep.jobs.progress.records import ProgressRecord

SAMPLES_KEPT = 60
SAMPLE_SECONDS = 10
SAMPLE_MS = SAMPLE_SECONDS * 1000


class TrendUnit(enum.Enum):
    """What the samples of a trend are."""

    ROWS_PER_SECOND = "rows per second"  # of all streaming queries
    TASKS_DONE = "tasks done"  # by the attempt, so far


class Trend(Compatible, frozen=True, kw_only=True):
    """Samples, oldest first, at most SAMPLES_KEPT, one for each ``sample_seconds``."""

    unit: TrendUnit
    samples: tuple[int, ...]
    sample_seconds: int = SAMPLE_SECONDS


def trend_of_rows(records: Iterable[ProgressRecord], now_ms: int, began_ms: int | None = None) -> Trend:
    """Return the rows per second of all queries until the last full sample before ``now_ms``.

    The rows of a batch are spread evenly over its duration. So a query that has finished no batch for a while shows 0,
    and the samples are filled in when a long batch has ended. ``began_ms``: from when on the samples count, even
    without a batch.
    """
    end_ms = now_ms // SAMPLE_MS * SAMPLE_MS
    first_ms = end_ms - SAMPLES_KEPT * SAMPLE_MS
    rows = [0.0] * SAMPLES_KEPT
    began_ms = end_ms if began_ms is None else min(began_ms, end_ms)
    for record in records:
        began_ms = min(began_ms, record.triggered_ms)
        took_ms = max(1, record.duration_ms)
        first = max(0, (record.triggered_ms - first_ms) // SAMPLE_MS)
        last = min(SAMPLES_KEPT - 1, (record.triggered_ms + took_ms - first_ms) // SAMPLE_MS)
        for index in range(first, last + 1):
            start_ms = first_ms + index * SAMPLE_MS
            shared_ms = min(start_ms + SAMPLE_MS, record.triggered_ms + took_ms) - max(start_ms, record.triggered_ms)
            rows[index] += record.rows * max(0, shared_ms) / took_ms
    unused = max(0, began_ms - first_ms) // SAMPLE_MS
    samples = tuple(math.floor(amount / SAMPLE_SECONDS + 0.5) for amount in rows[unused:])
    return Trend(unit=TrendUnit.ROWS_PER_SECOND, samples=samples)


class TaskCounts:
    """How many tasks an attempt had done at the end of each sample. Times are seconds of any steady clock."""

    def __init__(self) -> None:
        self._counts: deque[int] = deque(maxlen=SAMPLES_KEPT)
        self._sample = 0

    def note(self, done: int, now: float) -> None:
        """Note the number of tasks done until ``now``."""
        sample = int(now // SAMPLE_SECONDS)
        if self._counts:
            for _ in range(min(SAMPLES_KEPT, sample - self._sample)):
                self._counts.append(self._counts[-1])
            self._counts[-1] = done
        else:
            self._counts.append(done)
        self._sample = max(sample, self._sample)

    def trend(self) -> Trend | None:
        """Return the trend; None while no task is done."""
        if not any(self._counts):
            return None
        return Trend(unit=TrendUnit.TASKS_DONE, samples=tuple(self._counts))
