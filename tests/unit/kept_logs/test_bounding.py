"""Which bytes of a growing log are freed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emberkeep.kept_logs.bounding import BLOCK, SMALLEST_BOUND, to_free

MOST = 80 * BLOCK
NOTHING, EVERYTHING = 0, 10**12


@pytest.mark.parametrize(
    ("blocks", "stored", "freed"),
    [
        (60, EVERYTHING, None),  # three quarters of the bound
        (61, EVERYTHING, (10, 31)),  # down to half of it, without the first eighth
        (61, NOTHING, None),  # what is not stored waits
        (70, NOTHING, None),
        (61, 20 * BLOCK, (10, 20)),
        (71, NOTHING, (10, 21)),  # above seven eighths: down to three quarters
        (71, 15 * BLOCK, (10, 21)),
        (71, 25 * BLOCK, (10, 25)),
        (500, NOTHING, (10, 450)),
    ],
)
def test_the_start_and_the_newest_bytes_stay(blocks: int, stored: int, freed: tuple[int, int] | None) -> None:
    expected = None if freed is None else (freed[0] * BLOCK, freed[1] * BLOCK)

    assert to_free([(0, blocks * BLOCK)], MOST, stored) == expected


def test_what_was_freed_before_does_not_count() -> None:
    kept = [(0, 10 * BLOCK), (1000 * BLOCK, 1051 * BLOCK)]

    assert to_free(kept, MOST, EVERYTHING) == (10 * BLOCK, 1021 * BLOCK)
    assert to_free(kept, MOST, 900 * BLOCK) is None


@given(
    most=st.integers(SMALLEST_BOUND, 100 * SMALLEST_BOUND),
    grows=st.lists(st.tuples(st.integers(0, SMALLEST_BOUND * 30), st.floats(0, 1)), max_size=30),
)
def test_a_log_never_takes_more_than_its_bound_after_a_look(most: int, grows: list[tuple[int, float]]) -> None:
    size, hole = 0, (0, 0)
    for grown, share in grows:
        size += grown
        kept = [(0, hole[0]), (hole[1], size)] if hole[1] else [(0, size)]
        freed = to_free(kept, most, int(share * size))
        if freed is not None:
            assert freed[0] % BLOCK == freed[1] % BLOCK == 0
            assert freed[1] > hole[1], "it frees something"
            assert size - freed[1] >= most // 4, "the newest bytes stay"
            hole = freed
        used = size - (hole[1] - hole[0])
        assert used <= most * 7 // 8 + BLOCK
