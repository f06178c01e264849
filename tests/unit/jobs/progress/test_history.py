"""The newest records of each query, continued over attempts."""

from __future__ import annotations

import msgspec
import pytest

from emberkeep.jobs.progress.history import (
    QUERIES_KEPT,
    RECORDS_KEPT,
    SILENT_MS,
    HistoryPage,
    ProgressLog,
    Selection,
)
from emberkeep.jobs.progress.records import ProgressRecord, SourceProgress
from tests.support.progress.records import RECORD, measured, record

ALL = Selection(limit=10_000)


def batches(page: HistoryPage) -> list[int]:
    return [one.batch_id for one in page.records]


def filled(*numbers: int, now_ms: int = 1000) -> ProgressLog:
    log = ProgressLog()
    for number in numbers:
        log.add([record(number)], now_ms + number)
    return log


def test_the_newest_records_of_each_query_are_kept() -> None:
    log = filled(*range(RECORDS_KEPT + 5))
    log.add([record(0, query_id="q-2", run_id="run-2")], 9999)
    page = log.page(ALL)
    assert [(query.query_id, query.records) for query in page.queries] == [("q-2", 1), ("q-1", RECORDS_KEPT)]
    assert batches(page) == [*range(5, RECORDS_KEPT + 5), 0]


def test_a_report_that_is_known_is_not_added_again() -> None:
    log = filled(1, 2)
    assert not log.add([record(1), record(2)], 5000)
    assert log.add([record(2), record(3)], 5000)
    assert batches(log.page(ALL)) == [1, 2, 3]
    assert log.reported() == {"run-1": record(3).key}


def test_reports_are_taken_when_the_clock_was_set_back() -> None:
    log = filled(1, 2)
    back = [set_back(record(number)) for number in (3, 4)]
    assert log.add([record(2), *back], 5000)
    assert not log.add(back, 5000)
    assert log.add([set_back(record(5))], 100)
    assert batches(log.page(ALL)) == [1, 2, 3, 4, 5]
    assert batches(log.page(Selection(limit=10, after_ms=log.page(ALL).records[2].recorded_ms))) == [4, 5]


def set_back(record: ProgressRecord) -> ProgressRecord:
    return msgspec.structs.replace(record, triggered_ms=record.triggered_ms - 3_600_000)


def test_a_query_that_waits_reports_its_next_batch_repeatedly() -> None:
    log = filled(1)
    waits = [msgspec.structs.replace(record(2), triggered_ms=record(2).triggered_ms + 10_000 * n) for n in range(3)]
    assert log.add(waits[:2], 5000)
    assert log.add(waits, 5000)
    assert not log.add(waits, 5000)
    assert log.add([set_back(record(2))], 5000), "it has run now"
    assert batches(log.page(ALL)) == [1, 2, 2, 2, 2]


def test_a_new_run_of_a_query_continues_its_history() -> None:
    log = filled(4)
    assert log.add([record(2, run_id="run-2")], 5000), "its clock may be behind"
    assert batches(log.page(ALL)) == [4, 2]
    assert log.reported() == {"run-2": record(2).key}


def test_records_have_names_that_grow() -> None:
    log = ProgressLog()
    log.add([record(1), record(2)], 1000)
    log.add([record(3)], 500)
    assert [one.recorded_ms for one in log.page(ALL).records] == [1000, 1001, 1002]


def test_queries_without_news_are_dropped_first() -> None:
    log = ProgressLog()
    for number in range(QUERIES_KEPT):
        log.add([record(1, query_id=f"q-{number}", run_id=f"r-{number}")], number)
    log.add([record(2, query_id="q-0", run_id="r-0")], 100)
    log.add([record(1, query_id="new", run_id="new")], 101)
    kept = {query.query_id for query in log.page(ALL).queries}
    assert (len(kept), "q-1" in kept, "q-0" in kept) == (QUERIES_KEPT, False, True)


def test_more_queries_than_are_kept_do_not_take_the_places_of_each_other() -> None:
    """What is reported twice would be read from Spark, and written, again and again."""
    count = QUERIES_KEPT + 5
    log = ProgressLog()
    for batch in range(10):
        reports = [record(batch, query_id=f"q-{number}", run_id=f"r-{number}") for number in range(count)]
        log.add(reports, 1000 * batch)
        assert log.reported() == {f"r-{number}": reports[0].key for number in range(count)}
        assert not log.add(reports, 1000 * batch + 500)
    assert [query.records for query in log.page(ALL).queries].count(10) >= QUERIES_KEPT - 5
    later = record(10, query_id="q-0", run_id="r-0")
    assert not log.add([later], 10_000), "it came first, and has lost its place"
    assert log.add([msgspec.structs.replace(later, triggered_ms=later.triggered_ms + 1)], 10_000 + SILENT_MS)


