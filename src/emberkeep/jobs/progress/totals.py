"""What each streaming query has done in the attempt, added up over its micro-batches. Pure.

The newest progress of a query shows one batch. Whoever looks every 15 s misses the others: rows that one of them
dropped as too late would never be seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

import msgspec

from emberkeep.base.compatible import Compatible
from emberkeep.jobs.progress.records import ProgressRecord, ReportKey, new_records

QUERIES_COUNTED = 200  # at the same time; a script may start any number of queries
# Steps of a batch that Spark times, one after the other. A step that a newer Spark adds counts as OTHER.
PHASES = ("latestOffset", "walCommit", "getBatch", "queryPlanning", "addBatch", "commitOffsets", "commitSources")
OTHER = "other"
_WHOLE = "triggerExecution"  # all steps together
_RAN = "addBatch"  # a report without it says that the query waits


class QueryTotals(Compatible, frozen=True, kw_only=True):
    """Sums over the batches that a query has completed in the attempt. ``phases``: milliseconds by PHASES and OTHER."""

    batches: int = 0
    duration_ms: int = 0
    late_rows: int = 0  # dropped, because they came after the watermark
    phases: dict[str, int] = msgspec.field(default_factory=dict)

    def plus(self, record: ProgressRecord) -> QueryTotals:
        """Return the totals with one more batch."""
        phases = Counter(self.phases)
        for phase, took in record.phases.items():
            if phase != _WHOLE:
                phases[phase if phase in PHASES else OTHER] += took
        return QueryTotals(
            batches=self.batches + 1,
            duration_ms=self.duration_ms + record.duration_ms,
            late_rows=self.late_rows + record.late_rows,
            phases=dict(phases),
        )


class TotalsOfQueries:
    """The totals of the queries that run. A report that comes twice counts once.

    Totals of a query that is not active are kept until others need its place: it may be started again.
    """

    def __init__(self) -> None:
        self._totals: dict[str, QueryTotals] = {}
        self._counted: dict[str, tuple[str, ReportKey]] = {}  # run and newest report of each query

    def see(self, active: Collection[str], reports: Iterable[ProgressRecord]) -> None:
        """Count the reports that are new. ``active``: ids of the queries that run."""
        for report in new_records(reports, dict(self._counted.values())):
            if report.query_id not in self._totals and not self._make_room(active):
                continue
            self._counted[report.query_id] = report.run_id, report.key
            known = self._totals.get(report.query_id, QueryTotals())
            self._totals[report.query_id] = known.plus(report) if _RAN in report.phases else known

    def of(self, query_id: str) -> QueryTotals | None:
        """Return the totals of a query; None if it has not reported, or if too many queries run."""
        return self._totals.get(query_id)

    def _make_room(self, active: Collection[str]) -> bool:
        if len(self._totals) < QUERIES_COUNTED:
            return True
        over = next((query_id for query_id in self._totals if query_id not in active), None)
        if over is None:
            return False
        del self._totals[over], self._counted[over]
        return True
