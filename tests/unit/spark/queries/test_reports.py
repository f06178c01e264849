"""Which progress reports are new, and what is kept of each."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from emberkeep.jobs.progress.records import METRICS_KEPT, OFFSET_LIMIT, PHASES_KEPT, SOURCES_KEPT, TEXT_LIMIT
from emberkeep.spark.queries.reports import new_reports, progress_record
from tests.support.progress.records import RECORD

REPORT: dict[str, Any] = {
    "id": "q-1",
    "runId": "run-1",
    "name": "clicks",
    "timestamp": "2026-11-18T11:06:40.000Z",
    "batchId": 7,
    "batchDuration": 800,
    "numInputRows": 500,
    "inputRowsPerSecond": 250.0,
    "processedRowsPerSecond": 625.0,
    "durationMs": {"addBatch": 600, "walCommit": 40, "triggerExecution": 790},
    "eventTime": {"watermark": "2026-11-18T11:06:30.000Z"},
    "stateOperators": [
        {"numRowsTotal": 40, "memoryUsedBytes": 4000, "commitTimeMs": 30, "numRowsDroppedByWatermark": 3},
        {"numRowsTotal": 2, "memoryUsedBytes": 96, "commitTimeMs": 1, "numRowsDroppedByWatermark": 0},
    ],
    "sources": [
        {
            "description": "KafkaV2[Subscribe[clicks]]",
            "startOffset": {"clicks": {"0": 500}},
            "endOffset": {"clicks": {"0": 1000}},
            "latestOffset": {"clicks": {"0": 2250}},
            "numInputRows": 500,
            "inputRowsPerSecond": 250.0,
            "processedRowsPerSecond": 625.0,
        }
    ],
}


class JavaReport:
    """A StreamingQueryProgress in the JVM."""

    def __init__(self, second: int) -> None:
        self.second = second
        self.reads = 0

    def json(self) -> str:
        self.reads += 1
        return json.dumps(report(self.second))


def report(second: int) -> dict[str, Any]:
    return {**REPORT, "timestamp": f"2026-11-18T11:06:{second:02d}.000Z", "batchId": second}


def second_ms(second: int) -> int:
    return RECORD.triggered_ms - 40_000 + 1000 * second


def test_a_report_is_translated() -> None:
    assert progress_record(REPORT) == RECORD


def test_what_a_report_lacks_has_no_value() -> None:
    bare = progress_record({"id": "q", "runId": "r", "eventTime": {"watermark": "1970-01-01T00:00:00.000Z"}})
    assert (bare.name, bare.batch_id, bare.watermark_ms, bare.backlog_rows, bare.sources) == ("", -1, None, None, ())


def test_a_record_is_bounded_whatever_the_report() -> None:
    source = {"description": "d" * 5000, "endOffset": {"t": {str(number): number for number in range(5000)}}}
    source["latestOffset"] = source["endOffset"]
    source["metrics"] = {f"{number} {'m' * 5000}": "1" * 300 for number in range(100)}
    big = {
        **REPORT,
        "name": "n" * 5000,
        "durationMs": {f"phase {number}": 1 for number in range(100)},
        "sources": [source] * 50,
    }
    kept = progress_record(big)
    assert (len(kept.name), len(kept.phases), len(kept.sources)) == (TEXT_LIMIT, PHASES_KEPT, SOURCES_KEPT)
    assert {(each.end_offset, each.latest_offset, each.backlog_rows) for each in kept.sources} == {("", "", 0)}
    assert {len(each.metrics) for each in kept.sources} == {METRICS_KEPT, 0}
    assert len(msgspec.json.encode(kept)) < SOURCES_KEPT * (OFFSET_LIMIT + 1000 + METRICS_KEPT * (TEXT_LIMIT + 50))


def test_what_a_source_reports_itself_is_kept_if_it_is_a_number() -> None:
    metrics = {"avgMsBehindLatest": "1500.5", "numTotalShards": 2, "mode": "efo", "broken": "NaN", "none": None}
    kept = progress_record({**REPORT, "sources": [{"description": "KinesisV2[clicks]", "metrics": metrics}]})
    assert kept.sources[0].metrics == {"avgMsBehindLatest": 1500.5, "numTotalShards": 2.0}
    assert kept.sources[0].backlog_rows is None


def test_the_backlog_comes_from_what_a_source_reports_itself_if_its_offsets_do_not_say() -> None:
    source = {
        **REPORT["sources"][0],
        "latestOffset": {"clicks": {"0": 2250, "1": 50}},  # a partition was added
        "metrics": {"avgOffsetsBehindLatest": "650.0", "maxOffsetsBehindLatest": "1250"},
    }
    assert progress_record({**REPORT, "sources": [source]}).backlog_rows == 1300


def test_sums_are_right_for_a_query_with_many_sources() -> None:
    source = REPORT["sources"][0]
    sources = [{**source, "description": str(number), "numInputRows": number} for number in range(10)]
    kept = progress_record({**REPORT, "sources": sources})
    assert [each.description for each in kept.sources] == [*map(str, range(SOURCES_KEPT - 1)), "3 more sources"]
    assert (kept.sources[-1].rows, kept.sources[-1].processed_rate) == (7 + 8 + 9, 3 * 625.0)
    assert kept.backlog_rows == 10 * 1250
    unknown = progress_record({**REPORT, "sources": [*sources, {"description": "rate"}]})
    assert (unknown.sources[-1].backlog_rows, unknown.backlog_rows) == (None, None)


def test_only_new_reports_are_read() -> None:
    kept = [JavaReport(second) for second in range(10)]
    new = new_reports(report(9), lambda: kept, (7, second_ms(7)))
    assert [each["batchId"] for each in new] == [8, 9]
    assert sum(each.reads for each in kept) == 3


def test_nothing_is_read_if_the_newest_report_is_known() -> None:
    def recent() -> list[JavaReport]:
        raise AssertionError

    assert new_reports(report(9), recent, (9, second_ms(9))) == []
    assert new_reports({}, recent, None) == []


def test_all_reports_of_an_unknown_run_are_new() -> None:
    kept = [JavaReport(second) for second in range(3)]
    assert [each["batchId"] for each in new_reports(report(2), lambda: kept, None)] == [0, 1, 2]


def test_reports_are_new_although_the_clock_was_set_back() -> None:
    kept = [JavaReport(second) for second in range(10)]
    new = new_reports(report(9), lambda: kept, (7, second_ms(7) + 3_600_000))
    assert [each["batchId"] for each in new] == [7, 8, 9]
