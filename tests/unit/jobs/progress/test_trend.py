"""What a job has done in the last minutes, in a few numbers."""

from __future__ import annotations

from emberkeep.jobs.progress.history import ProgressLog
from emberkeep.jobs.progress.trend import SAMPLE_MS, SAMPLES_KEPT, TaskCounts, Trend, TrendUnit, trend_of_rows
from tests.support.progress.records import RECORD, record

START = RECORD.triggered_ms // SAMPLE_MS * SAMPLE_MS


def rows(*samples: int) -> Trend:
    return Trend(unit=TrendUnit.ROWS_PER_SECOND, samples=samples)


def test_rows_are_spread_over_the_duration_of_their_batch() -> None:
    long = record(0, triggered_ms=START, duration_ms=3 * SAMPLE_MS, rows=3000)
    short = record(1, triggered_ms=START + 3 * SAMPLE_MS, duration_ms=500, rows=40)
    assert trend_of_rows([short, long], START + 4 * SAMPLE_MS) == rows(100, 100, 100, 4)


def test_a_batch_counts_in_each_sample_that_it_touches() -> None:
    across = record(0, triggered_ms=START + SAMPLE_MS // 2, duration_ms=SAMPLE_MS, rows=1000)
    assert trend_of_rows([across], START + 2 * SAMPLE_MS + 9999) == rows(50, 50)


def test_queries_are_added_up() -> None:
    both = [record(0, triggered_ms=START, duration_ms=100, rows=10, query_id=name) for name in ("q-1", "q-2")]
    assert trend_of_rows(both, START + SAMPLE_MS) == rows(2)


def test_a_query_that_is_stuck_falls_to_zero() -> None:
    done = record(0, triggered_ms=START, duration_ms=100, rows=10)
    assert trend_of_rows([done], START + 3 * SAMPLE_MS) == rows(1, 0, 0)


def test_a_trend_is_bounded() -> None:
    old = record(0, triggered_ms=START, duration_ms=SAMPLE_MS, rows=10)
    now_ms = START + 10 * SAMPLES_KEPT * SAMPLE_MS
    assert trend_of_rows([old], now_ms) == rows(*[0] * SAMPLES_KEPT)
    assert trend_of_rows([], now_ms) == rows()


def test_a_sample_that_is_not_over_is_left_out() -> None:
    assert trend_of_rows([record(0, triggered_ms=START, duration_ms=1, rows=10)], START + SAMPLE_MS - 1) == rows()


def test_a_log_finds_the_batches_that_have_ended_since() -> None:
    log = ProgressLog()
    assert log.is_empty
    for number in range(4):
        log.add([record(number, duration_ms=500)], record(number).triggered_ms + 600)
    since_ms = record(2).triggered_ms
    assert [found.batch_id for found in log.since(since_ms)] == [3, 2]
    assert log.since(record(9).triggered_ms) == []


def test_done_tasks_are_counted_at_the_end_of_each_sample() -> None:
    counts = TaskCounts()
    counts.note(0, 100.0)
    assert counts.trend() is None
    for done, now in ((3, 101.0), (5, 109.9), (8, 112.0), (9, 145.0)):
        counts.note(done, now)
    assert counts.trend() == Trend(unit=TrendUnit.TASKS_DONE, samples=(5, 8, 8, 8, 9))
    counts.note(10, 1e6)
    trend = counts.trend()
    assert trend is not None
    assert trend.samples == (*[9] * (SAMPLES_KEPT - 1), 10)
