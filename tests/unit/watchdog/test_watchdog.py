"""When the watchdog raises an alarm about a job, and when the alarm is over."""

from __future__ import annotations

import pytest

from emberkeep.watchdog.machine import QUERIES_WATCHED, JobWatch
from emberkeep.watchdog.model import Alarm, AlarmKind, Cleared, QueryFacts, Raised, RestartAdvised
from tests.unit.watchdog.watched import SETTINGS, WatchedJob, settings


def with_usual_batches(job: WatchedJob, duration: float = 2.0) -> WatchedJob:
    for _ in range(5):
        job.commit(duration, duration=duration)
    return job


# --- no commit --------------------------------------------------------------------------------------------------------


def test_a_query_that_works_without_a_commit_raises_one_alarm_until_it_commits() -> None:
    job = with_usual_batches(WatchedJob())
    for _ in range(300):
        job.look()
    assert job.raised() == [AlarmKind.NO_COMMIT]
    alarm = job.alarms[0]
    assert alarm == Alarm(
        kind=AlarmKind.NO_COMMIT,
        query="delays",
        since_ms=int((job.now - 300 + 101) * 1000),
        message="no micro-batch was committed for 101 s, although the query does not wait for data; "
        "its batches usually take 2.0 s",
    )
    assert job.commit() == [Cleared(alarm)]
    assert job.alarms == ()


def test_the_limit_follows_from_the_usual_time_of_a_batch() -> None:
    job = with_usual_batches(WatchedJob(), duration=60.0)
    job.commit(60.0, duration=6000.0)  # one slow batch changes little
    job.look(600.0)
    assert job.raised() == []
    job.look(1.0)
    assert job.raised() == [AlarmKind.NO_COMMIT]


def test_the_first_batches_may_take_longer() -> None:
    job = WatchedJob(batch=-1)
    job.look()
    job.look(500.0)
    assert job.raised() == []
    job.look()
    assert job.raised() == [AlarmKind.NO_COMMIT]


def test_a_query_without_data_is_well() -> None:
    job = with_usual_batches(WatchedJob())
    for _ in range(1000):
        job.look(waits=True)
    job.look(90.0)  # it looks for new data
    job.look(90.0, waits=True)
    assert job.raised() == []


def test_an_old_report_that_is_repeated_shows_no_life() -> None:
    job = with_usual_batches(WatchedJob())
    job.look(waits=True)
    job.look(101.0, waits=True, again=True)
    assert job.raised() == [AlarmKind.NO_COMMIT]
    job.look(waits=True)
    assert job.cleared() == [AlarmKind.NO_COMMIT]


def test_a_query_that_is_held_for_a_savepoint_is_not_stuck() -> None:
    job = with_usual_batches(WatchedJob())
    for _ in range(1000):
        job.look(held=True)
    job.look(100.0)
    assert job.raised() == []


def test_a_restart_gives_the_query_time_and_does_not_end_the_alarm() -> None:
    job = with_usual_batches(WatchedJob())
    job.look(101.0)
    job.restart(100.0)
    job.look()
    assert (job.raised(), job.cleared()) == ([AlarmKind.NO_COMMIT], [])
    job.commit()
    assert job.cleared() == [AlarmKind.NO_COMMIT]
    job.restart(100.0)
    job.look()
    job.look(100.0)
    assert job.raised() == [AlarmKind.NO_COMMIT]


def test_the_first_batch_of_an_attempt_may_take_longer() -> None:
    job = with_usual_batches(WatchedJob())
    job.restart()
    job.batch = -1  # nothing in this attempt
    job.look()
    job.look(500.0)
    assert job.raised() == []
    job.look()
    assert job.raised() == [AlarmKind.NO_COMMIT]
    job.batch = 6
    job.look()
    job.look(101.0)
    assert job.raised() == [AlarmKind.NO_COMMIT] * 2


def test_an_alarm_about_a_query_that_has_ended_is_over() -> None:
    job = with_usual_batches(WatchedJob())
    job.look(101.0)
    job.look(299.0, listed=False)
    assert job.alarms
    job.look(2.0, listed=False)
    assert job.cleared() == [AlarmKind.NO_COMMIT]


def test_alarms_are_over_when_the_job_has_ended() -> None:
    job = with_usual_batches(WatchedJob())
    job.look(101.0)
    (alarm,) = job.alarms
    assert job.watch.ended() == [Cleared(alarm)]
    assert job.watch.ended() == []


