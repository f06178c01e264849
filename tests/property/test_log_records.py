"""Whatever a log contains, and however it is read: no byte is lost, and no work is unbounded."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from emberkeep.log_records import scan
from emberkeep.log_records.headers import parse_header
from emberkeep.log_records.model import Level, Record, Selection
from emberkeep.log_records.records import split_records
from emberkeep.log_records.scan import Contents, Search, search

LINES = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        (
            b"26/01/31 18:00:01 ERROR Executor: it failed",
            b"26/01/31 18:00:02.5 INFO [main] Executor: it works",
            b"2026-01-31 18:00:00,123 - app - WARNING - odd",
            b"\tat org.apache.spark.Somewhere",
            b"Traceback (most recent call last):",
            b"Caused by: error",
            b"",
            b"printed",
        )
    ),
)
LOGS = st.lists(LINES, max_size=30).map(b"\n".join)
SELECTIONS = st.builds(
    Selection,
    texts=st.lists(st.sampled_from(("error", "it", "Ö", "printed")), max_size=2).map(tuple),
    level=st.none() | st.sampled_from(Level),
    since_ms=st.sampled_from((0, 1_769_882_401_000)),
)


def same(local_ms: int) -> int:
    return local_ms


def contents(data: bytes) -> Contents:
    return Contents(lambda offset, count: data[offset : offset + max(0, count)], len(data), True, same)


def steps(data: bytes, selection: Selection, limit: int, *, backwards: bool) -> list[Record]:
    """All records that a client finds step by step."""
    found: list[Record] = []
    offset = len(data) if backwards else 0
    while offset > 0 if backwards else offset < len(data):
        result = search(
            contents(data),
            Search(selection=selection, offset=offset, limit=limit, most_bytes=60, backwards=backwards),
        )
        assert len(result.records) <= limit
        assert result.start < offset if backwards else result.end > offset
        offset = result.start if backwards else result.end
        found = [*result.records, *found] if backwards else [*found, *result.records]
    return found


@given(LOGS)
def test_records_are_the_bytes_of_the_log(data: bytes) -> None:
    assert b"".join(record.data for record in split_records(data, 0, same)) == data


@given(LOGS, SELECTIONS, st.integers(1, 5))
def test_a_search_in_steps_finds_what_one_look_at_the_whole_finds(
    data: bytes, selection: Selection, limit: int
) -> None:
    expected = [record for record in split_records(data, 0, same) if selection.matches(record)]

    assert steps(data, selection, limit, backwards=False) == expected
    assert steps(data, selection, limit, backwards=True) == expected


@given(LOGS, st.booleans())
def test_no_byte_is_lost_between_windows(data: bytes, backwards: bool) -> None:
    with patch.object(scan, "WINDOW", 128):
        found = steps(data, Selection(), 1000, backwards=backwards)

    assert b"".join(record.data for record in found) == data


@given(st.binary(max_size=200) | st.text('[]{}":0123456789/-+ WARNtime.,Z', max_size=200).map(str.encode))
def test_every_line_can_be_looked_at(line: bytes) -> None:
    header = parse_header(line, same)
    assert header is None or header.time is None or header.time >= 0
