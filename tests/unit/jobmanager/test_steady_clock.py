"""The clock for deadlines: what counts as time and what does not."""

from __future__ import annotations

import pytest

from emberkeep.jobmanager.steady_clock import LONGEST_STEP, SteadyClock


class HandClock:
    """Set by hand."""

    def __init__(self) -> None:
        self.at = 100.0

    def monotonic(self) -> float:
        return self.at

    def now_ms(self) -> int:
        return round(self.at * 1000)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


def test_a_stall_counts_as_the_longest_step(clock: HandClock) -> None:
    steady = SteadyClock(clock)
    for gap, now in ((0.5, 100.5), (LONGEST_STEP, 102.5), (60.0, 104.5), (1.0, 105.5)):
        clock.at += gap
        assert steady.now() == now
    assert steady.now_ms() == 163_500, "the wall clock goes on"


def test_no_time_passes_while_the_clock_is_held(clock: HandClock) -> None:
    steady = SteadyClock(clock)
    clock.at += 1.0
    steady.hold()
    for _ in range(3):
        clock.at += 1.5
        assert steady.now() == 101.0
    clock.at += 1.5
    steady.release()
    clock.at += 1.5
    assert steady.now() == 102.5


def test_a_stall_before_the_clock_is_held_counts_as_the_longest_step(clock: HandClock) -> None:
    steady = SteadyClock(clock)
    clock.at += 60.0
    steady.hold()
    assert steady.now() == 100.0 + LONGEST_STEP
