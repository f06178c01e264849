"""The record of one history, as a file. The outputs that it judges are kept beside it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from campaign.kept import read_kept
from campaign.spark.outputs import Comparison, compare_batch, compare_query
from campaign.spark.plan import HistoryPlan
from campaign.spark.strikes import Strike

VERSION = 1


class HistoryRecord(msgspec.Struct, frozen=True, kw_only=True):
    """All that was seen of one history. ``problems``: what did not recover. ``files``: of the input, of all jobs.

    ``batches``: kinds of the batch jobs that were submitted, in order.
    """

    version: int = VERSION
    plan: HistoryPlan
    strikes: tuple[Strike, ...]
    comparisons: tuple[Comparison, ...]
    problems: tuple[str, ...]
    batches: tuple[str, ...]
    files: int
    seconds: float

    @property
    def violations(self) -> list[str]:
        return [*self.problems, *(str(each) for each in self.comparisons if each.differs)]


def stream_place(place: Path, number: int) -> Path:
    """Return the directory of a job with streaming queries. ``place``: that of the history."""
    return place / f"stream-{number}"


def batch_place(place: Path, number: int) -> Path:
    return place / f"batch-{number}"


def compare_all(place: Path, plan: HistoryPlan, batches: tuple[str, ...]) -> tuple[Comparison, ...]:
    """Compare all outputs of a history with the oracle's answers."""
    found = [
        compare_query(stream_place(place, number), query)
        for number, stream in enumerate(plan.streams)
        for query in stream.queries
    ]
    found += [compare_batch(batch_place(place, number), kind) for number, kind in enumerate(batches)]
    return tuple(found)


def read_record(path: Path) -> HistoryRecord:
    """Read a kept history. Raises ValueError that names the file if it is damaged or of another version."""
    return read_kept(path, HistoryRecord, VERSION)
