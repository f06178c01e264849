"""The stored form of occurrences: damaged lines are left out, and long streams are shortened fairly."""

from __future__ import annotations

import pytest

from emberkeep.chronicle.lines import decode_line, decode_lines, encode_line, in_order, kept_lines
from emberkeep.chronicle.occurrence import What, epoch_of, occurrence_id, shortened
from tests.unit.chronicle.occurrences import at


def test_an_occurrence_survives_its_line() -> None:
    written = at(5, What.SAVEPOINT, by="ana", attempt=2, node="n1", task_manager="tm-1", details={"savepoint": "/s"})
    assert decode_line(encode_line(written)) == written


@pytest.mark.parametrize(
    "change",
    [
        lambda line: line[:-10],
        lambda line: line.replace(b"savepoint", b"savepoinT"),
        lambda line: b"2" + line[1:],
        lambda line: b"",
        lambda line: b"\xff\xfe",
    ],
)
def test_a_damaged_line_is_left_out_and_the_others_stay(change: object) -> None:
    line = encode_line(at(1, What.SAVEPOINT))
    assert callable(change)
    data = change(line).rstrip(b"\n") + b"\n" + encode_line(at(2, What.SAVEPOINT))
    assert decode_lines(data) == [at(2, What.SAVEPOINT)]


def test_frequent_types_do_not_push_out_the_others() -> None:
    stream = [at(1, What.LEADER_STARTED), *(at(second, What.EXECUTORS_REGISTERED) for second in range(2, 40))]
    kept = decode_lines(b"".join(kept_lines([encode_line(each) for each in stream], 6)))
    assert kept == [stream[0], *stream[-3:]]


def test_lines_of_a_newer_release_are_kept() -> None:
    newer = b"2 00000000 {}\n"
    assert kept_lines([newer, encode_line(at(1, What.STATUS))], 2) == [newer, encode_line(at(1, What.STATUS))]


def test_a_stream_is_in_order_of_epochs_and_has_each_occurrence_once() -> None:
    old, new = at(9, What.STATUS, epoch=1), at(1, What.STATUS, epoch=2)
    assert in_order([new, old, new]) == [old, new]


def test_ids_sort_by_epoch_and_number() -> None:
    ids = [occurrence_id(2, 10), occurrence_id(10, 1), occurrence_id(1_795_000_000_000, 3)]
    assert ids == sorted(ids)
    assert [epoch_of(each) for each in ids] == [2, 10, 1_795_000_000_000]
    assert epoch_of("evil") == 0


def test_texts_are_short_and_on_one_line() -> None:
    assert shortened("a\n  b") == "a b"
    assert len(shortened("x" * 1000)) == 500
