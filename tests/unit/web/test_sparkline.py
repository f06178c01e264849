"""A job's trend as a small line."""

from __future__ import annotations

from emberkeep.jobs.progress.trend import SAMPLES_KEPT, Trend, TrendUnit
from emberkeep.web.sparkline import HEIGHT, WIDTH, sparkline


def trend(*samples: int, unit: TrendUnit = TrendUnit.ROWS_PER_SECOND) -> Trend:
    return Trend(unit=unit, samples=samples)


def test_the_newest_sample_is_at_the_right_edge() -> None:
    line = sparkline(trend(0, 50, 100))
    assert line is not None
    points = [point.split(",") for point in line.points.split()]
    assert points[-1] == [f"{WIDTH:.1f}", "1.0"]
    assert points[0][1] == f"{HEIGHT - 1:.1f}"
    assert float(points[0][0]) > WIDTH * 0.9, "an hour-old job and one of a minute have the same scale"


def test_a_full_trend_fills_the_box() -> None:
    line = sparkline(trend(*[0] * (SAMPLES_KEPT + 5)))
    assert line is not None
    assert len(line.points.split()) == SAMPLES_KEPT
    assert line.points.startswith("0.0,")


def test_a_line_says_the_same_in_words() -> None:
    line = sparkline(trend(1200, 0, 3400))
    assert line is not None
    assert line.label == ("rows per second in the last 30 s: newest 3\u202f400, lowest 0, highest 3\u202f400")
    assert line.newest == "3\u202f400 rows/s"
    tasks = sparkline(trend(1, 7, unit=TrendUnit.TASKS_DONE))
    assert tasks is not None
    assert tasks.newest == "7 tasks"


def test_one_sample_is_no_line() -> None:
    assert sparkline(None) is None
    assert sparkline(trend(5)) is None
