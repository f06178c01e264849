"""Bars of a job's starts have one scale, and say in words what they show."""

from __future__ import annotations

import pytest

from emberkeep.chronicle.timeline import Recovery
from emberkeep.web.recovery_bars import WIDTH, recovery_bars


def recovery(attempt: int, registered: int | None, working: int | None) -> Recovery:
    return Recovery(attempt=attempt, cause="lost", began_ms=1000, registered_ms=registered, working_ms=working)


def test_the_longest_start_fills_the_box_and_the_others_are_to_its_scale() -> None:
    bars = recovery_bars([recovery(1, 3000, 21_000), recovery(2, 2000, 6000)])
    assert (bars[1].starting, bars[1].working) == pytest.approx((WIDTH * 0.1, WIDTH * 0.9))
    assert bars[2].starting + bars[2].working == pytest.approx(WIDTH / 4)
    assert bars[1].label == "2 s until the script began, 18 s from there to the first result"


def test_a_start_of_which_less_is_known_shows_that() -> None:
    bars = recovery_bars([recovery(1, 3000, None), recovery(2, None, 5000), recovery(3, None, None)])
    assert bars[1].label == "2 s until the script began"
    assert (bars[2].starting, bars[2].label) == (0.0, "4 s until the first result")
    assert 3 not in bars


def test_clocks_that_differ_give_no_negative_width() -> None:
    bars = recovery_bars([recovery(1, 500, 3000), recovery(2, 9000, 3000), recovery(3, 500, 500)])
    assert all(bar.starting >= 0 and bar.working >= 0 for bar in bars.values())
    assert recovery_bars([]) == {}
