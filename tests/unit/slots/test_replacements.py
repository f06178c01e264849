"""Pauses before the replacements of executors that ended by themselves, and the failures that count."""

from __future__ import annotations

from emberkeep.slots.pool.replacements import Replacements
from tests.property.slots.test_slot_pool import LIMITS


def after(*ends: float) -> Replacements:
    replacements = Replacements(LIMITS)
    for now in ends:
        replacements.executor_ended(now, failure=True)
    return replacements


def test_an_end_counts_until_the_failure_window_is_over() -> None:
    replacements = after(0.0)
    assert replacements.recent_failures(LIMITS.failure_window) == 1
    assert replacements.recent_failures(LIMITS.failure_window + 0.1) == 0


def test_an_application_that_has_stopped_leaves_neither_pauses_nor_failures() -> None:
    replacements = after(0.0, 1.0)
    replacements.clear()
    assert (replacements.pauses, replacements.recent_failures(1.0)) == ([], 0)
    replacements.executor_ended(1.0, failure=False)
    assert replacements.pauses == [], "it is the first end again, which has no pause"
    replacements.executor_ended(1.0, failure=False)
    assert replacements.pauses == [1.0 + LIMITS.backoff_initial]


def test_pauses_end_one_by_one() -> None:
    replacements = after(0.0, 0.0, 0.0)
    first = LIMITS.backoff_initial
    assert not replacements.expire(first - 0.1)
    assert replacements.expire(first)
    assert len(replacements.pauses) == 1
