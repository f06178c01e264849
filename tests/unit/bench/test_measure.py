"""Figures, ratios, percentiles, goals."""

from __future__ import annotations

import pytest

from bench.measure import Figure, Goal, percentile, ratios, short


def test_a_figure_shows_its_median_and_range() -> None:
    figure = Figure("speed", "s", (3.0, 1.0, 2.0))
    assert figure.row() == ("speed", "2 s", "1 … 3", "")


def test_a_single_sample_has_no_range() -> None:
    assert Figure("memory", "KiB", (4.5,)).row() == ("memory", "4.5 KiB", "", "")


def test_the_median_decides_about_the_goal() -> None:
    goal = Goal(at_least=0.98)
    assert Figure("ratio", "×", (0.5, 0.99, 1.2), goal).row()[3] == "≥ 0.98: met"
    assert Figure("ratio", "×", (0.5, 0.97, 1.2), goal).row()[3] == "≥ 0.98: missed"
    assert Goal(at_most=2.0).is_met(2.0)
    assert not Goal(at_most=2.0).is_met(2.1)


def test_json_carries_every_sample() -> None:
    content = Figure("ratio", "×", (1.0, 2.0), Goal(at_most=1.0)).as_json()
    assert content["samples"] == [1.0, 2.0]
    assert (content["median"], content["min"], content["max"]) == (1.5, 1.0, 2.0)
    assert (content["goal"], content["met"]) == ("≤ 1", False)


def test_ratios_are_taken_pair_by_pair() -> None:
    assert ratios([2.0, 9.0], [1.0, 3.0]) == (2.0, 3.0)
    with pytest.raises(ValueError, match="shorter"):
        ratios([1.0, 2.0], [1.0])


def test_a_percentile_is_a_sample() -> None:
    hundred = [float(number) for number in range(100, 0, -1)]
    assert percentile(hundred, 0.5) == 50.0
    assert percentile(hundred, 0.99) == 99.0
    assert percentile(hundred, 1.0) == 100.0
    assert percentile([7.0], 0.01) == 7.0


def test_numbers_are_short() -> None:
    assert [short(number) for number in (0.12345, 12.345, 999.9, 1234.5, 100_000)] == [
        "0.123",
        "12.3",
        "1,000",
        "1,234",
        "100,000",
    ]
