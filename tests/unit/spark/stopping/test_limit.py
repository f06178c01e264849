"""Time limits of waits."""

from __future__ import annotations

import time

from emberkeep.spark.stopping.limit import NO_LIMIT, Limit


def test_a_wait_without_a_limit_is_never_over() -> None:
    assert not NO_LIMIT.is_over
    assert NO_LIMIT.seconds_left is None


def test_the_seconds_that_are_left_end_at_zero() -> None:
    later, over = Limit(time.monotonic() + 1000.0), Limit(time.monotonic() - 1.0)
    assert not later.is_over
    assert later.seconds_left is not None
    assert 0.0 < later.seconds_left <= 1000.0
    assert (over.is_over, over.seconds_left) == (True, 0.0)
