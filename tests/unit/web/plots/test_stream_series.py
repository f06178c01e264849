"""What the plots of a streaming query show."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from emberkeep.chronicle.timeline import MARKED
from tests.unit.web.conftest import JavaScript

RECORDS = """
const record = (at, run) => ({
  "batch-id": 7, "run-id": run, triggered: at, duration: 800, rows: 500, "late-rows": 3,
  phases: { addBatch: 600, walCommit: 40, unheardOf: 10, triggerExecution: 790 },
  "backlog-rows": 1250, "backlog-seconds": 2, watermark: at - 10000, sources: [source("clicks", 1250)],
});
const source = (description, rows) => ({ description, "backlog-rows": rows });
const several = (...sources) => [{ ...record(3000, "b"), "backlog-rows": null, sources }];
const records = [record(1000, "a"), record(2000, "a"), record(9000, "b")];
"""


@pytest.fixture
def evaluated(javascript: JavaScript) -> Callable[[str], Any]:
    """Returns the value of an expression that may use the modules and ``records``."""
    return partial(javascript, ["stream_series", "marks", "formats"], before=RECORDS)


def test_no_line_joins_two_runs_of_a_query(evaluated: Any) -> None:
    assert evaluated("stream_series.rows(records).map((row) => [row.at, row.record === null])") == [
        [1, False],
        [2, False],
        [8.999, True],
        [9, False],
    ]
    assert evaluated("stream_series.column(stream_series.rows(records), (record) => record.rows)") == [
        500,
        500,
        None,
        500,
    ]


def test_phases_add_up_to_the_whole_trigger(evaluated: Any) -> None:
    names = evaluated("stream_series.phaseNames(records)")
    assert names == ["walCommit", "addBatch", "unheardOf", "other"]
    took = evaluated(f"{json.dumps(names)}.map((name) => stream_series.phaseSeconds(records[0], name))")
    assert took == [0.04, 0.6, 0.01, 0.14]
    assert evaluated("stream_series.stacked([[1, null], [2, null], [4, null]])") == [[1, None], [3, None], [7, None]]


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ('{"backlog-rows": 1250, metrics: {maxMsBehindLatest: 900}}', "1\u202f250"),
        ('{"backlog-rows": null, metrics: {numFilesOutstanding: 3, numBytesOutstanding: 2048}}', "3 files, 2 KiB"),
        ('{"backlog-rows": null, metrics: {maxMsBehindLatest: 1500}}', "1.5 s behind"),
        ('{"backlog-rows": null, metrics: {numTotalShards: 2}}', "–"),
        ('{"backlog-rows": null}', "–"),
    ],
)
def test_the_backlog_of_a_source_is_said_as_the_source_counts_it(evaluated: Any, source: str, text: str) -> None:
    assert evaluated(f"stream_series.backlogOf({source})") == text


def test_what_a_source_reports_itself_is_listed(evaluated: Any) -> None:
    listed = evaluated("stream_series.reported({metrics: {maxMsBehindLatest: 1500, mean: 0.25}})")
    assert listed == "maxMsBehindLatest 1\u202f500, mean 0.3"
    assert evaluated("stream_series.reported({metrics: {}})") == "–"


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("formats.count(1234567.8)", "1\u202f234\u202f568"),
        ("formats.count(0.52)", "0.5"),
        ("formats.count(null)", "–"),
        ("formats.bytes(1536)", "1.5 KiB"),
        ("formats.seconds(0.25)", "250 ms"),
        ("formats.seconds(7260)", "2 h 1 min"),
        ("formats.seconds(86400)", "1 d"),
        ("formats.moment(1795000000000)", "2026-11-18 11:06:40"),
    ],
)
def test_numbers_are_shown_with_units(evaluated: Any, expression: str, text: str) -> None:
    assert evaluated(expression) == text


def test_a_source_that_counts_files_has_a_line_in_files(evaluated: Any) -> None:
    found = (
        "((found) => [stream_series.measuring(found, 'numFilesOutstanding'),"
        " found.map((one) => stream_series.measured(one, 'in', 'numFilesOutstanding'))])"
        "([{...records[0], sources: [source('in', null)]},"
        " {...records[1], sources: [{...source('in', null), metrics: {numFilesOutstanding: 3}}, source('clicks', 1)]}])"
    )
    assert evaluated(found) == [["in"], [None, 3]]
    assert evaluated("stream_series.measuring(records, 'numFilesOutstanding')") == []


def test_the_newest_batch_is_described_in_a_sentence(evaluated: Any) -> None:
    assert evaluated("stream_series.summary(records[0], 6000)") == (
        "Batch 7, 5.0 s ago: 500 rows in 800 ms · backlog 1\u202f250 rows (2.0 s of work) · "
        "watermark 15.0 s behind now · 3 late rows dropped"
    )


def test_a_query_with_one_source_has_no_plots_by_source(evaluated: Any) -> None:
    assert evaluated("stream_series.sourceNames(records)") == []
    assert evaluated("stream_series.backlogs(records[0])") == "1\u202f250"


def test_each_source_has_a_line_of_its_own(evaluated: Any) -> None:
    joined = "several(source('clicks', 100), source('clicks', 30), source('rates', null))"
    names = "stream_series.sourceNames([...records, ...found])"
    assert evaluated(f"((found) => {names})({joined})") == ["clicks", "clicks (2)", "rates"]
    of_source = (
        "['clicks', 'clicks (2)', 'rates', 'gone'].map((name) => stream_series.ofSource(one, name, 'backlog-rows'))"
    )
    assert evaluated(f"(([one]) => {of_source})({joined})") == [100, 30, None, None]
    assert evaluated(f"stream_series.backlogs({joined}[0])") == "– (100 + 30 + –)"
    assert evaluated(f"stream_series.summary({joined}[0], 6000)").endswith(
        "the source with the largest backlog is clicks: 100 rows · watermark 13.0 s behind now · 3 late rows dropped"
    )


def test_the_number_and_the_names_of_sources_are_bounded(evaluated: Any) -> None:
    many = "several(...Array.from({ length: 20 }, (_, n) => source(`${n}`, n)))"
    assert evaluated(f"stream_series.sourceNames({many}).length") == 8
    short = evaluated("stream_series.shortName(`FileStreamSource[file:/${'x'.repeat(200)}/orders]`)")
    assert (len(short), short[:12], short[-9:]) == (48, "FileStreamSo", "x/orders]")


def _marks(*moments_ms: int, kind: str = "savepoint", message: str = "a savepoint is complete") -> str:
    return json.dumps([{"kind": kind, "tone": "finished", "at": at, "message": message} for at in moments_ms])


def test_plots_go_on_to_what_has_happened_since_the_last_batch(evaluated: Any) -> None:
    assert evaluated("stream_series.rows(records, 20000).map((row) => [row.at, row.record === null]).slice(-2)") == [
        [9, False],
        [20, True],
    ]
    assert evaluated("stream_series.rows(records, 8000).at(-1).at") == 9
    assert evaluated("stream_series.rows([], 8000)") == []


def test_plots_show_marks_from_their_first_batch_on(evaluated: Any) -> None:
    found = f"marks.since({_marks(999, 1000, 20000)}, stream_series.rows(records)).map((mark) => mark.at)"
    assert evaluated(found) == [1000, 20000]
    assert evaluated(f"marks.since({_marks(1500, kind='unheard-of')}, stream_series.rows(records))") == []
    assert evaluated(f"marks.since({_marks(1500)}, [])") == []


def test_the_cursor_finds_the_marks_near_to_it(evaluated: Any) -> None:
    assert evaluated(f"marks.near({_marks(1000, 1900, 2100, 3000)}, 2, 0.11).map((mark) => mark.at)") == [1900, 2100]


def test_arrow_keys_stop_at_each_batch_and_each_mark(evaluated: Any) -> None:
    assert evaluated(f"marks.stops(stream_series.rows(records), {_marks(2000, 4000)})") == [1, 2, 4, 9]


def test_the_table_has_each_mark_with_the_batch_before_it(evaluated: Any) -> None:
    found = (
        f"marks.perRecord(records, {_marks(500, 1000, 1999, 9000, 50000)}, 'triggered')"
        ".map((some) => some.map((mark) => mark.at))"
    )
    assert evaluated(found) == [[1000, 1999], [], [9000, 50000]]


def test_a_mark_is_described_in_a_line(evaluated: Any) -> None:
    assert evaluated(f"marks.markText({_marks(1795000000000)}[0])") == "11:06:40 a savepoint is complete"
    leader = _marks(0, kind="leader-started", message="127.0.0.1:8081 leads")
    assert evaluated(f"marks.markText({leader}[0])") == "00:00:00 new leader: 127.0.0.1:8081 leads"
    long = evaluated(f"marks.markText({_marks(0, message='x' * 300)}[0])")
    assert (len(long), long[-1]) == (119, "…")


def test_each_mark_of_a_timeline_has_a_shape_and_an_explanation(evaluated: Any) -> None:
    kinds = evaluated("marks.GROUPS.flatMap((group) => group.kinds)")
    assert sorted(kinds) == sorted(MARKED)
    assert evaluated("marks.GROUPS.filter((group) => !group.legend || !group.shape)") == []
    assert evaluated("new Set(marks.GROUPS.map((group) => group.shape)).size === marks.GROUPS.length")
