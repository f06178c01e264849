"""Whose silence is believed, and when a leader takes itself for the one that is cut off."""

from __future__ import annotations

import pytest

from emberkeep.base.ids import TaskManagerId
from emberkeep.jobs.hearing import Hearing

PATIENCE, DOUBT, DEAFNESS = 5.0, 20.0, 300.0
A, B, C = (TaskManagerId(name) for name in "abc")


class Leader:
    """A leader since 0, and who speaks to it every second."""

    def __init__(self, *, deafness: float | None = None) -> None:
        self.now = 0.0
        self.hearing = Hearing(self.now, patience=PATIENCE, longest_doubt=DOUBT, deafness=deafness)

    def hear(self, *peers: TaskManagerId, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1.0
            for peer in peers:
                self.hearing.heard(peer, self.now)

    def since(self) -> float | None:
        return self.hearing.since(self.now)

    def is_cut_off(self) -> bool:
        return self.hearing.is_cut_off(self.now)


@pytest.fixture
def leader() -> Leader:
    leader = Leader()
    leader.hear(A, B, C, seconds=10)
    assert leader.since() == 1.0
    return leader


def test_who_never_heard_anybody_believes_nothing_and_lets_nobody_else_lead() -> None:
    leader = Leader()
    leader.hear(seconds=1000)
    assert leader.since() is None
    assert not leader.is_cut_off()
    leader.hear(A, seconds=1)
    assert leader.since() == 1001.0


def test_unless_somebody_is_known_to_be_there() -> None:
    leader = Leader(deafness=DEAFNESS)
    leader.hear(seconds=299)
    assert not leader.is_cut_off()
    leader.hear(seconds=1)
    assert leader.is_cut_off()
    leader.hear(A, seconds=1)
    assert not leader.is_cut_off()


def test_one_that_falls_silent_among_others_is_believed(leader: Leader) -> None:
    leader.hear(A, B, seconds=100)
    assert leader.since() == 1.0
    # And is not counted any more: now it is one of two.
    leader.hear(A, seconds=100)
    assert leader.since() == 1.0
    assert not leader.is_cut_off()


def test_when_all_fall_silent_nothing_is_believed_however_long_that_lasts(leader: Leader) -> None:
    leader.hear(seconds=4)
    assert leader.since() == 1.0
    leader.hear(seconds=1)
    assert leader.since() is None
    assert not leader.is_cut_off()
    leader.hear(seconds=5)
    assert leader.is_cut_off()
    leader.hear(seconds=10_000)
    assert leader.since() is None


def test_the_only_one_that_falls_silent_is_not_believed_before_another_speaks() -> None:
    leader = Leader()
    leader.hear(A, seconds=10)
    leader.hear(seconds=100)
    assert leader.since() is None
    leader.hear(B, seconds=1)
    assert leader.since() == 111.0


def test_silence_counts_anew_when_most_are_heard_again(leader: Leader) -> None:
    leader.hear(seconds=100)
    leader.hear(A, seconds=1)
    assert leader.since() is None
    leader.hear(A, B, seconds=1)
    assert leader.since() == 112.0
    assert not leader.is_cut_off()


def test_most_of_them_are_given_up_in_the_end_while_some_are_heard(leader: Leader) -> None:
    leader.hear(A, seconds=5)
    assert leader.since() is None
    leader.hear(A, seconds=19)
    assert leader.since() is None
    assert leader.is_cut_off()
    leader.hear(A, seconds=1)
    assert leader.since() == 35.0
    assert not leader.is_cut_off()


def test_which_takes_as_long_from_when_some_are_heard_again(leader: Leader) -> None:
    leader.hear(seconds=1000)
    leader.hear(A, seconds=20)
    assert leader.since() is None
    leader.hear(A, seconds=1)
    assert leader.since() == 1031.0


def test_who_says_goodbye_is_not_missed(leader: Leader) -> None:
    leader.hearing.left(A)
    leader.hearing.left(B)
    leader.hear(C, seconds=100)
    assert leader.since() == 1.0
