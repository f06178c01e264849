"""Records of what streaming queries have done, one for each progress report of Spark. Pure.

Texts and lists in a record are bounded, so that a history of a thousand records stays small.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

import msgspec

from emberkeep.base.compatible import Compatible

TEXT_LIMIT = 200  # characters of a name or of a source's description
OFFSET_LIMIT = 2048  # characters; a longer offset is left out
SOURCES_KEPT = 8
PHASES_KEPT = 16
METRICS_KEPT = 12  # numbers that a source reports itself
# Those of them that say what is left to read.
FILES: Final = "numFilesOutstanding"
BYTES: Final = "numBytesOutstanding"
TIME_MS: Final = "maxMsBehindLatest"
# Names a report among those of a run: its batch, and when that began. A query that waits reports a batch repeatedly.
ReportKey: TypeAlias = tuple[int, int]


class SourceProgress(Compatible, frozen=True, kw_only=True):
    """One source of a query in one report.

    Offsets are JSON as Spark reports them; "" if Spark reports none, if the offset is longer than OFFSET_LIMIT, or if
    the record is not the newest of its query. ``backlog_rows``: rows that were available and not yet read; None if
    neither the offsets nor the metrics say. ``metrics``: the numbers that the source reports itself, at most
    METRICS_KEPT; if the record is not the newest of its query, only those that say what is left. The last of
    SOURCES_KEPT stands for all others of a query that has more.
    """

    description: str
    rows: int = 0
    input_rate: float = 0.0  # rows per second
    processed_rate: float = 0.0
    start_offset: str = ""
    end_offset: str = ""
    latest_offset: str = ""
    backlog_rows: int | None = None
    metrics: dict[str, float] = msgspec.field(default_factory=dict)

    @property
    def backlog_seconds(self) -> float | None:
        """How long the backlog takes at the rate at which this source is processed; None if that is unknown."""
        return seconds_for(self.backlog_rows, self.processed_rate)

    def without_offsets(self) -> SourceProgress:
        return msgspec.structs.replace(self, start_offset="", end_offset="", latest_offset="")

    def as_older(self) -> SourceProgress:
        left = {name: self.metrics[name] for name in (FILES, BYTES, TIME_MS) if name in self.metrics}
        return msgspec.structs.replace(self.without_offsets(), metrics=left)


class ProgressRecord(Compatible, frozen=True, kw_only=True):
    """One progress report of a query. Times are Unix milliseconds, durations milliseconds, rates rows per second.

    ``recorded_ms``: when the history took the record. It grows from record to record of a job, and so names a record.
    ``phases``: Spark's ``durationMs``; they overlap as Spark says, ``triggerExecution`` covers the others.
    ``interval_ms``: of the query's trigger; 0 if it has none, so that the next batch begins at once.
    """

    query_id: str  # Spark's id, the same after each restart from its checkpoint
    run_id: str
    name: str
    batch_id: int
    triggered_ms: int
    recorded_ms: int = 0
    duration_ms: int = 0
    phases: dict[str, int] = msgspec.field(default_factory=dict)
    rows: int = 0
    input_rate: float = 0.0
    processed_rate: float = 0.0
    state_rows: int = 0
    state_bytes: int = 0
    state_commit_ms: int = 0  # added over the tasks of the batch
    late_rows: int = 0  # dropped, because they came after the watermark
    watermark_ms: int | None = None  # None: the query has none, or none yet
    sources: tuple[SourceProgress, ...] = ()
    interval_ms: int = 0

    @property
    def key(self) -> ReportKey:
        return self.batch_id, self.triggered_ms

    @property
    def watermark_gap_ms(self) -> int | None:
        """How far the watermark was behind the start of the batch."""
        return None if self.watermark_ms is None else self.triggered_ms - self.watermark_ms

    @property
    def backlog_rows(self) -> int | None:
        """Rows that all sources had available and that were not yet read; None unless each source's is known."""
        known = [source.backlog_rows for source in self.sources if source.backlog_rows is not None]
        return sum(known) if known and len(known) == len(self.sources) else None

    @property
    def backlog_seconds(self) -> float | None:
        """How long the backlog takes at the processing rate of this batch; None if that is unknown."""
        return seconds_for(self.backlog_rows, self.processed_rate)

    def as_older(self) -> ProgressRecord:
        """Return the record as it is kept once a newer one of its query has come."""
        bare = tuple(source.as_older() for source in self.sources)
        return self if bare == self.sources else msgspec.structs.replace(self, sources=bare)


def new_records(records: Iterable[ProgressRecord], known: Mapping[str, ReportKey]) -> list[ProgressRecord]:
    """Return the records that are new, those of each run in the order in which they came.

    ``known``: the newest known report of each run. Times do not order the reports of a run: a clock may be set back.
    """
    found: dict[str, list[ProgressRecord]] = {}
    for record in records:
        newest = known.get(record.run_id)
        if record.key == newest:
            found[record.run_id] = []  # those before it are known as well
            continue
        run = found.setdefault(record.run_id, [])
        newest = run[-1].key if run else newest
        if newest is None or (record.batch_id >= newest[0] and record.key != newest):
            run.append(record)
    return list(heapq.merge(*found.values(), key=lambda record: record.triggered_ms))


def seconds_for(backlog_rows: int | None, processed_rate: float) -> float | None:
    """Return how long ``backlog_rows`` take at this rate; None if the backlog is unknown or nothing is processed."""
    if backlog_rows == 0:
        return 0.0
    return None if backlog_rows is None or processed_rate <= 0 else backlog_rows / processed_rate