@pytest.mark.parametrize("set_back_ms", [0, 86_400_000])
def test_a_silent_query_loses_its_place_although_the_clock_was_set_back(set_back_ms: int) -> None:
    log, now_ms = ProgressLog(), 100_000_000
    names = [f"q-{number}" for number in range(QUERIES_KEPT + 1)]
    log.add([record(0, query_id=name, run_id=name) for name in names], now_ms)
    now_ms -= set_back_ms
    assert not log.add([record(1, query_id="q-0", run_id="q-0")], now_ms), "the others have just reported"
    others = [record(1, query_id=name, run_id=name) for name in names[2:]]
    assert log.add(others, now_ms + SILENT_MS)
    assert log.add([record(2, query_id="q-0", run_id="q-0")], now_ms + SILENT_MS + 1), "q-1 is silent"
    assert "q-1" not in {query.query_id for query in log.page(ALL).queries}


def test_only_the_newest_record_has_offsets_and_what_the_sources_report() -> None:
    log = ProgressLog()
    log.add([measured(1), measured(2)], 1000)
    old, new = log.page(ALL).records
    assert [source.end_offset for source in old.sources] == [""]
    assert [source.end_offset for source in new.sources] == [RECORD.sources[0].end_offset]
    assert [source.metrics for source in (*old.sources, *new.sources)] == [{}, {"maxOffsetsBehindLatest": 1250}]
    assert old.backlog_rows == new.backlog_rows == 1250


def test_older_records_still_say_what_was_left() -> None:
    left = {"numFilesOutstanding": 3.0, "numBytesOutstanding": 2048.0, "maxMsBehindLatest": 8000.0}
    source = SourceProgress(description="files", metrics={**left, "numTotalShards": 2.0})
    log = ProgressLog()
    log.add([msgspec.structs.replace(measured(number), sources=(source,)) for number in (1, 2)], 1000)
    old, new = log.page(ALL).records
    assert old.sources[0].metrics == left
    assert new.sources[0].metrics == source.metrics


@pytest.mark.parametrize(
    ("selection", "expected", "earlier"),
    [
        (Selection(limit=2), [3, 4], True),
        (Selection(limit=4), [1, 2, 3, 4], False),
        (Selection(limit=9, after_ms=1002), [3, 4], False),
        (Selection(limit=1, after_ms=1002), [4], True),
        (Selection(limit=2, before_ms=1004), [2, 3], True),
        (Selection(limit=9, after_ms=1001, before_ms=1004), [2, 3], False),
        (Selection(limit=9, query_id="q-1"), [1, 2, 3, 4], False),
        (Selection(limit=9, query_id="other"), [], False),
    ],
)
def test_a_selection_has_the_newest_records_between_its_bounds(
    selection: Selection, expected: list[int], earlier: bool
) -> None:
    page = filled(1, 2, 3, 4).page(selection)
    assert (batches(page), page.earlier) == (expected, earlier)
    assert [query.query_id for query in page.queries] == ["q-1"]


def test_the_next_attempt_continues_and_reads_what_came_before_late() -> None:
    earlier = filled(1, 2, now_ms=90_000)
    log = ProgressLog()
    log.add([record(3, run_id="run-2")], 500)  # its node's clock is behind, and the storage was away
    log.continue_from(earlier.histories())
    page = log.page(ALL)
    assert batches(page) == [1, 2, 3]
    assert [one.recorded_ms for one in page.records] == [90_001, 90_002, 90_003]
    log.add([record(4, run_id="run-2")], 600)
    assert log.page(Selection(limit=9, after_ms=90_003)).records[0].batch_id == 4


def gap(**changes: object) -> ProgressRecord:
    return msgspec.structs.replace(RECORD, **changes)


def test_gap_and_backlog_are_unknown_without_what_they_need() -> None:
    assert (RECORD.watermark_gap_ms, RECORD.backlog_rows, RECORD.backlog_seconds) == (10_000, 1250, 2.0)
    assert gap(watermark_ms=None).watermark_gap_ms is None
    assert gap(processed_rate=0.0).backlog_seconds is None
    unknown = msgspec.structs.replace(RECORD.sources[0], backlog_rows=None)
    assert gap(sources=(*RECORD.sources, unknown)).backlog_rows is None
    assert gap(sources=()).backlog_rows is None
