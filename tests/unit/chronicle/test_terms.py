"""The leaders, one after the other, and why each of them stopped."""

from __future__ import annotations

from emberkeep.chronicle.occurrence import Occurrence, What
from emberkeep.chronicle.terms import UNKNOWN_END, LeaderTerm, StoreDoubt, leader_terms, store_doubts
from tests.unit.chronicle.occurrences import at


def started(second: int, epoch: int) -> Occurrence:
    details = {"address": f"jm-{epoch}:8081", "name": f"jm-{epoch}"}
    return at(second, What.LEADER_STARTED, epoch=epoch, number=1, details=details)


def test_each_leader_has_a_term_with_the_reason_of_its_end() -> None:
    stream = [
        started(1, 4),
        at(9, What.LEADER_ENDED, epoch=4, number=2, details={"reason": "it was shut down"}),
        started(10, 5),
        at(12, What.BLOCKED, epoch=5, number=2),
        started(20, 6),
    ]
    assert leader_terms(stream) == (
        LeaderTerm(epoch=6, address="jm-6:8081", name="jm-6", began_ms=20_000),
        LeaderTerm(epoch=5, address="jm-5:8081", name="jm-5", began_ms=10_000, ended_ms=20_000, why_ended=UNKNOWN_END),
        LeaderTerm(
            epoch=4, address="jm-4:8081", name="jm-4", began_ms=1000, ended_ms=9000, why_ended="it was shut down"
        ),
    )


def test_the_last_word_of_a_leader_whose_start_is_no_longer_kept_shows_nothing() -> None:
    assert leader_terms([at(9, What.LEADER_ENDED, epoch=4, details={"reason": "x"})]) == ()


def test_a_doubt_ends_when_the_store_confirms_the_same_leader() -> None:
    def doubted(second: int, epoch: int) -> Occurrence:
        return at(second, What.STORE_IN_DOUBT, epoch=epoch, number=second, details={"reason": "no answer"})

    stream = [
        doubted(1, 4),
        at(3, What.STORE_BACK, epoch=4, number=3),
        doubted(5, 4),
        started(10, 5),
        at(11, What.STORE_BACK, epoch=5, number=11),
        doubted(12, 5),
    ]
    assert [(each.epoch, each.began_ms, each.ended_ms) for each in store_doubts(stream)] == [
        (5, 12_000, None),
        (4, 5_000, None),
        (4, 1_000, 3_000),
    ]
    assert store_doubts(stream)[0] == StoreDoubt(epoch=5, began_ms=12_000, reason="no answer")
