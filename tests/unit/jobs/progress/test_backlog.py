"""The backlog of a source, from the offsets that Spark reports."""

from __future__ import annotations

from typing import Any

import pytest

from emberkeep.jobs.progress.backlog import backlog_rows, reported_rows
from emberkeep.jobs.progress.records import seconds_for


@pytest.mark.parametrize(
    ("end", "latest", "rows"),
    [
        (5, 12, 7),
        (12, 12, 0),
        (12, 5, 0),  # the source was made again
        ({"t": {"0": 1, "1": 5}, "u": {"0": 0}}, {"t": {"0": 4, "1": 5}, "u": {"0": 10}}, 13),
        ({"offset": 3}, {"offset": 8}, 5),
        ({"t": {"0": 1}}, {"t": {"0": 4, "1": 5}}, None),  # a new partition: nobody knows where it begins
        ({"t": {"0": 1}}, {"u": {"0": 4}}, None),
        ({}, {}, None),
        ({"shard": "4961"}, {"shard": "4963"}, None),
        ({"logOffset": 3}, None, None),
        (None, 5, None),
        (True, 5, None),
        (1.5, 2.5, None),
        ("5", "7", None),
        ({"t": 5}, 7, None),
    ],
)
def test_rows_are_counted_only_between_numbers(end: Any, latest: Any, rows: int | None) -> None:
    assert backlog_rows(end, latest) == rows


@pytest.mark.parametrize(
    ("metrics", "latest", "rows"),
    [
        ({"avgOffsetsBehindLatest": 2.5, "maxOffsetsBehindLatest": 4.0}, {"t": {"0": 4, "1": 5}}, 5),
        ({"avgOffsetsBehindLatest": 1 / 3}, {"t": {"0": 4, "1": 5}, "u": {"0": 9}}, 1),
        ({"avgOffsetsBehindLatest": 2.0}, {"shards": ["17", "18"]}, None),  # the mean of nobody knows how many
        ({"avgOffsetsBehindLatest": 2.0}, None, None),
        ({"avgOffsetsBehindLatest": 2.0, "maxOffsetsBehindLatest": 2.0}, {}, None),
        ({"avgOffsetsBehindLatest": 0.0, "maxOffsetsBehindLatest": 0.0}, None, 0),  # no part of it is behind
        ({"avgOffsetsBehindLatest": -3.0}, 7, 0),  # the source was made again
        ({"numFilesOutstanding": 0.0}, None, 0),
        ({"numFilesOutstanding": 3.0, "numBytesOutstanding": 900.0}, None, None),  # files are no rows
        ({"numBytesOutstanding": 0.0}, None, 0),
        ({"maxMsBehindLatest": 0.0}, None, None),  # of what was read last, not of what there is
        ({}, {"t": {"0": 4}}, None),
    ],
)
def test_what_a_source_reports_itself_says_the_rows(metrics: dict[str, float], latest: Any, rows: int | None) -> None:
    assert reported_rows(metrics, latest) == rows


@pytest.mark.parametrize(
    ("rows", "rate", "seconds"), [(100, 50.0, 2.0), (0, 0.0, 0.0), (100, 0.0, None), (None, 50.0, None)]
)
def test_time_comes_from_the_processing_rate(rows: int | None, rate: float, seconds: float | None) -> None:
    assert seconds_for(rows, rate) == seconds
