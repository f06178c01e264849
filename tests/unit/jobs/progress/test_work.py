"""The work of an attempt, in one application after the other."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from emberkeep.jobs.progress.work import (
    ACTIVE,
    ENDED_EXECUTORS_KEPT,
    AttemptWork,
    ExecutorWork,
    StageProgress,
    added,
    ended,
)


def stage(number: int, status: str = ACTIVE, **changes: Any) -> StageProgress:
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
        stages=(stage(7), stage(6, "FAILED", running_ms=700)),  # of a stage that fails, tasks run on for a moment
    )
    failed = msgspec.structs.replace(stage(6, "FAILED"), active=0, running_ms=0)
    assert ended(work) == AttemptWork(
        completed_jobs=2, completed_stages=3, total_tasks=4, completed_tasks=4, stages=(failed,)
    )


def test_the_executors_that_worked_most_are_known_after_the_end() -> None:
    work = AttemptWork(
        executors=tuple(ExecutorWork(executor_id=str(each), task_ms=each) for each in range(ENDED_EXECUTORS_KEPT + 5))
    )
    kept = ended(work).executors
    assert (len(kept), kept[0].executor_id, kept[-1].executor_id) == (ENDED_EXECUTORS_KEPT, "34", "5")
    assert not any(one.active for one in kept)


@pytest.mark.parametrize(("median_ms", "slowest_ms", "skew"), [(0, 0, None), (200, 200, 1.0), (200, 900, 4.5)])
def test_skew_is_the_slowest_task_against_the_median(median_ms: int, slowest_ms: int, skew: float | None) -> None:
    assert stage(1, median_ms=median_ms, slowest_ms=slowest_ms).skew == skew


@pytest.mark.parametrize(
    ("changes", "left_ms"),
    [
        ({"median_ms": 200}, 600),  # six tasks are left, two at a time
        ({"median_ms": 0}, None),
        ({"median_ms": 200, "active": 0}, None),  # it waits for slots
    ],
)
def test_the_rest_of_a_stage_takes_as_long_as_its_tasks_so_far(changes: dict[str, int], left_ms: int | None) -> None:
    assert msgspec.structs.replace(stage(1), **changes).left_ms == left_ms


@pytest.mark.parametrize(
    ("changes", "left_ms", "overdue_ms"),
    [
        ({"running_ms": 400}, 600, None),
        ({"running_ms": 601}, None, 601),
        ({"running_ms": 401, "completed": 9, "active": 1}, None, 401),  # nothing else is left
        ({"running_ms": 400, "completed": 9, "active": 1}, 200, None),
        ({"running_ms": 5000, "tasks": 1000}, 99_600, None),  # it probably ends before the others do
        ({"running_ms": 5000, "median_ms": 0}, None, None),  # no task has ended, so none is slow
        ({"running_ms": 5000, "status": "COMPLETE"}, None, None),
    ],
)
def test_nobody_knows_when_a_task_ends_that_takes_longer_than_others(
    changes: dict[str, Any], left_ms: int | None, overdue_ms: int | None
) -> None:
    one = msgspec.structs.replace(stage(1, median_ms=200), **changes)
    assert (one.left_ms, one.overdue_ms) == (left_ms, overdue_ms)


@pytest.mark.parametrize(("running_ms", "left_ms"), [(450, 450), (451, None)])
def test_jobs_that_wait_for_a_slow_task_do_not_end_after_a_usual_one(running_ms: int, left_ms: int | None) -> None:
    """Its stage may have no other task, so that it has no median."""
    work = AttemptWork(total_tasks=10, active_tasks=2, completed_tasks=4, task_ms=600)
    assert msgspec.structs.replace(work, stages=(stage(1), stage(2, running_ms=running_ms))).left_ms == left_ms


def test_nothing_is_left_of_a_stage_that_has_ended() -> None:
    assert stage(1, "COMPLETE", median_ms=200).left_ms is None


@pytest.mark.parametrize(
    ("changes", "left_ms"),
    [({}, 450), ({"active_tasks": 0}, None), ({"completed_tasks": 0}, None), ({"total_tasks": 4}, 0)],
)
def test_what_is_left_of_active_jobs_takes_as_long_as_all_tasks_so_far(
    changes: dict[str, int], left_ms: int | None
) -> None:
    work = AttemptWork(total_tasks=10, active_tasks=2, completed_tasks=4, task_ms=600)
    assert msgspec.structs.replace(work, **changes).left_ms == left_ms
