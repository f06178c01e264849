"""When periodic savepoints of a job are made, and which are deleted."""

from __future__ import annotations

from itertools import pairwise

import pytest

from emberkeep.jobs.checkpoints import JobPointers, merged
from emberkeep.jobs.periodic.machine import NO_QUERIES, SURPLUS_MOST
from emberkeep.jobs.periodic.model import DeleteFiles, Explain, MakeSavepoint, WriteRetention
from tests.unit.jobs.periodic.periodic_job import BEGAN_MS, HOUR, QUERIES, PeriodicJob, savepoint, settings

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


def test_one_savepoint_is_made_in_each_interval() -> None:
    job = PeriodicJob(settings(retained=100))
    job.works(10 * HOUR)
    assert job.made_ms == [BEGAN_MS + number * HOUR_MS for number in range(1, 11)]


def test_a_job_without_an_interval_gets_none() -> None:
    job = PeriodicJob(settings(interval=0.0))
    job.works(10 * HOUR)
    assert job.made_ms == []
    assert job.machine.view() is None


def test_a_savepoint_waits_until_the_job_is_free() -> None:
    job = PeriodicJob(is_free=False)
    assert job.look(2 * HOUR) == []
    job.is_free = True
    assert job.look() == [MakeSavepoint()]


def test_a_new_leader_continues_the_interval_of_the_previous_one() -> None:
    job = PeriodicJob()
    job.works(1.5 * HOUR)
    job.take_over()
    assert job.look(29 * 60.0) == []
    assert job.look(2 * 60.0) == [MakeSavepoint()]


def test_after_a_long_pause_of_all_leaders_one_savepoint_is_due_and_not_several() -> None:
    job = PeriodicJob()
    job.works(HOUR)
    job.passes(20 * HOUR)
    job.take_over()
    job.works(HOUR / 2)
    assert len(job.made_ms) == 2


def test_overdue_savepoints_of_many_jobs_are_spread_by_a_new_leader() -> None:
    jobs = [PeriodicJob(ms=BEGAN_MS + 5 * HOUR_MS, spread=number / 10) for number in range(10)]
    assert [bool(job.look(151.0)) for job in jobs] == [True] * 6 + [False] * 4


def test_a_clock_that_was_ahead_delays_the_next_savepoint_by_one_interval_at_most() -> None:
    job = PeriodicJob(pointers=JobPointers(savepoints=(savepoint(1, BEGAN_MS + 900 * HOUR_MS),)))
    assert job.look(HOUR) == [MakeSavepoint()]


def test_a_restarted_driver_begins_to_work_before_its_overdue_savepoint_is_made() -> None:
    job = PeriodicJob(is_free=False)
    job.look(2 * HOUR)
    job.attempt, job.is_free = 2, True
    assert job.look() == []
    assert job.look(29.0) == []
    assert job.look(2.0) == [MakeSavepoint()]


def test_a_failed_savepoint_is_tried_again_sooner_and_then_ever_later() -> None:
    job = PeriodicJob()
    pauses, last = [], 0.0
    for _ in range(200):
        if MakeSavepoint() in job.look(60.0):
            pauses.append(job.now - last)
            last = job.now
            job.machine.failed("no space", None, now=job.now, ms=job.ms)
    assert [round(pause / 60) for pause in pauses[1:9]] == [1, 1, 2, 4, 8, 16, 32, 60]
    view = job.machine.view()
    assert view is not None
    assert "no space" in view.problem
    assert view.failures == len(pauses)
    job.make()
    view = job.machine.view()
    assert view is not None
    assert (view.problem, view.failures, view.due_ms) == ("", 0, job.ms + HOUR_MS)


def test_a_request_that_was_never_recorded_is_followed_by_a_pause() -> None:
    job = PeriodicJob()
    assert job.look(HOUR) == [MakeSavepoint()]
    assert job.look(1.0) == []
    assert job.look(30.0) == [MakeSavepoint()]


def test_a_job_without_streaming_queries_is_told_so_once() -> None:
    job = PeriodicJob(queries=frozenset())
    job.works(5 * HOUR)
    assert job.explained == [NO_QUERIES]
    assert job.made_ms == []
    job.queries = QUERIES
    assert job.look() == [MakeSavepoint()]


