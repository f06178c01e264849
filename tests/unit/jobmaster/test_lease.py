"""A process that was stopped, or is alone, commits nothing before its attempt is known to be the current one."""

from __future__ import annotations

import threading

import pytest

from emberkeep.jobmaster.lease import AttemptLease

pytestmark = pytest.mark.req("HA-7")

FREEZE = 10.0
PATIENCE = 240.0  # seconds; no test waits for it


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lease(clock: Clock) -> AttemptLease:
    return AttemptLease(FREEZE, clock)


def test_time_that_passes_in_small_steps_brings_no_doubt(lease: AttemptLease, clock: Clock) -> None:
    for _ in range(100):
        asked = lease.asking()
        clock.now += FREEZE
        lease.confirmed(asked)
        assert not lease.look()
    lease.wait()


def test_a_gap_brings_doubt_whoever_looks_first(clock: Clock) -> None:
    for first in ("look", "asking", "wait"):
        lease = AttemptLease(FREEZE, clock)
        clock.now += FREEZE + 0.1
        if first == "wait":
            waiting = waiting_for(lease)
            assert lease.look()
            lease.confirmed(lease.asking())
            waiting.join(PATIENCE)
            assert not waiting.is_alive()
        else:
            getattr(lease, first)()
            assert lease.look()


def test_only_a_question_asked_after_the_gap_ends_the_doubt(lease: AttemptLease, clock: Clock) -> None:
    before = lease.asking()
    clock.now += 3 * FREEZE
    lease.confirmed(before)  # the answer lay in a buffer while this process was stopped
    assert lease.look()
    after = lease.asking()
    clock.now += 1
    lease.confirmed(after)
    assert not lease.look()


def test_a_stop_between_question_and_answer_leaves_the_doubt(lease: AttemptLease, clock: Clock) -> None:
    clock.now += 2 * FREEZE
    asked = lease.asking()
    clock.now += 2 * FREEZE
    lease.confirmed(asked)
    assert lease.look()


def test_who_wants_to_commit_waits_for_the_confirmation(lease: AttemptLease, clock: Clock) -> None:
    clock.now += 2 * FREEZE
    assert lease.look()
    waiting = waiting_for(lease)
    waiting.join(0.3)
    assert waiting.is_alive()
    lease.confirmed(lease.asking())
    waiting.join(PATIENCE)
    assert not waiting.is_alive()


def test_a_lonely_process_commits_after_a_reading_that_begins_after_the_commit(
    lease: AttemptLease, clock: Clock
) -> None:
    be_alone(lease, clock)
    early = lease.begin_reading()
    too_early = lease.ask_to_commit()
    lease.marks_read(early)
    assert not lease.may_commit(too_early)
    assert lease.needs_marks()
    reading = lease.begin_reading()
    assert not lease.may_commit(too_early)
    lease.marks_read(reading)
    assert lease.may_commit(too_early)
    assert not lease.may_commit(lease.ask_to_commit())


def test_a_confirmation_makes_readings_superfluous(lease: AttemptLease, clock: Clock) -> None:
    be_alone(lease, clock)
    assert not lease.may_commit(lease.ask_to_commit())
    lease.confirmed(lease.asking())
    assert lease.may_commit(lease.ask_to_commit())
    lease.begin_reading()
    assert not lease.needs_marks()


def test_a_reading_that_fails_or_takes_too_long_is_repeated(lease: AttemptLease, clock: Clock) -> None:
    be_alone(lease, clock)
    too_early = lease.ask_to_commit()
    lease.begin_reading()  # fails: nothing is noted
    assert not lease.may_commit(too_early)
    assert lease.needs_marks()
    slow = lease.begin_reading()
    pass_time(lease, clock, FREEZE + 1)
    lease.marks_read(slow)
    assert not lease.may_commit(too_early)
    assert lease.needs_marks()


def test_a_stop_during_the_reading_leaves_the_doubt(lease: AttemptLease, clock: Clock) -> None:
    be_alone(lease, clock)
    too_early = lease.ask_to_commit()
    reading = lease.begin_reading()
    clock.now += 2 * FREEZE
    lease.marks_read(reading)
    assert not lease.may_commit(too_early)
    lease.marks_read(lease.begin_reading())
    assert not lease.may_commit(too_early)
    assert lease.was_stopped()


def test_whoever_waits_alone_is_released_by_a_reading(lease: AttemptLease, clock: Clock) -> None:
    be_alone(lease, clock)
    waiting = waiting_for(lease)
    lease.wait_until_marks_are_needed()
    lease.marks_read(lease.begin_reading())
    for _ in range(100):  # the thread may have asked after that reading had begun
        waiting.join(0.05)
        if not waiting.is_alive():
            break
        lease.marks_read(lease.begin_reading())
    assert not waiting.is_alive()


def be_alone(lease: AttemptLease, clock: Clock) -> None:
    pass_time(lease, clock, FREEZE + 1)
    lease.marks_read(lease.begin_reading())
    assert not lease.look()


def pass_time(lease: AttemptLease, clock: Clock, seconds: float) -> None:
    """Let time pass in small steps, in which the process runs."""
    clock.now += seconds / 2
    lease.look()
    clock.now += seconds / 2
    lease.look()


def waiting_for(lease: AttemptLease) -> threading.Thread:
    thread = threading.Thread(target=lease.wait, daemon=True)
    thread.start()
    return thread
