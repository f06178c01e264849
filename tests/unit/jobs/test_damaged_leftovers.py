"""What is left of damaged jobs: people are warned for the last tenth of its period, and it goes only after that."""

from __future__ import annotations

import pytest

from emberkeep.base.ids import JobId
from emberkeep.jobs.damaged_leftovers import DamagedJob, stages_of_damaged, warnings
from emberkeep.jobs.leftovers import Kind, Mark, Periods

JOB = JobId("1" * 32)
KEPT = DamagedJob(job_id=JOB, since_ms=5000, places=("/graphs/1",))
PERIODS = Periods(unknown_ms=1, ended_ms=1, event_logs_ms=1, damaged_ms=1000)
DAY = 86_400_000

pytestmark = pytest.mark.req("SAFE-3")


def mark(since_ms: int, kind: Kind = Kind.DAMAGED) -> Mark:
    return Mark(job_id=JOB, kind=kind, since_ms=since_ms, ended=True)


@pytest.mark.parametrize(
    ("now", "marks", "due"),
    [(0, (), ()), (5899, (), ()), (5900, (mark(5900),), ()), (99999, (mark(99999),), ())],
)
def test_it_is_marked_for_the_last_tenth_or_as_soon_as_a_leader_is_there(
    now: int, marks: tuple[Mark, ...], due: tuple[Mark, ...]
) -> None:
    found = stages_of_damaged([KEPT], [], now, PERIODS)
    assert (found.marks, found.due) == (marks, due)


def test_it_is_due_a_tenth_after_its_mark() -> None:
    assert not stages_of_damaged([KEPT], [mark(5900)], 5999, PERIODS).due
    assert stages_of_damaged([KEPT], [mark(5900)], 6000, PERIODS).due == (mark(5900),)


def test_another_mark_of_the_same_job_is_none_of_its_own() -> None:
    assert stages_of_damaged([KEPT], [mark(0, Kind.CHECKPOINTS)], 6000, PERIODS).marks == (mark(6000),)


def test_a_longer_period_takes_the_mark_back() -> None:
    longer = Periods(unknown_ms=1, ended_ms=1, event_logs_ms=1, damaged_ms=10_000)
    assert stages_of_damaged([KEPT], [mark(5900)], 6000, longer).marks == ()


def test_a_mark_from_the_future_counts_from_now() -> None:
    found = stages_of_damaged([KEPT], [mark(10**12)], 6000, PERIODS)
    assert (found.marks, found.due) == ((mark(6000),), ())


def test_what_is_kept_no_more_has_no_mark() -> None:
    assert stages_of_damaged([], [mark(5900)], 6000, PERIODS).marks == ()


@pytest.mark.parametrize(("warned", "again"), [({}, True), ({JOB: 0}, True), ({JOB: 1}, False)])
def test_people_are_warned_once_a_day(warned: dict[JobId, int], again: bool) -> None:
    assert warnings([mark(5900)], warned, DAY) == ((mark(5900),) if again else ())