def test_a_job_whose_queries_cannot_be_saved_is_told_so_once_and_left_alone() -> None:
    job = PeriodicJob()
    assert job.look(HOUR) == [MakeSavepoint()]
    told = job.machine.failed("the query runs as ContinuousExecution", QUERIES, now=job.now, ms=job.ms)
    assert told == [Explain("the query runs as ContinuousExecution")]
    job.works(10 * HOUR)
    assert job.made_ms == []
    view = job.machine.view()
    assert view is not None
    assert (view.due_ms, view.problem) == (0, "the query runs as ContinuousExecution")
    job.queries = frozenset({"another"})
    assert job.look() == [MakeSavepoint()], "other queries may be possible to save"


def test_only_the_newest_are_kept_and_records_go_after_files() -> None:
    job = PeriodicJob(settings(retained=2))
    job.works(4 * HOUR)
    job.works(10 * 60.0)
    assert job.kept() == ["/savepoints/3", "/savepoints/4"]
    assert job.files == set(job.kept())
    assert len(job.pointers.savepoints) == 2


def test_nothing_is_deleted_before_it_is_recorded_as_retired() -> None:
    job = PeriodicJob(settings(retained=1))
    first, second = job.make(), job.make()
    (write,) = job.look()
    assert write == WriteRetention((first,), ())
    assert job.machine.is_retiring(first.path), "nobody may start from it while that is written"
    assert job.look() == []
    job.carry_out(write)
    (delete,) = job.look()
    assert isinstance(delete, DeleteFiles)
    assert (delete.savepoint.path, delete.sibling) == (first.path, second)
    assert job.look() == []
    job.machine.deleted(first.path)
    (forget,) = job.look()
    assert forget == WriteRetention((), (delete.savepoint,))


def test_a_new_leader_finishes_a_deletion_that_was_recorded() -> None:
    job = PeriodicJob(settings(retained=1))
    job.make()
    job.make()
    for effect in job.look():
        job.carry_out(effect)
    job.take_over()
    assert job.machine.is_retiring("file:///savepoints/1")
    job.works(180.0)
    assert [each.path for each in job.pointers.savepoints] == ["/savepoints/2"]


def test_savepoints_that_somebody_asked_for_are_never_retired() -> None:
    job = PeriodicJob(settings(retained=1, max_age=60.0))
    asked_for = [job.make(periodic=False).path for _ in range(5)]
    job.works(5.25 * HOUR)
    assert set(asked_for) <= set(job.kept())
    assert job.files == {*asked_for, job.kept()[-1]}


def test_savepoints_expire_by_age_except_the_newest() -> None:
    job = PeriodicJob(settings(interval=HOUR, retained=100, max_age=3.5 * HOUR))
    job.works(10.25 * HOUR)
    assert job.kept() == [f"/savepoints/{number}" for number in (7, 8, 9, 10)]


def test_the_newest_savepoint_is_kept_at_any_age() -> None:
    job = PeriodicJob(settings(interval=HOUR, retained=100, max_age=HOUR / 2))
    job.works(3.25 * HOUR)
    job.is_free = False
    job.works(100 * HOUR)
    assert job.kept() == ["/savepoints/3"]


def test_a_pause_without_savepoints_counts_for_two_intervals() -> None:
    job = PeriodicJob(settings(interval=HOUR, retained=100, max_age=3.5 * HOUR))
    job.works(10.25 * HOUR)
    job.is_free = False
    job.works(100 * HOUR)
    assert job.kept() == ["/savepoints/9", "/savepoints/10"]
    job.is_free = True
    job.works(0.25 * HOUR)
    assert job.kept() == ["/savepoints/9", "/savepoints/10", "/savepoints/11"]
    job.works(2 * HOUR)
    assert job.kept() == [f"/savepoints/{number}" for number in (11, 12, 13)]


