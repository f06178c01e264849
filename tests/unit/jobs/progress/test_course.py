"""The course of a job: bounded, coarser as it lasts, and continued by each attempt."""

from __future__ import annotations

import msgspec
import pytest

from emberkeep.jobs.progress.course import COUNTED, FIRST_STEP_MS, SAMPLES_KEPT, Course, CourseLog
from emberkeep.jobs.progress.work import AttemptWork

BEGAN = 1_795_000_000_000


def done(tasks: int) -> AttemptWork:
    """What an attempt has done after so many tasks: each sum grows by another factor."""
    sums = {counted: factor * tasks for factor, counted in enumerate(COUNTED.values(), start=1)}
    return msgspec.structs.replace(AttemptWork(), **sums)


def course(tasks: tuple[int, ...], executors: tuple[int, ...]) -> Course:
    """A course with the sums that ``done`` says."""
    sums = {name: tuple(factor * one for one in tasks) for factor, name in enumerate(COUNTED, start=1)}
    return msgspec.structs.replace(Course(began_ms=BEGAN, executors=executors), **sums)


def test_each_interval_has_the_sums_at_its_end_and_the_most_executors() -> None:
    log = CourseLog()
    assert log.course() is None
    for after, tasks, executors in ((0, 0, 1), (4_000, 2, 3), (9_000, 3, 2), (12_000, 5, 2), (31_000, 9, 1)):
        log.note(done(tasks), executors, BEGAN + after)
    assert log.course() == course((3, 5, 5, 9), (3, 2, 0, 1))


def test_a_long_job_has_as_many_samples_as_a_short_one() -> None:
    log = CourseLog()
    for number in range(10 * SAMPLES_KEPT):
        log.note(done(number), number % 7, BEGAN + number * FIRST_STEP_MS)
    found = log.course()
    assert found is not None
    assert found.is_well_formed
    assert found.step_ms == 16 * FIRST_STEP_MS
    assert (len(found.tasks), found.tasks[0], found.tasks[-1]) == (75, 15, 10 * SAMPLES_KEPT - 1)
    assert set(found.executors) == {6}


def test_a_gap_of_a_month_is_filled_at_once() -> None:
    log = CourseLog()
    log.note(done(4), 2, BEGAN)
    log.note(done(6), 1, BEGAN + 30 * 24 * 3_600_000)
    found = log.course()
    assert found is not None
    assert len(found.tasks) <= SAMPLES_KEPT
    assert (found.tasks[0], found.tasks[-1], found.executors[1]) == (4, 6, 0)


def test_the_next_attempt_counts_on_whenever_it_learns_of_those_before() -> None:
    earlier = course((3, 7), (2, 2))
    early, late = CourseLog(), CourseLog()
    early.continue_from(earlier)
    for log in (early, late):
        log.note(done(1), 1, BEGAN + 30_000)
    late.continue_from(earlier)
    for log in (early, late):
        log.note(done(4), 2, BEGAN + 40_000)
        assert log.course() == course((3, 7, 7, 8, 11), (2, 2, 0, 1, 2))


def test_the_course_goes_on_when_the_clock_is_set_back() -> None:
    log = CourseLog()
    log.note(done(1), 1, BEGAN)
    log.note(done(2), 1, BEGAN + FIRST_STEP_MS)
    back = BEGAN - 3_600_000
    log.note(done(5), 3, back)
    log.note(done(6), 2, back + FIRST_STEP_MS)
    assert log.course() == msgspec.structs.replace(course((1, 5, 6), (1, 3, 2)), began_ms=back - FIRST_STEP_MS)


def test_a_time_that_is_a_little_late_adds_to_the_newest_interval() -> None:
    log = CourseLog()
    log.note(done(1), 1, BEGAN)
    log.note(done(2), 1, BEGAN + FIRST_STEP_MS)
    log.note(done(5), 3, BEGAN + 5)
    assert log.course() == course((1, 5), (1, 3))


def test_after_a_driver_of_an_earlier_release_the_cost_begins_at_zero() -> None:
    log = CourseLog()
    log.continue_from(Course(began_ms=BEGAN, tasks=(3, 7), executors=(2, 2)))
    log.note(AttemptWork(completed_tasks=2, gc_ms=5, shuffle_read=1024), 1, BEGAN + 20_000)
    found = log.course()
    assert found is not None
    assert found.is_well_formed
    assert (found.tasks, found.gc_ms, found.shuffle_read, found.task_ms) == (
        (3, 7, 9),
        (0, 0, 5),
        (0, 0, 1024),
        (0, 0, 0),
    )


@pytest.mark.parametrize(
    ("tasks", "executors", "gc_ms", "expected"),
    [
        ((1, 2), (1, 2), (), True),
        ((1, 2), (1, 2), (1, 2), True),
        ((1, 2), (1,), (), False),
        ((1, 2), (1, 2), (1,), False),
        ((0,) * (SAMPLES_KEPT + 1), (0,) * (SAMPLES_KEPT + 1), (), False),
    ],
)
def test_samples_have_one_length(
    tasks: tuple[int, ...], executors: tuple[int, ...], gc_ms: tuple[int, ...], expected: bool
) -> None:
    assert Course(began_ms=BEGAN, tasks=tasks, executors=executors, gc_ms=gc_ms).is_well_formed is expected
