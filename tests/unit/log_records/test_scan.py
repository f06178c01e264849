"""Records of a log, found step by step."""

from __future__ import annotations

import pytest

from emberkeep.log_records import scan
from emberkeep.log_records.model import MOST_RECORD_BYTES, Level, Record, Selection
from emberkeep.log_records.records import split_records
from emberkeep.log_records.scan import Contents, Found, Search, search

SECOND = 1_769_882_400_000  # 2026-01-31T18:00:00Z
WARNING = b"26/01/31 18:00:00 WARN A: odd\n"
FAILURE = (
    b"26/01/31 18:00:01 ERROR Executor: Exception in task 0.0\n"
    b"org.apache.spark.SparkException: no\n"
    b"\tat org.apache.spark.rdd.RDD.iterator(RDD.scala:331)\n"
    b"Caused by: java.lang.IllegalStateException: Zw\xc3\xb6lf\n"
)
NOTE = b"26/01/31 18:00:02 INFO B: back to normal\n"
TRACEBACK = b'Traceback (most recent call last):\n  File "app.py", line 3\nValueError: no\n'


def log(data: bytes, *, complete: bool = True) -> Contents:
    def read(offset: int, count: int) -> bytes:
        return data[offset : offset + max(0, count)]

    return Contents(read, len(data), complete, lambda local: local)


def found(data: bytes, offset: int = 0, *, backwards: bool = False, limit: int = 100, **selection: object) -> Found:
    wanted = Selection(**selection)  # type: ignore[arg-type]
    return search(
        log(data), Search(selection=wanted, offset=offset, limit=limit, most_bytes=1024**2, backwards=backwards)
    )


def texts(result: Found) -> list[bytes]:
    return [record.data for record in result.records]


def split(data: bytes) -> list[Record]:
    return list(split_records(data, 0, lambda local: local))


def test_a_stack_trace_stays_with_its_message() -> None:
    records = split(WARNING + FAILURE + NOTE)

    assert [record.data for record in records] == [WARNING, FAILURE, NOTE]
    assert [record.level for record in records] == [Level.WARN, Level.ERROR, Level.INFO]
    assert [record.time for record in records] == [SECOND, SECOND + 1000, SECOND + 2000]


def test_each_line_that_a_script_prints_is_a_record() -> None:
    assert [record.data for record in split(b"one\ntwo\n  more of two\n\nthree")] == [
        b"one\n",
        b"two\n  more of two\n\n",
        b"three",
    ]


def test_a_traceback_is_an_error_of_its_own_unless_an_error_precedes_it() -> None:
    assert [(record.level, record.data) for record in split(NOTE + TRACEBACK)] == [
        (Level.INFO, NOTE),
        (Level.ERROR, TRACEBACK),
    ]
    assert [record.data for record in split(FAILURE + TRACEBACK)] == [FAILURE + TRACEBACK]
    assert split(NOTE + TRACEBACK)[1].time == SECOND + 2000


def test_a_record_that_never_ends_is_cut_and_keeps_its_level() -> None:
    records = split(FAILURE + b"\tat somewhere\n" * 10_000 + NOTE)

    assert [record.continues for record in records] == [False, True, True, False]
    assert {record.level for record in records[:3]} == {Level.ERROR}
    assert max(len(record.data) for record in records) <= MOST_RECORD_BYTES
    assert len(split(b"x" * (MOST_RECORD_BYTES + 1))) == 2


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ({"level": Level.WARN}, [WARNING, FAILURE]),
        ({"level": Level.ERROR}, [FAILURE]),
        ({"level": Level.TRACE}, [WARNING, FAILURE, NOTE]),
        ({"texts": ("SPARKexception",)}, [FAILURE]),
        ({"texts": ("ZWÖLF",)}, [FAILURE]),
        ({"texts": ("spark", "odd")}, []),
        ({"since_ms": SECOND + 1000}, [FAILURE, NOTE]),
        ({"until_ms": SECOND + 1000}, [b"printed\n", WARNING, FAILURE][1:]),
    ],
)
def test_selections(selection: dict[str, object], expected: list[bytes]) -> None:
    data = b"printed\n" + WARNING + FAILURE + NOTE

    assert texts(found(data, **selection)) == expected  # type: ignore[arg-type]
    assert texts(found(data, len(data), backwards=True, **selection)) == expected  # type: ignore[arg-type]


