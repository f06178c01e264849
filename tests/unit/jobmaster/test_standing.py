"""What a process knows about its attempt, by time: confirmations hold for a while, then only marks count."""

from __future__ import annotations

import pytest

from emberkeep.jobmaster.standing import AttemptStanding

pytestmark = pytest.mark.req("HA-7")

FREEZE = 10.0


def test_a_confirmation_holds_for_so_long_and_counts_from_the_question() -> None:
    standing = AttemptStanding(FREEZE, 0.0)
    standing.look(4.0)
    standing.confirmed(3.0)
    standing.look(13.0)
    assert not standing.is_alone()
    assert not standing.is_in_doubt()
    standing.look(13.1)
    assert standing.is_alone()
    assert standing.is_in_doubt()
    assert not standing.was_stopped()


def test_a_leader_is_asked_and_marks_are_read_before_they_are_needed() -> None:
    standing = AttemptStanding(FREEZE, 0.0)
    needs = {}
    for now in range(11):
        standing.look(float(now))
        needs[now] = (standing.needs_confirmation(), standing.needs_marks())
    assert needs == {now: (now >= 3, now >= 5) for now in range(11)}


def test_marks_end_the_doubt_of_a_lonely_process_but_not_its_solitude() -> None:
    standing = AttemptStanding(FREEZE, 0.0)
    for now in (5.0, 10.0, 15.0):
        standing.look(now)
    assert standing.is_in_doubt()
    standing.marks_read(14.0)
    assert not standing.is_in_doubt()
    assert standing.is_alone()
    assert not standing.needs_marks()
    standing.look(16.5)
    assert standing.needs_marks()
    standing.look(24.1)
    assert standing.is_in_doubt()
    standing.confirmed(24.0)
    assert not standing.is_in_doubt()
    assert not standing.is_alone()


def test_an_older_confirmation_or_reading_takes_nothing_back() -> None:
    standing = AttemptStanding(FREEZE, 0.0)
    standing.look(8.0)
    standing.confirmed(8.0)
    standing.confirmed(1.0)
    standing.marks_read(1.0)
    standing.look(18.0)
    assert not standing.is_alone()
    assert not standing.is_in_doubt()


def test_only_a_leader_that_is_asked_after_a_stop_ends_its_doubt() -> None:
    standing = AttemptStanding(FREEZE, 0.0)
    standing.look(30.0)
    assert standing.was_stopped()
    standing.marks_read(30.0)
    standing.confirmed(29.9)
    assert standing.is_in_doubt()
    standing.confirmed(30.0)
    assert not standing.is_in_doubt()
    assert not standing.was_stopped()
