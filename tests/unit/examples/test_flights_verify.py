"""The comparison finds every way in which an output can be wrong, and nothing in a right one."""

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from examples.flights import feed, pipeline, verify

# Departure, origin, carrier, departure delay, arrival delay.
FLIGHTS = [
    ("2013-01-01T10:15:00Z", "JFK", "AA", 5, -3),
    ("2013-01-01T10:59:00Z", "JFK", "AA", -2, None),  # diverted
    ("2013-01-01T10:00:00Z", "JFK", "AA", None, None),  # cancelled
    ("2013-01-01T11:00:00Z", "JFK", "AA", 7, 8),
    ("2013-01-01T10:20:00Z", "EWR", "UA", None, None),  # a window of which every flight was cancelled
    ("2013-01-02T10:20:00Z", "EWR", "UA", 0, 0),
]


def sample() -> pd.DataFrame:
    rows = pd.DataFrame(FLIGHTS, columns=["sched_dep", "origin", "carrier", "dep_delay", "arr_delay"])
    rows = rows.astype({"dep_delay": "Int64", "arr_delay": "Int64"})
    return rows.assign(dest="LAX", flight=1, tailnum=None).sort_values("sched_dep")[feed.COLUMNS]


@pytest.fixture
def fed(tmp_path: Path) -> Path:
    feed.publish(sample(), tmp_path / "in", files=2, duration_s=0)
    return tmp_path / "in"


@pytest.fixture
def right(fed: Path) -> pd.DataFrame:
    return verify.batch_answer(verify.read_input(fed)).windows


def write_output(rows: pd.DataFrame, directory: Path, batches: int = 2) -> Path:
    for batch in range(batches):
        path = directory / f"batch={batch}"
        path.mkdir(parents=True)
        pq.write_table(pa.Table.from_pandas(rows.iloc[batch::batches], preserve_index=False), path / "part-0.parquet")
    return directory


