"""A process that was stopped for long commits nothing before its attempt is confirmed."""

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
        clock.now += FREEZE
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


def waiting_for(lease: AttemptLease) -> threading.Thread:
    thread = threading.Thread(target=lease.wait, daemon=True)
    thread.start()
    return thread
