"""What the histories of a campaign with real PySpark have shown so far."""

from __future__ import annotations

from collections import Counter

import msgspec

from campaign.processes.figures import LONGEST_VIOLATION, FailedHistory
from campaign.spark.record import HistoryRecord


class SparkFigures(msgspec.Struct):
    """Counts of many histories. ``seconds``: real time, with the starts and ends of the clusters.

    ``outputs`` and ``rows``: by kind of query or batch job, how many were compared. ``streams`` and ``answers``: by
    kind of fault, how often it took so many seconds until all queries had committed, and until the cluster answered
    with all its members. ``together``: faults that had others beside them. ``outcomes``: stops and savepoints that
    failed under another fault.
    """

    histories: int = 0
    seconds: float = 0.0
    faults: dict[str, int] = {}
    together: int = 0
    outcomes: dict[str, int] = {}
    clusters: dict[str, int] = {}
    files: int = 0
    outputs: dict[str, int] = {}
    rows: dict[str, int] = {}
    differences: int = 0
    streams: dict[str, dict[str, int]] = {}
    answers: dict[str, dict[str, int]] = {}
    failures: list[FailedHistory] = []
    revisions: list[str] = []

    def took(self, record: HistoryRecord) -> None:
        """Add a history."""
        self.histories += 1
        self.seconds += record.seconds
        self.files += record.files
        _count(self.clusters, _cluster(record))
        for strike in record.strikes:
            _count(self.faults, strike.kind)
            self.together += strike.together
            if strike.outcome:
                _count(self.outcomes, strike.kind)
            # A fault beside another one shows how long both took.
            if not strike.together:
                if strike.streams is not None:
                    _count(self.streams.setdefault(strike.kind, {}), f"{strike.streams:.1f}")
                if strike.answers is not None:
                    _count(self.answers.setdefault(strike.kind, {}), f"{strike.answers:.1f}")
        for each in record.comparisons:
            what = each.output.partition("/")[2]
            _count(self.outputs, what)
            _count(self.rows, what, each.expected)
            self.differences += each.differs

    def failed(self, number: int, record: HistoryRecord, kept: str) -> None:
        """Note a history with violations."""
        self.failures.append(FailedHistory(number, record.violations[0][:LONGEST_VIOLATION], kept))


def _cluster(record: HistoryRecord) -> str:
    plan = record.plan
    words = ["ZooKeeper and 2 JobManagers" if plan.zookeepers else "SQLite"]
    words += ["standby processes"] if plan.standbys else []
    words += ["local state"] if plan.local_state else []
    return ", ".join(words)


def _count(mine: dict[str, int], name: str, more: int = 1) -> None:
    mine[name] = Counter(mine)[name] + more
