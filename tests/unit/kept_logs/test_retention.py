"""Which stored parts of a job's logs are dropped."""

from __future__ import annotations

from emberkeep.kept_logs.retention import FILE_COST, Segment, surplus

COST = FILE_COST + 10


def segment(log: str, start: int, changed_ms: int, stored: int = 10) -> Segment:
    return Segment(log=log, start=start, epoch=1, stored=stored, changed_ms=changed_ms)


LOG = [segment("a", start, changed_ms=start) for start in (0, 1, 2, 3)]


def test_nothing_is_dropped_that_fits() -> None:
    assert surplus(LOG, 4 * COST, 0) == []


def test_the_oldest_in_the_middle_is_dropped_first() -> None:
    assert surplus(LOG, 4 * COST - 1, 0) == [LOG[1]]
    assert surplus(LOG, 2 * COST, 0) == [LOG[1], LOG[2]]


def test_then_the_oldest_beginning_of_a_log() -> None:
    assert surplus(LOG, COST, 0) == [LOG[1], LOG[2], LOG[0]]


def test_the_segment_that_is_written_stays_however_large_it_is() -> None:
    assert surplus([segment("a", 0, 1, 100)], COST, 0) == []
    assert surplus([segment("a", 0, 1), segment("b", 0, 2, 100)], COST, 0) == [segment("a", 0, 1)]


def test_the_middle_of_one_log_goes_before_the_ends_of_an_older_one() -> None:
    old = [segment("b", 0, -9), segment("b", 1, -8)]

    assert surplus([*old, *LOG], 5 * COST, -10) == [LOG[1]]


def test_what_is_too_old_is_dropped_even_if_there_is_room() -> None:
    assert surplus(LOG, 9 * COST, 2) == [LOG[0], LOG[1]]
    assert surplus(LOG, 9 * COST, 9) == LOG


def test_many_small_segments_are_too_much() -> None:
    small = [segment(str(number), 0, number, stored=100) for number in range(5000)]

    assert len(small) - len(surplus(small, 64 * 1024**2, 0)) < 64 * 1024**2 // FILE_COST
