"""The work of an attempt, in one application after the other."""

from __future__ import annotations

import pytest

from emberkeep.jobs.progress.work import ACTIVE, AttemptWork, StageProgress, added, ended


def stage(number: int, status: str = ACTIVE, **changes: int) -> StageProgress:
    return StageProgress(
        stage_id=number,
        stage_attempt=0,
        name="count at app.py:3",
        status=status,
        tasks=10,
        active=2,
        completed=4,
        failed=0,
        **changes,
    )


def test_the_next_application_counts_on() -> None:
    first = AttemptWork(
        active_jobs=1, active_stages=1, total_tasks=10, active_tasks=2, completed_tasks=4, failed_tasks=1, gc_ms=7
    )
    second = AttemptWork(active_jobs=1, active_stages=2, total_tasks=8, active_tasks=1, completed_tasks=3, gc_ms=5)
    assert added(ended(first), second) == AttemptWork(
        active_jobs=1, active_stages=2, total_tasks=12, active_tasks=1, completed_tasks=7, failed_tasks=1, gc_ms=12
    )


def test_nothing_is_active_in_an_application_that_has_ended() -> None:
    work = AttemptWork(
        active_jobs=1,
        completed_jobs=2,
        active_stages=1,
        completed_stages=3,
        total_tasks=10,
        active_tasks=2,
        completed_tasks=4,
        stages=(stage(7), stage(6, "COMPLETE")),
    )
    assert ended(work) == AttemptWork(
        completed_jobs=2, completed_stages=3, total_tasks=4, completed_tasks=4, stages=(stage(6, "COMPLETE"),)
    )


@pytest.mark.parametrize(("median_ms", "slowest_ms", "skew"), [(0, 0, None), (200, 200, 1.0), (200, 900, 4.5)])
def test_skew_is_the_slowest_task_against_the_median(median_ms: int, slowest_ms: int, skew: float | None) -> None:
    assert stage(1, median_ms=median_ms, slowest_ms=slowest_ms).skew == skew
