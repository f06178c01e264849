"""Which periodic savepoints are retired, whatever the clocks that dated them have shown."""

from __future__ import annotations

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from emberkeep.jobs.periodic.retention import GAP_INTERVALS, surplus
from tests.unit.jobs.periodic.periodic_job import BEGAN_MS, HOUR, savepoint, settings

INTERVAL_MS = round(HOUR * 1000)


@given(
    times=st.lists(st.integers(0, 10**15), min_size=1, max_size=12),
    now=st.integers(0, 10**15),
    retained=st.integers(1, 12),
    max_age=st.floats(0.01, 30.0),
)
def test_as_many_stay_as_are_made_within_the_age_whatever_the_clocks_have_shown(
    times: list[int], now: int, retained: int, max_age: float
) -> None:
    savepoints = [savepoint(number, created) for number, created in enumerate(sorted(times))]
    retired = surplus(savepoints, settings(HOUR, retained, max_age * HOUR), now, lambda _: False)
    least = min(len(savepoints), retained, max(1, math.floor(max_age / GAP_INTERVALS)))
    assert len(savepoints) - len(retired) >= least
    assert retired == savepoints[: len(retired)], "the oldest go first"


@given(
    gaps=st.lists(st.integers(0, 2 * INTERVAL_MS), min_size=1, max_size=12), max_age=st.integers(1, 20 * INTERVAL_MS)
)
def test_with_clocks_that_go_right_the_age_is_the_time_since_the_savepoint_was_made(
    gaps: list[int], max_age: int
) -> None:
    *created, now = itertools.accumulate(gaps, initial=BEGAN_MS)
    savepoints = [savepoint(number, each) for number, each in enumerate(created)]
    retired = surplus(savepoints, settings(HOUR, 100, max_age / 1000), now, lambda _: False)
    assert retired == [each for each in savepoints[:-1] if now - each.created_ms > max_age]
