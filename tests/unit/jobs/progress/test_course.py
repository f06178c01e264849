"""The course of a job: bounded, coarser as it lasts, and continued by each attempt."""

from __future__ import annotations

from emberkeep.jobs.progress.course import FIRST_STEP_MS, SAMPLES_KEPT, Course, CourseLog

BEGAN = 1_795_000_000_000


def test_each_interval_has_the_tasks_at_its_end_and_the_most_executors() -> None:
    log = CourseLog()
    assert log.course() is None
    for after, tasks, executors in ((0, 0, 1), (4_000, 2, 3), (9_000, 3, 2), (12_000, 5, 2), (31_000, 9, 1)):
        log.note(tasks, executors, BEGAN + after)
    assert log.course() == Course(began_ms=BEGAN, tasks=(3, 5, 5, 9), executors=(3, 2, 0, 1))


def test_a_long_job_has_as_many_samples_as_a_short_one() -> None:
    log = CourseLog()
    for number in range(10 * SAMPLES_KEPT):
        log.note(number, number % 7, BEGAN + number * FIRST_STEP_MS)
    course = log.course()
    assert course is not None
    assert course.is_well_formed
    assert course.step_ms == 16 * FIRST_STEP_MS
    assert (len(course.tasks), course.tasks[0], course.tasks[-1]) == (75, 15, 10 * SAMPLES_KEPT - 1)
    assert set(course.executors) == {6}


def test_a_gap_of_a_month_is_filled_at_once() -> None:
    log = CourseLog()
    log.note(4, 2, BEGAN)
    log.note(6, 1, BEGAN + 30 * 24 * 3_600_000)
    course = log.course()
    assert course is not None
    assert len(course.tasks) <= SAMPLES_KEPT
    assert (course.tasks[0], course.tasks[-1], course.executors[1]) == (4, 6, 0)


def test_the_next_attempt_counts_on_whenever_it_learns_of_those_before() -> None:
    earlier = Course(began_ms=BEGAN, tasks=(3, 7), executors=(2, 2))
    early, late = CourseLog(), CourseLog()
    early.continue_from(earlier)
    for log in (early, late):
        log.note(1, 1, BEGAN + 30_000)
    late.continue_from(earlier)
    for log in (early, late):
        log.note(4, 2, BEGAN + 40_000)
        assert log.course() == Course(began_ms=BEGAN, tasks=(3, 7, 7, 8, 11), executors=(2, 2, 0, 1, 2))


def test_a_clock_that_is_set_back_adds_to_the_newest_interval() -> None:
    log = CourseLog()
    log.note(1, 1, BEGAN)
    log.note(2, 1, BEGAN + FIRST_STEP_MS)
    log.note(5, 3, BEGAN - 3_600_000)
    assert log.course() == Course(began_ms=BEGAN, tasks=(1, 5), executors=(1, 3))
