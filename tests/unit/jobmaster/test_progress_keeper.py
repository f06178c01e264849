"""The history that a driver keeps of its queries, as a trend."""

from __future__ import annotations

from emberkeep.base.actors import Actor
from emberkeep.jobmaster.progress_keeper import ProgressKeeper
from emberkeep.jobs.progress.trend import SAMPLE_MS, SAMPLES_KEPT
from tests.support.progress.records import record


class Now:
    """A clock that stands."""

    def __init__(self, now_ms: int) -> None:
        self.value = now_ms

    def now(self) -> float:
        return self.value / 1000

    def monotonic(self) -> float:
        return self.value / 1000

    def now_ms(self) -> int:
        return self.value


def test_a_query_that_is_stuck_for_long_still_shows_zeros() -> None:
    clock = Now(record(0).triggered_ms + 1000)
    keeper = ProgressKeeper(Actor("driver"), clock)
    keeper.see([record(0)])
    clock.value += 2 * SAMPLES_KEPT * SAMPLE_MS
    trend = keeper.trend()
    assert trend is not None
    assert trend.samples == (0,) * SAMPLES_KEPT