def verdict(fed: Path, output: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = verify.main(["--input", str(fed), "--output", str(output)])
    captured = capsys.readouterr()
    return code, captured.out + captured.err


def test_batch_answer_is_what_counting_by_hand_gives(fed: Path) -> None:
    answer = verify.batch_answer(verify.read_input(fed))
    rows = answer.windows.sort_values(verify.KEYS).astype(object).where(answer.windows.notna(), None)
    found = [(str(row.window_start)[:16], *row[1:]) for row in rows.itertuples(index=False)]
    assert found == [
        ("2013-01-01 10:00", "EWR", "UA", 1, 1, 0, 0, None, 0, None),
        ("2013-01-01 10:00", "JFK", "AA", 3, 1, 1, 3, 5, -3, -3),
        ("2013-01-01 11:00", "JFK", "AA", 1, 0, 1, 7, 7, 8, 8),
        ("2013-01-02 10:00", "EWR", "UA", 1, 0, 1, 0, 0, 0, 0),
    ]
    assert answer.open_windows == 1  # the closing row's
    assert answer.rows == len(FLIGHTS) + 1


def test_windows_that_the_watermark_has_not_passed_are_open() -> None:
    times = ["2013-01-01T00:30:00Z", "2013-01-01T01:00:00Z", "2013-01-06T01:00:00Z"]
    rows = pd.DataFrame({"sched_dep": pd.to_datetime(times), "origin": "JFK", "carrier": "AA"})
    rows = rows.assign(dep_delay=pd.array([1, 2, 3], dtype="Int64"), arr_delay=pd.array([1, 2, 3], dtype="Int64"))
    answer = verify.batch_answer(rows)
    # The watermark is exactly 01:00, the end of the first window.
    assert [str(start) for start in answer.windows["window_start"]] == ["2013-01-01 00:00:00+00:00"]
    assert answer.open_windows == 2


def test_pipeline_and_verification_mean_the_same_windows() -> None:
    assert pd.Timedelta(pipeline.WINDOW) == verify.WINDOW
    assert pd.Timedelta(pipeline.WATERMARK) == verify.WATERMARK


def test_equal_output_in_any_order_passes(
    fed: Path, right: pd.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = verdict(fed, write_output(right.iloc[::-1], tmp_path / "out"), capsys)
    assert code == 0
    assert "windows: 4 closed (1 still open)" in text
    assert "mismatches: 0" in text
    assert "verdict: EQUAL" in text


def test_missing_row_is_found(
    fed: Path, right: pd.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = right[(right["origin"] != "JFK") | (right["flights"] != 3)]
    code, text = verdict(fed, write_output(lost, tmp_path / "out"), capsys)
    assert code == 1
    assert "missing: 1" in text
    assert "2013-01-01 10:00:00+00:00 JFK AA: flights=3" in text
    assert "verdict: DIFFERENT" in text


def test_row_written_twice_is_found_though_equal(
    fed: Path, right: pd.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    twice = pd.concat([right, right.iloc[[1]]])
    code, text = verdict(fed, write_output(twice, tmp_path / "out"), capsys)
    assert code == 1
    assert "mismatches: 1" in text
    assert "duplicate: 1" in text


@pytest.mark.parametrize("value", verify.VALUES)
def test_every_different_value_is_found(
    fed: Path, right: pd.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str], value: str
) -> None:
    changed = right.copy()
    place = changed.index[changed["flights"] == 3][0]
    changed.loc[place, value] += 1
    code, text = verdict(fed, write_output(changed, tmp_path / "out"), capsys)
    assert code == 1
    assert "mismatches: 1" in text
    assert f"{value} {right.loc[place, value]} expected, {right.loc[place, value] + 1} found" in text


@pytest.mark.parametrize(("held", "written"), [(None, 0), (0, None)])
def test_no_value_is_not_zero(right: pd.DataFrame, held: int | None, written: int | None) -> None:
    expected, found = right.copy(), right.copy()
    expected.loc[0, "dep_delay_max"] = held
    found.loc[0, "dep_delay_max"] = written
    result = verify.compare(expected, found)
    assert (result.mismatches, len(result.different)) == (1, 1)


def test_row_that_should_not_be_there_is_found(
    fed: Path, right: pd.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = pd.concat([right, right.iloc[[0]].assign(carrier="ZZ")])
    code, text = verdict(fed, write_output(more, tmp_path / "out"), capsys)
    assert code == 1
    assert "mismatches: 1" in text
    assert "unexpected: 1" in text


def test_only_the_first_mismatches_are_shown(right: pd.DataFrame) -> None:
    many = pd.concat([right.iloc[[0]].assign(carrier=f"C{number}") for number in range(20)])
    answer = verify.BatchAnswer(many, open_windows=0, rows=20)
    text = verify.report(answer, verify.compare(many, right.iloc[:0]))
    assert "missing: 20" in text
    assert text.count("2013-01-01") == verify.SHOWN


def test_unfinished_feed_is_not_compared(
    fed: Path, right: pd.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (fed / feed.MARKER).unlink()
    code, text = verdict(fed, write_output(right, tmp_path / "out"), capsys)
    assert (code, "is not finished" in text) == (2, True)


def test_input_that_lost_a_file_is_not_compared(
    fed: Path, right: pd.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (fed / "flights-00001.csv").unlink()
    code, text = verdict(fed, write_output(right, tmp_path / "out"), capsys)
    assert (code, "its marker says 3 files with 7 rows" in text) == (2, True)


def test_input_without_any_file_is_not_compared(fed: Path) -> None:
    for path in fed.glob("*.csv"):
        path.unlink()
    with pytest.raises(verify.NothingToCompareError, match="0 files with 0 rows"):
        verify.read_input(fed)


def test_absent_output_is_not_compared(fed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = verdict(fed, tmp_path / "out", capsys)
    assert (code, "run the pipeline first" in text) == (2, True)


def test_torn_output_is_named(
    fed: Path, right: pd.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torn = write_output(right, tmp_path / "out") / "batch=1" / "part-0.parquet"
    torn.write_bytes(torn.read_bytes()[:-20])
    code, text = verdict(fed, tmp_path / "out", capsys)
    assert (code, f"{torn} cannot be read" in text) == (2, True)
