"""However the records of several logs are merged in steps: no log loses a byte, and time never runs backwards."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from emberkeep.log_records.merge import Part, merge
from emberkeep.log_records.model import Record, Selection
from emberkeep.log_records.scan import Search, search
from tests.property.test_log_records import LOGS, contents


def _windows(logs: list[bytes], limit: int, *, backwards: bool) -> list[tuple[str, Record]]:
    """Merge the logs step by step, as the server does for a client."""
    positions = {str(number): len(data) if backwards else 0 for number, data in enumerate(logs)}
    done: Callable[[int, int], bool] = (lambda at, _: at == 0) if backwards else (lambda at, size: at == size)
    merged: list[tuple[str, Record]] = []
    while True:
        parts = []
        for number, data in enumerate(logs):
            wanted = Search(
                selection=Selection(), offset=positions[str(number)], limit=2, most_bytes=99, backwards=backwards
            )
            found = search(contents(data), wanted)
            parts.append(Part(str(number), found, done(found.start if backwards else found.end, len(data))))
        step = merge(parts, limit, backwards=backwards)
        if not step.records and step.positions == positions:
            return merged
        positions = dict(step.positions)
        merged = [*step.records, *merged] if backwards else [*merged, *step.records]


@given(st.lists(LOGS, min_size=1, max_size=3), st.integers(1, 4), st.booleans())
def test_merging_in_steps_keeps_each_log_whole_and_in_its_order(logs: list[bytes], limit: int, backwards: bool) -> None:
    merged = _windows(logs, limit, backwards=backwards)

    for number, data in enumerate(logs):
        assert b"".join(record.data for log, record in merged if log == str(number)) == data


@given(st.lists(st.lists(st.integers(0, 59), max_size=8).map(sorted), min_size=1, max_size=3), st.integers(1, 4))
def test_merged_records_are_in_the_order_of_time(seconds: list[list[int]], limit: int) -> None:
    logs = [b"".join(b"26/01/31 18:00:%02d INFO x\n" % second for second in log) for log in seconds]

    for backwards in (False, True):
        times = [record.time or 0 for _, record in _windows(logs, limit, backwards=backwards)]
        assert all(before <= after for before, after in pairwise(times))
