"""Reading Spark's progress reports."""

from __future__ import annotations

from typing import Any

import pytest

from emberkeep.spark.queries.progress import decode_progress

_IDENTITY = {"id": "i", "runId": "r", "name": None}


def test_query_that_has_not_run_a_batch_yet_has_no_numbers() -> None:
    progress = decode_progress({}, identity=_IDENTITY, status="Initializing sources", location=None)
    assert progress.batch_id == -1
    assert progress.name is None
    assert (progress.num_input_rows, progress.input_rows_per_second, progress.state_rows) == (0, 0.0, 0)
    assert progress.watermark is None


def test_report_is_translated_and_states_are_summed() -> None:
    report = {
        "batchId": 4,
        "numInputRows": 100,
        "inputRowsPerSecond": 12.5,
        "processedRowsPerSecond": "NaN",
        "stateOperators": [{"numRowsTotal": 3, "memoryUsedBytes": 100}, {"numRowsTotal": 4, "memoryUsedBytes": 20}],
        "sources": [{"endOffset": {"clicks": {"0": 5}}, "latestOffset": {"clicks": {"0": 9}}}],
        "eventTime": {"watermark": "2013-01-01T00:00:00.000Z"},
    }
    progress = decode_progress(report, identity=_IDENTITY, status="Waiting", location="file:///c")
    assert (progress.batch_id, progress.num_input_rows, progress.state_rows) == (4, 100, 7)
    assert (progress.state_bytes, progress.backlog_rows) == (120, 4)
    assert (progress.input_rows_per_second, progress.processed_rows_per_second) == (12.5, 0.0)
    assert progress.watermark == "2013-01-01T00:00:00.000Z"
    assert progress.checkpoint_location == "file:///c"


def test_infinite_rates_are_left_out() -> None:
    progress = decode_progress({"inputRowsPerSecond": float("inf")}, identity=_IDENTITY, status="", location=None)
    assert progress.input_rows_per_second == 0.0


@pytest.mark.req("HA-8")
@pytest.mark.parametrize(
    ("report", "committed"),
    [
        ({}, -1),
        ({"batchId": 0, "durationMs": {"latestOffset": 0, "triggerExecution": 1}}, -1),  # waits for its first data
        ({"batchId": 0, "durationMs": {"addBatch": 3, "commitOffsets": 1}}, 0),
        ({"batchId": 7, "durationMs": {"addBatch": 3, "commitOffsets": 1}}, 7),
        ({"batchId": 8, "durationMs": {"latestOffset": 0, "triggerExecution": 1}}, 7),  # idle: names the next batch
    ],
)
def test_only_batches_that_ran_count_as_committed(report: dict[str, Any], committed: int) -> None:
    assert decode_progress(report, identity=_IDENTITY, status="", location="/c").committed_batch == committed


def test_times_of_a_batch_are_unix_milliseconds() -> None:
    report = {"batchId": 0, "timestamp": "2026-11-21T19:18:48.100Z", "batchDuration": 250}
    progress = decode_progress(report, identity=_IDENTITY, status="", location="/c")
    assert (progress.triggered_ms, progress.committed_ms) == (1_795_288_728_100, 1_795_288_728_350)
