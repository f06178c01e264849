"""What is remembered of a job's attempts."""

from emberkeep.base.ids import TaskManagerId
from emberkeep.jobs import events as ev
from emberkeep.jobs.history import JobHistory
from emberkeep.jobs.model import MOST_TEXT, AttemptOutcome, FailureKind
from emberkeep.jobs.restart import NoRestart
from tests.property.job_world import JobWorld

LOST = AttemptOutcome(exit_code=1, kind=FailureKind.LOST, message="lost")
DONE = AttemptOutcome(exit_code=0)
A, B = TaskManagerId("a"), TaskManagerId("b")


def test_an_attempt_has_its_place_its_times_and_its_last_outcome() -> None:
    history = JobHistory()
    history.attempt_started(1, None, 10)
    assert history.attempts()[0].task_manager == ""
    history.attempt_placed(1, A)
    history.attempt_ended(1, LOST, 20)
    history.attempt_ended(1, DONE, 30)
    (record,) = history.attempts()
    assert (record.attempt, record.task_manager, record.started_ms) == (1, A, 10)
    assert (record.ended_ms, record.outcome) == (30, DONE)


def test_news_of_an_older_attempt_changes_nothing() -> None:
    history = JobHistory()
    history.attempt_placed(1, A)
    history.attempt_ended(1, LOST, 5)
    assert history.attempts() == ()
    history.attempt_started(1, A, 10)
    history.attempt_started(2, B, 20)
    before = history.attempts()
    history.attempt_placed(1, B)
    history.attempt_ended(1, LOST, 30)
    assert history.attempts() == before


def test_a_failure_is_an_end_and_an_exception_at_the_attempts_place() -> None:
    history = JobHistory()
    history.attempt_started(1, A, 10)
    history.attempt_failed(1, LOST, 20)
    assert history.attempts()[0].outcome == LOST
    (entry,) = history.exceptions()
    assert (entry.timestamp_ms, entry.attempt, entry.kind, entry.message) == (20, 1, LOST.kind.value, "lost")  # type: ignore[union-attr]
    assert entry.task_manager == A
    history.note([entry])
    assert history.exceptions() == (entry,), "it is known"
    history.failed_unstarted(2, LOST, 30)
    assert [(each.attempt, each.task_manager) for each in history.exceptions()] == [(1, A), (2, "")]


def test_an_exception_that_quotes_megabytes_takes_a_bounded_part_of_what_is_kept() -> None:
    world = JobWorld(strategy=NoRestart())
    driver = world.to_running()
    long = AttemptOutcome(
        exit_code=1, kind=FailureKind.SCRIPT, message="Error: " + "m" * 1_000_000, traceback="t" * 1_000_000 + "the end"
    )
    world.tell(ev.OutcomeReported(1, long))
    driver.alive = False
    world.tell(ev.DriverExited(1, driver.place, long))
    world.write_result()
    result = world.stored_result
    assert result is not None
    (attempt,) = result.attempts
    (entry,) = result.exceptions
    assert attempt.outcome is not None
    assert attempt.outcome.traceback.endswith("the end")
    assert result.root_cause.startswith("Error: mmm")
    for text in (attempt.outcome.message, attempt.outcome.traceback, entry.message, entry.traceback, result.root_cause):
        assert 16_000 < len(text) <= MOST_TEXT