def test_a_clock_that_jumps_ahead_deletes_hardly_more_than_a_clock_that_does_not() -> None:
    job = PeriodicJob(settings(interval=HOUR, retained=100, max_age=6.5 * HOUR))
    job.works(10.25 * HOUR)
    assert len(job.kept()) == 7
    job.ms += 30 * 24 * HOUR_MS
    job.take_over()
    job.works(0.75 * HOUR)
    assert job.kept()[-1] == "/savepoints/11"
    assert len(job.kept()) == 5
    job.ms -= 30 * 24 * HOUR_MS
    job.take_over()
    job.works(0.5 * HOUR)
    assert len(job.kept()) >= 5


def test_a_savepoint_that_a_job_has_started_from_stays_until_that_job_has_ended() -> None:
    job = PeriodicJob(settings(retained=1))
    job.make()
    job.needed = {"/savepoints/1"}
    job.works(3.25 * HOUR)
    assert job.kept() == ["/savepoints/1", "/savepoints/4"]
    job.needed = set()
    job.works(180.0)
    assert job.kept() == ["/savepoints/4"]


def test_a_failed_deletion_is_repeated_after_a_pause_and_told_once() -> None:
    job = PeriodicJob(settings(retained=1))
    job.make()
    job.make()
    for effect in job.look():
        job.carry_out(effect)
    news, tries = [], []
    for _ in range(60):
        if any(isinstance(effect, DeleteFiles) for effect in job.look(10.0)):
            tries.append(job.now)
            news.append(job.machine.not_deleted("access denied", now=job.now))
    assert news == [True, *[False] * (len(tries) - 1)]
    assert [round(after - before) for before, after in pairwise(tries)] == [10, 20, 40, 80, 160]
    view = job.machine.view()
    assert view is not None
    assert (view.retiring, view.problem) == (1, "access denied")


def test_a_savepoint_that_cannot_be_deleted_keeps_neither_others_nor_new_ones() -> None:
    job = PeriodicJob(settings(retained=2))
    news = []
    for _ in range(60 * (SURPLUS_MOST + 10) + 15):
        for effect in job.look(60.0):
            if isinstance(effect, DeleteFiles) and effect.savepoint.path == "/savepoints/1":
                news.append(job.machine.not_deleted("its manifest is damaged", now=job.now))
            else:
                job.carry_out(effect)
    assert [each.path for each in job.pointers.savepoints] == [
        f"/savepoints/{number}" for number in (1, SURPLUS_MOST + 9, SURPLUS_MOST + 10)
    ]
    assert len(news) > 1
    assert news.count(True) == 1
    view = job.machine.view()
    assert view is not None
    assert (view.kept, view.retiring, view.problem) == (2, 1, "its manifest is damaged")


def test_no_further_savepoint_is_made_while_too_many_cannot_be_deleted() -> None:
    job = PeriodicJob(settings(retained=2))
    for _ in range(100):
        for effect in job.look(HOUR):
            if isinstance(effect, DeleteFiles):
                job.machine.not_deleted("access denied", now=job.now)
            else:
                job.carry_out(effect)
    assert len(job.pointers.savepoints) == 2 + SURPLUS_MOST
    assert len(job.explained) == 1
    assert "access denied" in job.explained[0]
    job.works(HOUR)
    assert len(job.kept()) == 2


def test_a_job_that_ended_before_the_record_was_written_keeps_its_savepoints() -> None:
    job = PeriodicJob(settings(retained=1))
    job.make()
    job.make()
    job.look()
    job.machine.written(None)
    assert not job.machine.is_retiring("/savepoints/1")


@pytest.mark.parametrize("spread", [0.0, 0.5, 1.0])
def test_the_first_savepoint_comes_one_interval_after_the_submission(spread: float) -> None:
    job = PeriodicJob(spread=spread)
    assert job.look(HOUR - 1.0) == []
    assert job.look(1.0) == [MakeSavepoint()]


def test_periodic_savepoints_push_no_other_out_of_the_record() -> None:
    pointers = JobPointers()
    for number in range(60):
        pointers = merged(pointers, 1, (), (savepoint(number, BEGAN_MS + number, periodic=number % 2 == 0),))
    assert sum(each.periodic for each in pointers.savepoints) == 30
    assert [each.created_ms - BEGAN_MS for each in pointers.savepoints if not each.periodic] == list(range(21, 60, 2))
