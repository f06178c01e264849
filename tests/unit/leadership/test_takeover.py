"""What refused connections prove, and what they do not."""

from __future__ import annotations

import pytest

from emberkeep.leadership.takeover import (
    FIRST_PATIENCE,
    LONGEST_PATIENCE,
    MOST_LIVES,
    REFUSALS,
    PortProbe,
    TakeoverRule,
)

pytestmark = pytest.mark.req("SAFE-13")

STEP = 0.25


class Prober:
    def __init__(self) -> None:
        self.rule = TakeoverRule()
        self.now = 0.0

    def sees(self, *answers: PortProbe, life: str = "a") -> bool:
        for answer in answers:
            self.now += STEP
            self.rule.probed(life, answer, self.now)
        return self.rule.is_gone(life, self.now)

    def seconds_until_gone(self) -> float:
        """With one refusal after the other; infinite when they prove nothing."""
        start = self.now
        while self.now < start + 2 * LONGEST_PATIENCE:
            if self.sees(PortProbe.REFUSED):
                return self.now - start
        return float("inf")


REFUSED = (PortProbe.REFUSED,) * REFUSALS


def test_a_process_that_has_answered_and_now_refuses_is_gone() -> None:
    prober = Prober()
    assert not prober.sees(PortProbe.ACCEPTED, *REFUSED[1:])
    assert prober.sees(PortProbe.REFUSED)
    assert not prober.rule.is_gone("b", prober.now)


@pytest.mark.parametrize("between", [PortProbe.SILENT, PortProbe.ACCEPTED])
def test_only_refusals_in_a_row_count(between: PortProbe) -> None:
    assert not Prober().sees(
        PortProbe.ACCEPTED, PortProbe.REFUSED, PortProbe.REFUSED, between, PortProbe.REFUSED, PortProbe.REFUSED
    )


def test_refusals_of_one_that_never_answered_prove_nothing() -> None:
    prober = Prober()
    prober.sees(PortProbe.SILENT)
    assert prober.seconds_until_gone() == float("inf")


def test_two_that_refuse_each_other_take_over_at_most_once_each() -> None:
    """Also when both had answered before."""
    probers = {"a": Prober(), "b": Prober()}
    for other, prober in (("b", probers["a"]), ("a", probers["b"])):
        prober.sees(PortProbe.ACCEPTED, life=other)
    changes, leader, standby = 0, "a", "b"
    for _ in range(10_000):
        if probers[standby].sees(PortProbe.REFUSED, life=leader):
            probers[standby].rule.took_over([leader])
            changes, leader, standby = changes + 1, standby, leader
    assert changes == 2


def test_a_port_that_refuses_now_and_then_is_waited_for_ever_longer() -> None:
    prober, waits = Prober(), []
    for _ in range(12):
        prober.sees(PortProbe.ACCEPTED)
        waits.append(prober.seconds_until_gone())
        prober.rule.took_over(["a"])
    assert waits[0] == REFUSALS * STEP
    patience = [min(FIRST_PATIENCE * 2**n, LONGEST_PATIENCE) for n in range(11)]
    assert waits[1:] == [pytest.approx(seconds + STEP) for seconds in patience]


def test_the_oldest_lives_are_forgotten() -> None:
    prober = Prober()
    prober.sees(PortProbe.ACCEPTED, *REFUSED)
    for number in range(MOST_LIVES):
        assert prober.rule.is_gone("a", prober.now)
        prober.rule.probed(number, PortProbe.ACCEPTED, prober.now)
    assert not prober.rule.is_gone("a", prober.now)


def test_an_answer_after_a_mistaken_takeover_counts_once() -> None:
    prober = Prober()
    prober.sees(PortProbe.ACCEPTED)
    assert prober.seconds_until_gone() == (REFUSALS - 1) * STEP + STEP
    prober.rule.took_over(["a"])
    prober.sees(*[PortProbe.ACCEPTED] * 4)
    patience = prober.seconds_until_gone()
    assert FIRST_PATIENCE <= patience <= FIRST_PATIENCE + 2 * STEP, "not longer for each answer"


def test_patience_begins_with_the_first_mistake_and_is_bounded() -> None:
    prober = Prober()
    for patience in (0.0, FIRST_PATIENCE, 2 * FIRST_PATIENCE):
        prober.sees(PortProbe.ACCEPTED)
        until_gone = prober.seconds_until_gone()
        assert max(patience, (REFUSALS - 1) * STEP) <= until_gone - STEP <= max(patience, REFUSALS * STEP) + STEP
        prober.rule.took_over(["a"])
