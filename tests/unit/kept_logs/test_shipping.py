"""Which part of a log file is stored next."""

from __future__ import annotations

import pytest

from emberkeep.kept_logs.model import PIECE_BYTES, Position
from emberkeep.kept_logs.shipping import Cut, Part, cut, next_part


def position(end: int, source: int | None = None, *, is_whole: bool = False) -> Position:
    return Position(end=end, source=end if source is None else source, is_whole=is_whole)


@pytest.mark.parametrize(
    ("stored", "size", "has_ended", "expected"),
    [
        pytest.param(position(0), 0, False, None, id="an empty log waits"),
        pytest.param(position(0), 5, False, Part(source=0, offset=0, count=5), id="from the start"),
        pytest.param(position(5), 9, False, Part(source=5, offset=5, count=4), id="from where it is stored"),
        pytest.param(position(5), 5, False, None, id="nothing new"),
        pytest.param(position(5), 5, True, Part(source=5, offset=5, count=0), id="its end is stored as well"),
        pytest.param(position(0), 0, True, Part(source=0, offset=0, count=0), id="also if it is empty"),
        pytest.param(position(5, is_whole=True), 5, True, None, id="once"),
        pytest.param(
            position(5, is_whole=True), 9, True, Part(source=5, offset=5, count=4), id="it has grown after all"
        ),
        pytest.param(position(9), 4, False, Part(source=0, offset=9, count=4), id="a shorter file continues the log"),
        pytest.param(position(13, 4), 6, False, Part(source=4, offset=13, count=2), id="and is read on"),
    ],
)
def test_the_next_part(stored: Position, size: int, has_ended: bool, expected: Part | None) -> None:
    assert next_part(stored, size, has_ended=has_ended) == expected


def test_a_part_is_at_most_one_piece() -> None:
    part = next_part(position(7), PIECE_BYTES * 3, has_ended=True)

    assert part == Part(source=7, offset=7, count=PIECE_BYTES)


def test_of_a_log_that_is_far_behind_the_older_half_is_passed_over() -> None:
    assert next_part(position(10), 111, has_ended=False, most_behind=100) == Part(
        source=61, offset=61, count=50, skipped=True
    )
    assert next_part(position(10), 110, has_ended=False, most_behind=100) == Part(source=10, offset=10, count=100)


@pytest.mark.parametrize(
    ("data", "size", "has_ended", "expected"),
    [
        pytest.param(b"a\nb\nc", 15, False, b"a\nb\n", id="whole lines"),
        pytest.param(b"abc", 13, False, None, id="a line that is being written waits"),
        pytest.param(b"a\nbc", 14, True, b"a\nbc", id="not for a process that has ended"),
        pytest.param(b"a\nbc", 99, True, b"a\n", id="the part is not the end"),
        pytest.param(b"", 10, False, None, id="nothing"),
        pytest.param(b"", 10, True, b"", id="the end"),
    ],
)
def test_what_is_cut_from_a_part(data: bytes, size: int, has_ended: bool, expected: bytes | None) -> None:
    found = cut(Part(source=10, offset=110, count=len(data)), data, size, has_ended=has_ended)

    reaches_end = has_ended and 10 + len(data) >= size
    assert found == (None if expected is None else Cut(source=10, offset=110, data=expected, is_last=reaches_end))


def test_after_a_gap_the_first_whole_line_comes_first() -> None:
    found = cut(Part(source=10, offset=110, count=9, skipped=True), b"rest\nab\nc", 30, has_ended=False)

    assert found == Cut(source=15, offset=115, data=b"ab\n", is_last=False)


def test_a_line_that_is_longer_than_a_piece_is_cut() -> None:
    data = b"x" * PIECE_BYTES

    found = cut(Part(source=0, offset=0, count=PIECE_BYTES), data, PIECE_BYTES * 2, has_ended=False)

    assert found == Cut(source=0, offset=0, data=data, is_last=False)