# --- backlog ----------------------------------------------------------------------------------------------------------


def test_a_backlog_that_grows_for_a_time_raises_an_alarm_until_half_is_worked_off() -> None:
    job = WatchedJob()
    for step in range(40):
        job.look(10.0, waits=True, backlog=1000 + 100 * step)
    assert job.raised() == [AlarmKind.BACKLOG]
    assert job.alarms[0].message == "the backlog has grown for 300 s, from 1,000 to 4,000 rows"
    job.look(waits=True, backlog=3000)
    assert job.cleared() == []
    job.look(waits=True, backlog=2450)
    assert job.cleared() == [AlarmKind.BACKLOG]


def test_a_backlog_that_comes_back_to_its_lowest_value_does_not_grow() -> None:
    job = WatchedJob()
    for step in range(1000):
        job.look(10.0, waits=True, backlog=(step % 25) * 1000)
    assert job.raised() == []


def test_a_small_or_unknown_backlog_raises_no_alarm() -> None:
    job = WatchedJob()
    for step in range(999):
        job.look(10.0, waits=True, backlog=step)
    assert job.raised() == []
    for _ in range(100):
        job.look(10.0, waits=True)
    assert job.raised() == []


@pytest.mark.parametrize(
    ("measure", "step", "message"),
    [
        ("files", 10, "100 to 400 files"),
        ("size", 100 * 1024, "1.0 MiB to 3.9 MiB"),
        ("behind", 6.0, "60 to 240 s behind"),
    ],
)
def test_a_backlog_grows_as_its_sources_count_it(measure: str, step: float, message: str) -> None:
    job = WatchedJob()
    for number in range(40):
        job.look(10.0, waits=True, **{measure: step * (10 + number)})  # type: ignore[arg-type]
    assert job.raised() == [AlarmKind.BACKLOG]
    assert job.alarms[0].message == f"the backlog has grown for 300 s, from {message}"
    job.look(waits=True, **{measure: step * 20})  # type: ignore[arg-type]
    assert job.cleared() == [AlarmKind.BACKLOG]


def test_a_source_that_is_well_does_not_hide_another_one_that_falls_behind() -> None:
    job = WatchedJob()
    for number in range(40):
        job.look(10.0, waits=True, backlog=5_000 - number, files=100 + 10 * number, size=0)
    assert job.raised() == [AlarmKind.BACKLOG]
    assert job.cleared() == [], "the rows are well, but the files are not"
    job.look(waits=True, backlog=5_100, files=0, size=1)
    assert job.cleared() == [AlarmKind.BACKLOG]


def test_an_alarm_about_files_is_over_once_the_query_reads_another_source() -> None:
    job = WatchedJob()
    for number in range(40):
        job.look(10.0, waits=True, files=100 + 10 * number)
    job.look(waits=True)
    assert job.cleared() == [], "nothing is known"
    job.look(waits=True, backlog=0)
    assert job.cleared() == [AlarmKind.BACKLOG]


def test_few_files_few_bytes_and_a_short_time_raise_no_alarm() -> None:
    job = WatchedJob()
    for step in range(99):
        job.look(10.0, waits=True, files=step, size=1024 * step, behind=0.5 * step)
    assert job.raised() == []


# --- state ------------------------------------------------------------------------------------------------------------


def test_state_over_its_bound_raises_an_alarm_until_it_is_well_below_for_a_minute() -> None:
    job = WatchedJob()
    job.look(waits=True, state_rows=10_000)
    assert job.raised() == []
    for rows in (10_001, 9_500, 10_001, 8_000):
        job.look(waits=True, state_rows=rows)
    job.look(59.0, waits=True, state_rows=8_000)
    assert (job.raised(), job.cleared()) == ([AlarmKind.STATE], [])
    job.look(waits=True, state_rows=8_000)
    assert job.cleared() == [AlarmKind.STATE]


def test_state_has_no_bound_unless_one_is_set() -> None:
    job = WatchedJob(settings(state_max_rows=0))
    job.look(waits=True, state_rows=10**12)
    assert job.raised() == []


MIB = 1024**2