def test_the_search_continues_where_it_stopped() -> None:
    data = WARNING + FAILURE + NOTE

    first = found(data, limit=1)
    assert (texts(first), first.start, first.end) == ([WARNING], 0, len(WARNING))
    assert texts(found(data, first.end)) == [FAILURE, NOTE]
    last = found(data, len(data), backwards=True, limit=1)
    assert (texts(last), last.start, last.end) == ([NOTE], len(WARNING + FAILURE), len(data))
    assert texts(found(data, last.start, backwards=True)) == [WARNING, FAILURE]


def test_a_step_through_a_large_log_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "WINDOW", 256 * 1024)
    data = NOTE * 30_000 + FAILURE
    sizes: list[int] = []

    def read(offset: int, count: int) -> bytes:
        sizes.append(count)
        return data[offset : offset + count]

    contents, end, steps = Contents(read, len(data), True, lambda local: local), 0, 0
    matching = list[bytes]()
    while end < len(data):
        result = search(
            contents, Search(selection=Selection(texts=("exception",)), offset=end, limit=9, most_bytes=1024**2)
        )
        assert result.end > end
        matching += texts(result)
        end, steps = result.end, steps + 1
    assert matching == [FAILURE]
    assert steps > 4
    assert max(sizes) <= 256 * 1024


@pytest.mark.parametrize("backwards", [False, True])
def test_a_step_through_very_short_lines_is_bounded(backwards: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "MOST_LINES", 100)
    data = b"".join(b"%d\n" % number for number in range(1000))

    first = found(data, len(data) if backwards else 0, backwards=backwards, texts=("no",))
    assert first.start > 0 if backwards else 0 < first.end < len(data)
    texts_found, at = list[bytes](), len(data) if backwards else 0
    while at > 0 if backwards else at < len(data):
        result = found(data, at, backwards=backwards, limit=1000)
        at = result.start if backwards else result.end
        texts_found = [*texts(result), *texts_found] if backwards else [*texts_found, *texts(result)]
    assert b"".join(texts_found) == data


def test_a_search_since_a_time_reads_little_of_what_is_older(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "WINDOW", 256 * 1024)
    lines = [
        b"2026-01-31T%02d:%02d:%02dZ INFO a line of this log\n" % (n // 3600, n // 60 % 60, n % 60)
        for n in range(86_400)
    ]
    data = b"".join(lines)

    result = found(data, since_ms=SECOND, until_ms=SECOND + 1999)

    assert texts(result) == [lines[64_800], lines[64_801]]
    assert result.start > len(data) // 2
    assert found(data, result.end, since_ms=SECOND, until_ms=SECOND + 1999).records == ()


def test_a_line_that_is_being_written_waits_for_its_end() -> None:
    data = WARNING + b"26/01/31 18:00:01 ERROR half of"
    wanted = Search(selection=Selection(), offset=0, limit=10, most_bytes=1024**2)

    result = search(log(data, complete=False), wanted)
    assert (texts(result), result.end) == ([WARNING], len(WARNING))
    assert len(search(log(data), wanted).records) == 2


def test_the_rest_of_a_record_keeps_its_level() -> None:
    grown = FAILURE + b"\tat one more line\n"

    rest = found(grown, len(FAILURE), level=Level.ERROR)

    assert [(record.data, record.continues) for record in rest.records] == [(b"\tat one more line\n", True)]


def test_a_search_backwards_gets_past_a_line_that_is_longer_than_its_window() -> None:
    data = b"first\n" + b"x" * (scan.WINDOW + scan.WINDOW // 2) + b"\n"
    result = found(data, len(data), backwards=True)
    while result.start > 0:
        before, result = result.start, found(data, result.start, backwards=True)
        assert result.start < before, "each step gets further"
    assert texts(result)[0] == b"first\n"
