"""When a micro-batch was planned and committed, from Spark's progress reports."""

from __future__ import annotations

import json
from typing import Any

import pytest

from emberkeep.spark.errors import SparkUnavailable
from emberkeep.spark.model import FirstBatch, StartedQuery
from emberkeep.spark.queries.checkpoints import QueryIdentity
from emberkeep.spark.queries.first_times import FirstTimes, batch_times
from emberkeep.spark.queries.script_queries import ScriptQueries, ScriptQuery

BEGUN_MS = 1_764_066_115_250
IDLE: dict[str, Any] = {"timestamp": "2025-11-25T10:21:54.000Z", "batchId": 0, "durationMs": {"latestOffset": 3}}
RAN: dict[str, Any] = {
    "timestamp": "2025-11-25T10:21:55.250Z",
    "batchDuration": 1700,
    "durationMs": {
        "addBatch": 1000,
        "commitOffsets": 20,
        "getBatch": 5,
        "latestOffset": 10,
        "queryPlanning": 600,
        "triggerExecution": 1700,
        "walCommit": 35,
    },
}


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        ({}, None),
        (IDLE, None),
        (RAN, (BEGUN_MS + 650, BEGUN_MS + 1700)),
        ({**RAN, "batchDuration": 0}, (BEGUN_MS + 650, BEGUN_MS + 650)),
        ({"timestamp": RAN["timestamp"], "durationMs": {"addBatch": 1}, "batchDuration": 7}, (BEGUN_MS, BEGUN_MS + 7)),
    ],
)
def test_times_of_a_batch(report: dict[str, Any], expected: tuple[int, int] | None) -> None:
    assert batch_times(report) == expected


class FakeReport:
    def __init__(self, report: dict[str, Any]) -> None:
        self._report = report

    def json(self) -> str:
        return json.dumps(self._report)


class FakeHandle:
    """A StreamingQuery with these reports, oldest first; None: its JVM does not answer."""

    def __init__(self, *reports: dict[str, Any] | None) -> None:
        self._jsq = self
        self._reports = reports

    def recentProgress(self) -> list[FakeReport]:  # noqa: N802 - Spark's name
        if None in self._reports:
            raise OSError("no answer")
        return [FakeReport(report) for report in self._reports if report is not None]


def started(*handles: FakeHandle) -> FirstTimes:
    queries = ScriptQueries()
    for number, handle in enumerate(handles):
        query = ScriptQuery(
            writer=None,
            method="start",
            positional=(),
            named={},
            key=str(number),
            name=str(number),
            identity=QueryIdentity("noop", "append", ""),
            started=StartedQuery(None),
            reached=None,
            fields=[],
            handle=handle,
        )
        queries.add(query)
    return FirstTimes(None, queries)


def test_the_first_batch_of_any_query_counts() -> None:
    later = {**RAN, "timestamp": "2025-11-25T10:21:57.250Z"}
    first = started(FakeHandle(IDLE, later), FakeHandle(RAN, later), FakeHandle()).batch()
    assert (first.planned_ms, first.committed_ms) == (BEGUN_MS + 650, BEGUN_MS + 1700)
    assert first.query_ms is not None


def test_before_a_query_and_before_its_first_batch() -> None:
    assert started().batch() == FirstBatch()
    waiting = started(FakeHandle(IDLE)).batch()
    assert (waiting.planned_ms, waiting.committed_ms) == (None, None)
    assert waiting.query_ms is not None


def test_a_jvm_that_does_not_answer_is_unavailable() -> None:
    with pytest.raises(SparkUnavailable):
        started(FakeHandle(None)).batch()
