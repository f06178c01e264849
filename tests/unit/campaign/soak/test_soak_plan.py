"""Rounds of a soak come from the seed, and every kind of deed comes again and again."""

from collections import Counter

from campaign.soak.plan import EVERY, JOBS, ROUND_SECONDS, draw_round


def test_the_seed_and_the_number_decide_a_round() -> None:
    assert draw_round(7, 3) == draw_round(7, 3)
    assert len({draw_round(7, number) for number in range(20)}) == 20


def test_each_kind_comes_as_often_as_planned_in_any_part_of_the_life() -> None:
    for first in (0, 60, 120):
        counts = Counter(deed.kind for number in range(first, first + 60) for deed in draw_round(7, number))
        assert {kind: counts[kind] for kind in EVERY} == {kind: 60 // every for kind, every in EVERY.items()}
        assert counts["job"] >= 60 * JOBS[0]


def test_deeds_begin_in_order_within_the_round() -> None:
    times = [deed.at for deed in draw_round(7, 0)]
    assert times == sorted(times)
    assert times[-1] < ROUND_SECONDS