def test_the_memory_of_the_state_has_a_bound_of_its_own() -> None:
    job = WatchedJob(settings(state_max_rows=0, state_max_bytes=2048 * MIB))
    job.look(waits=True, state_rows=10**12, state_bytes=2048 * MIB)
    assert job.raised() == []
    job.look(waits=True, state_bytes=2048 * MIB + MIB // 2)
    (alarm,) = job.alarms
    assert alarm.message == "the state takes 2,048.5 MiB of memory; watchdog.state.max-size is 2,048.0 MiB"
    job.look(waits=True, state_bytes=1024 * MIB)
    job.look(60.0, waits=True, state_bytes=1024 * MIB)
    assert job.cleared() == [AlarmKind.STATE]


def test_state_is_small_again_once_it_is_below_both_bounds() -> None:
    job = WatchedJob(settings(state_max_bytes=100 * MIB))
    job.look(waits=True, state_rows=10_001, state_bytes=101 * MIB)
    assert job.alarms[0].message == (
        "the state has 10,001 rows; watchdog.state.max-rows is 10,000; "
        "the state takes 101.0 MiB of memory; watchdog.state.max-size is 100.0 MiB"
    )
    for _ in range(100):
        job.look(10.0, waits=True, state_rows=5, state_bytes=95 * MIB)
        job.look(10.0, waits=True, state_rows=9_500, state_bytes=5)
    assert (job.raised(), job.cleared()) == ([AlarmKind.STATE], [])
    for _ in range(7):
        job.look(10.0, waits=True, state_rows=5, state_bytes=5)
    assert job.cleared() == [AlarmKind.STATE]


def test_an_attempt_without_a_batch_says_nothing_about_the_state() -> None:
    job = WatchedJob()
    job.look(waits=True, state_rows=20_000)
    job.batch = -1
    for _ in range(100):
        job.look(waits=True, state_rows=0)
    assert job.cleared() == []


# --- restarts ---------------------------------------------------------------------------------------------------------


def test_a_restart_storm_raises_one_alarm_until_restarts_are_rare() -> None:
    job = WatchedJob()
    for _ in range(3):
        job.restart(10.0)
    assert job.raised() == []
    job.restart(10.0)
    job.restart(10.0)
    assert job.raised() == [AlarmKind.RESTARTS]
    assert job.alarms[0].query == ""
    job.look(590.0)
    assert job.cleared() == []
    job.look(20.0)
    assert job.cleared() == [AlarmKind.RESTARTS]


def test_moves_the_first_start_and_repeated_news_are_no_restarts() -> None:
    job = WatchedJob(attempt=0)
    for _ in range(10):
        job.restart(1.0, moved=job.attempt > 0)
        job.watch.begun(job.attempt, moved=False, now=job.now, ms=0)
    assert job.raised() == []


def test_restarts_that_earlier_leaders_have_seen_count_until_they_are_old() -> None:
    job = WatchedJob(attempt=4)
    job.watch.noted_before({2: job.now - 700.0, 3: job.now - 300.0, 4: job.now - 5.0, 5: job.now})
    job.restart(10.0)
    assert job.raised() == [], "the first is too old, and attempt 5 is this leader's own"
    job.restart(10.0)
    assert job.raised() == [AlarmKind.RESTARTS]


# --- restarts by the watchdog -----------------------------------------------------------------------------------------


def advised(job: WatchedJob) -> list[RestartAdvised]:
    return [effect for effect in job.effects if isinstance(effect, RestartAdvised)]


def test_a_restart_is_advised_only_if_the_settings_ask_for_it() -> None:
    job = with_usual_batches(WatchedJob())
    job.look(2000.0)
    assert job.raised() == [AlarmKind.NO_COMMIT]
    assert advised(job) == []


def test_a_restart_is_advised_once_for_an_attempt_and_not_again_before_the_pause() -> None:
    job = with_usual_batches(WatchedJob(settings(restarts_stalled=True)))
    for _ in range(300):
        job.look()
    assert [advice.attempt for advice in advised(job)] == [1]
    assert advised(job)[0].reason.startswith("query delays: no micro-batch was committed for 101 s")
    job.restart()
    for _ in range(600):
        job.look()
    assert len(advised(job)) == 1
    for _ in range(400):
        job.look()
    assert [advice.attempt for advice in advised(job)] == [1, 2]


def test_the_number_of_watched_queries_is_bounded() -> None:
    watch = JobWatch(SETTINGS, 1)
    queries = [
        QueryFacts(id=str(n), label=str(n), batch=1, duration=1.0, seen="1", waits=False, state_rows=10**9)
        for n in range(QUERIES_WATCHED + 10)
    ]
    effects = watch.reported(1, queries, held=False, now=1.0, ms=1000)
    watch.check_invariants()
    assert sum(isinstance(effect, Raised) for effect in effects) == QUERIES_WATCHED
