"""The newest progress records of each streaming query of a job. Pure.

The JobMaster of each attempt continues the history of the attempt before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import takewhile

import msgspec

from emberkeep.base.bounded import remember
from emberkeep.base.compatible import Compatible
from emberkeep.jobs.progress.records import ProgressRecord, ReportKey, new_records

RECORDS_KEPT = 1000  # of each query
QUERIES_KEPT = 20  # those with the newest records; a job may start any number of queries
SILENT_MS = 300_000  # after which a query may lose its place to one that has lost its own before
_OTHERS_KEPT = 10_000


class QueryHistory(Compatible, frozen=True, kw_only=True):
    """The records of one query, oldest first, at least one."""

    query_id: str
    records: tuple[ProgressRecord, ...]


class Selection(Compatible, frozen=True, kw_only=True):
    """Which records to read: the newest ``limit`` of those recorded after ``after_ms`` and before ``before_ms``.

    ``query_id``: "" for all queries. ``before_ms``: 0 for no such bound.
    """

    limit: int
    query_id: str = ""
    after_ms: int = 0
    before_ms: int = 0


class KnownQuery(Compatible, frozen=True, kw_only=True):
    """A query that has records. ``name``: "" if it has none."""

    query_id: str
    name: str
    records: int
    oldest_ms: int
    newest_ms: int


class HistoryPage(Compatible, frozen=True, kw_only=True):
    """What a selection yields.

    ``queries``: all that have records, the one with the newest record first. ``records``: oldest first. ``earlier``:
    True if the limit has cut off older records.
    """

    queries: tuple[KnownQuery, ...] = ()
    records: tuple[ProgressRecord, ...] = ()
    earlier: bool = False


class ProgressLog:
    """The histories of a job's queries. ``recorded_ms`` grows from record to record over all queries.

    A new run takes the place of the query that has been silent for longest. If more queries run than are kept, those
    that have lost their places stay without: otherwise all would lose their histories again and again.
    """

    def __init__(self) -> None:
        self._queries: dict[str, deque[ProgressRecord]] = {}  # the one with the oldest newest record first
        self._others: dict[str, ReportKey] = {}  # newest report of each run that has lost its place; oldest first
        self._newest_ms = 0
        self._now_ms: int | None = None  # by the clock, at the last ``add``
        self._passed_ms = 0  # since the first ``add``; a clock that is set back takes nothing away
        self._heard_ms: dict[str, int] = {}  # how much of it when each query's newest record came

    def continue_from(self, earlier: Iterable[QueryHistory]) -> None:
        """Put the records of earlier attempts before those that this log has."""
        own = [record for records in self._queries.values() for record in records]
        self._queries.clear()
        self._newest_ms = 0
        before = [record for query in earlier for record in query.records]
        for record in sorted(before, key=lambda record: record.recorded_ms):
            self._append(record)
        for record in sorted(own, key=lambda record: record.recorded_ms):
            self._append(msgspec.structs.replace(record, recorded_ms=max(record.recorded_ms, self._newest_ms + 1)))

    def add(self, reports: Iterable[ProgressRecord], now_ms: int) -> bool:
        """Add the reports that are new. Return False if none is."""
        self._passed_ms += 0 if self._now_ms is None else max(0, now_ms - self._now_ms)
        self._now_ms = now_ms
        changed = False
        for report in new_records(reports, self.reported()):
            changed |= self._take(report, now_ms)
        return changed

    def _take(self, report: ProgressRecord, now_ms: int) -> bool:
        """Add a new report, unless its query has no place."""
        if self._others.pop(report.run_id, None) is not None and not self._has_place(report):
            self._note_other(report)
            return False
        self._heard_ms[report.query_id] = self._passed_ms
        self._append(msgspec.structs.replace(report, recorded_ms=max(now_ms, self._newest_ms + 1)))
        return True

    def _has_place(self, report: ProgressRecord) -> bool:
        if report.query_id in self._queries or len(self._queries) < QUERIES_KEPT:
            return True
        silent = next(iter(self._queries))
        return self._passed_ms - self._heard_ms.get(silent, 0) > SILENT_MS

    def _note_other(self, newest: ProgressRecord) -> None:
        remember(self._others, newest.run_id, newest.key, _OTHERS_KEPT)

    def reported(self) -> dict[str, ReportKey]:
        """Return the newest report of the newest run of each query."""
        return self._others | {records[-1].run_id: records[-1].key for records in self._queries.values()}

    def oldest_news_ms(self) -> int:
        """Return when the oldest batch began among the newest ones of each query. There must be a record."""
        return min(records[-1].triggered_ms for records in self._queries.values())

    def since(self, time_ms: int) -> list[ProgressRecord]:
        """Return the records whose batches ended after ``time_ms``."""
        return [
            record
            for records in self._queries.values()
            for record in takewhile(lambda record: record.recorded_ms > time_ms, reversed(records))
            if record.triggered_ms + record.duration_ms > time_ms
        ]

    @property
    def is_empty(self) -> bool:
        return not self._queries

    def histories(self) -> tuple[QueryHistory, ...]:
        return tuple(QueryHistory(query_id=key, records=tuple(found)) for key, found in self._queries.items())

    def page(self, selection: Selection) -> HistoryPage:
        """Return the records that ``selection`` names."""
        return page(self.histories(), selection)

    def _append(self, record: ProgressRecord) -> None:
        records = self._queries.pop(record.query_id, None) or deque(maxlen=RECORDS_KEPT)
        if records:
            records.append(records.pop().as_older())
        records.append(record)
        self._queries[record.query_id] = records
        self._newest_ms = record.recorded_ms
        while len(self._queries) > QUERIES_KEPT:
            silent = self._queries.pop(next(iter(self._queries)))
            self._heard_ms.pop(silent[-1].query_id, None)
            self._note_other(silent[-1])


def page(histories: Iterable[QueryHistory], selection: Selection) -> HistoryPage:
    """Return the records of ``histories`` that ``selection`` names."""
    known = sorted(histories, key=lambda query: query.records[-1].recorded_ms, reverse=True)
    chosen = [
        record
        for query in known
        if selection.query_id in ("", query.query_id)
        for record in query.records
        if record.recorded_ms > selection.after_ms and not 0 < selection.before_ms <= record.recorded_ms
    ]
    chosen.sort(key=lambda record: record.recorded_ms)
    return HistoryPage(
        queries=tuple(_known(query) for query in known),
        records=tuple(chosen[-selection.limit :]),
        earlier=len(chosen) > selection.limit,
    )


def _known(query: QueryHistory) -> KnownQuery:
    return KnownQuery(
        query_id=query.query_id,
        name=query.records[-1].name,
        records=len(query.records),
        oldest_ms=query.records[0].recorded_ms,
        newest_ms=query.records[-1].recorded_ms,
    )
