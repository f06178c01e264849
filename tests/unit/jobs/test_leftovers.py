"""What jobs leave behind: marked, kept for a period, removed; a mark is taken back when its job is known again."""

from __future__ import annotations

import pytest

from emberkeep.base.ids import JobId
from emberkeep.jobs.leftovers import Kind, Mark, Periods, stages
from emberkeep.jobs.model import JobStatus

JOB = JobId("1" * 32)
ITEM = (Kind.CHECKPOINTS, JOB)
PERIODS = Periods(unknown_ms=1000, ended_ms=100, event_logs_ms=300, damaged_ms=10_000)
OVER = (JobStatus.FINISHED, JobStatus.CANCELED)


def mark(since_ms: int, *, ended: bool) -> Mark:
    return Mark(job_id=JOB, kind=Kind.CHECKPOINTS, since_ms=since_ms, ended=ended)


@pytest.mark.req("SAFE-7")
@pytest.mark.parametrize("status", [status for status in JobStatus if status not in OVER])
def test_what_a_job_may_need_is_not_marked_and_marks_of_it_are_taken_back(status: JobStatus) -> None:
    found = stages([ITEM], {JOB: status}, [mark(0, ended=False)], 10**9, PERIODS)
    assert (found.marks, found.due) == ((), ())


@pytest.mark.req("SAFE-7")
@pytest.mark.parametrize(
    ("known", "ended", "period"),
    [({}, False, 1000), ({JOB: JobStatus.FINISHED}, True, 100), ({JOB: JobStatus.CANCELED}, True, 100)],
)
def test_marked_first_and_due_after_its_period(known: dict[JobId, JobStatus], ended: bool, period: int) -> None:
    first = stages([ITEM], known, [], 5000, PERIODS)
    assert first.marks == (mark(5000, ended=ended),)
    assert first.due == ()
    before = stages([ITEM], known, first.marks, 5000 + period - 1, PERIODS)
    assert (before.marks, before.due) == (first.marks, ())
    after = stages([ITEM], known, first.marks, 5000 + period, PERIODS)
    assert (after.marks, after.due) == (first.marks, first.marks)


@pytest.mark.req("SAFE-7")
def test_a_period_begins_anew_after_its_mark_was_taken_back() -> None:
    marks = stages([ITEM], {}, [], 0, PERIODS).marks
    marks = stages([ITEM], {JOB: JobStatus.RUNNING}, marks, 900, PERIODS).marks
    found = stages([ITEM], {}, marks, 1100, PERIODS)
    assert found.marks == (mark(1100, ended=False),)
    assert found.due == ()


def test_event_logs_of_a_job_that_has_ended_are_kept_for_longer_than_its_checkpoints() -> None:
    found, known = [ITEM, (Kind.EVENT_LOGS, JOB)], {JOB: JobStatus.FINISHED}
    marks = stages(found, known, [], 0, PERIODS).marks
    assert [each.kind for each in stages(found, known, marks, 299, PERIODS).due] == [Kind.CHECKPOINTS]
    assert {each.kind for each in stages(found, known, marks, 300, PERIODS).due} == {Kind.CHECKPOINTS, Kind.EVENT_LOGS}


def test_an_end_that_is_known_stays_known_when_the_result_has_expired() -> None:
    assert stages([ITEM], {}, [mark(0, ended=True)], 100, PERIODS).due == (mark(0, ended=True),)


def test_a_mark_from_the_future_counts_from_now() -> None:
    assert stages([ITEM], {}, [mark(10**9, ended=False)], 50, PERIODS).marks == (mark(50, ended=False),)


@pytest.mark.parametrize("status", list(JobStatus))
def test_logs_are_kept_for_as_long_as_their_job_is_known(status: JobStatus) -> None:
    logs = (Kind.LOGS, JOB)
    assert stages([logs], {JOB: status}, [], 10**9, PERIODS).marks == ()

    marked = stages([logs], {}, [], 0, PERIODS)
    assert (marked.marks, marked.due) == ((Mark(job_id=JOB, kind=Kind.LOGS, since_ms=0, ended=False),), ())
    assert stages([logs], {}, marked.marks, 1000, PERIODS).due == marked.marks


def test_marks_of_what_is_gone_are_dropped() -> None:
    assert stages([], {}, [mark(0, ended=True)], 10**9, PERIODS).marks == ()
