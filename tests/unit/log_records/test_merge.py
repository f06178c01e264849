"""Several logs in the order of time."""

from __future__ import annotations

from emberkeep.log_records.merge import Merged, Part, merge
from emberkeep.log_records.model import Record
from emberkeep.log_records.scan import Found


def part(name: str, *times: int | None, edge: int | None = None, is_last: bool = True, start: int = 0) -> Part:
    """A log with one record of ten bytes for each time."""
    records = tuple(Record(offset=start + 10 * number, data=bytes(10), time=time) for number, time in enumerate(times))
    end = start + 10 * len(times) + 5
    return Part(name, Found(records=records, start=start, end=end, edge_ms=edge), is_last)


def order(merged: Merged) -> list[tuple[str, int | None]]:
    return [(log, record.time) for log, record in merged.records]


def test_records_are_in_the_order_of_time_then_of_logs() -> None:
    merged = merge([part("d", 1, 4, 4), part("0", None, 4, 2)], 10)

    assert order(merged) == [("0", None), ("d", 1), ("d", 4), ("d", 4), ("0", 4), ("0", 2)]
    assert merged.positions == {"d": 35, "0": 35}


def test_nothing_is_returned_that_a_later_part_may_precede() -> None:
    merged = merge([part("d", 1, 5, edge=5, is_last=False), part("0", 3, 9, 10, edge=12, is_last=False)], 10)

    assert order(merged) == [("d", 1), ("0", 3), ("d", 5)]
    assert merged.positions == {"d": 25, "0": 10}


def test_backwards_nothing_is_returned_that_an_earlier_part_may_follow() -> None:
    merged = merge(
        [part("d", 7, 9, edge=7, is_last=False), part("0", 3, 6, 8, edge=2, is_last=False)], 10, backwards=True
    )

    assert order(merged) == [("d", 7), ("0", 8), ("d", 9)]
    assert merged.positions == {"d": 0, "0": 20}


def test_a_part_without_a_match_still_tells_how_far_it_was_searched() -> None:
    merged = merge([part("d", edge=6, is_last=False), part("0", 5, 7, edge=9, is_last=False)], 10)

    assert order(merged) == [("0", 5)]
    assert merged.positions == {"d": 5, "0": 10}


def test_the_limit_keeps_the_first_records_and_backwards_the_last() -> None:
    parts = [part("d", 1, 3), part("0", 2, 4)]

    assert order(merge(parts, 3)) == [("d", 1), ("0", 2), ("d", 3)]
    assert merge(parts, 3).positions == {"d": 25, "0": 10}
    last = merge(parts, 3, backwards=True)
    assert order(last) == [("0", 2), ("d", 3), ("0", 4)]
    assert last.positions == {"d": 10, "0": 0}
