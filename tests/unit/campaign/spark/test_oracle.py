"""The oracle's answers on rows whose right answers are plain to see, and the input that it reads."""

from collections import Counter
from pathlib import Path

import pytest

from campaign.spark.oracle import batch_answer, stream_answer
from campaign.spark.plan import STREAM_KINDS
from campaign.spark.rows import BACK, DELAY, HOPELESS, SPREAD, START, STEP, Files, Row, in_time, read_files, write_rows

EARLY = [Row("a", 2, START), Row("a", 1, START + 1), Row("a", 3, START + 9), Row("b", 4, START + 9)]
NEXT = [Row("a", 3, START + 9), Row("a", 6, START + 200)]
LATE = [Row("a", 8, START + 1), Row("b", 10, START + 200)]


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        (
            "windows",
            {(START, "a", 4): 1, (START, "b", 1): 1, (START + 200, "a", 1): 1, (START + 200, "b", 1): 1},
        ),
        (
            "sessions",
            {
                (START, "a", 2): 1,
                (START + 9, "a", 2): 1,
                (START + 9, "b", 1): 1,
                (START + 200, "a", 1): 1,
                (START + 200, "b", 1): 1,
            },
        ),
        ("joined", {(2, "a", 1): 1, (4, "b", -1): 1, (6, "a", -1): 1, (10, "b", -1): 1}),
        ("distinct", {(1, "a", 1): 1, (2, "a", 1): 1, (3, "a", 1): 1, (4, "b", 1): 1, (6, "a", 1): 1, (10, "b", 1): 1}),
        ("counted", {(0, "a", 5): 1, (0, "b", 2): 1}),
        ("passed", Counter((row.t, row.k, row.n) for row in (*EARLY, *NEXT, *LATE))),
    ],
)
def test_each_kind_of_query_drops_what_is_too_late_and_only_that(kind: str, answer: dict[object, int]) -> None:
    assert stream_answer(kind, [EARLY, NEXT, LATE]) == answer


def test_a_join_finds_all_partners_and_no_other() -> None:
    rows = [Row("a", 2, START), Row("a", 1, START), Row("a", 3, START + 2), Row("a", 5, START + 3), Row("b", 7, START)]
    assert stream_answer("joined", [rows]) == {(2, "a", 1): 1, (2, "a", 3): 1}


def test_batch_jobs_count_rows_and_drop_none() -> None:
    rows = [*EARLY, *LATE]
    minute = Row("c", 12, START + 60)
    assert batch_answer("shuffled", [*EARLY, minute]) == {
        (2, "a", 3): 1,
        (1, "a", 3): 1,
        (3, "a", 3): 1,
        (4, "b", 1): 1,
        (12, "c", 1): 1,
    }
    assert batch_answer("committed", rows).total() == len(rows)
    assert batch_answer("cached", EARLY)[2, "b", 1] == 1
    assert batch_answer("cached", EARLY)[1, "a", 3] == 1


def test_rows_are_in_time_however_files_become_batches_or_late_for_all_of_them() -> None:
    """A batch has one or two files; late rows are dropped by an earlier watermark; a join's sides may be one apart."""
    files = Files("seed")
    newest: list[int] = []
    late = 0
    for number in range(300):
        rows, base = files.next(), START + STEP * number
        for row in rows:
            strictest = max(newest, default=START) - DELAY
            if row.t >= max(START, base - BACK):
                assert row.t > strictest + 1
                continue
            late += 1
            laxest = max(newest[:-5]) - DELAY
            assert row.t + 16 < laxest, "the window and the session of the row have ended"
        newest.append(max(row.t for row in rows))
        assert base < newest[-1] <= base + SPREAD
    assert late > 50
    assert HOPELESS > BACK


def test_the_same_seed_gives_the_same_input_with_duplicates_and_late_rows(tmp_path: Path) -> None:
    first, again = Files("seed"), Files("seed")
    files = [first.next() for _ in range(60)]
    assert files == [again.next() for _ in range(60)]
    for number, rows in enumerate(files):
        write_rows(tmp_path / f"{number:05}.json", rows, number)
    assert read_files(tmp_path) == files
    paths = sorted(tmp_path.iterdir())
    times = [path.stat().st_mtime for path in paths]
    assert times == sorted(set(times)), "Spark reads them in this order"
    total = sum(map(len, files))
    assert len({row.n for rows in files for row in rows}) < total
    assert 0 < len(in_time(files)) < total
    for kind in STREAM_KINDS:
        assert stream_answer(kind, files), kind
