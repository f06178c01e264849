"""Event logs of attempts: made before Spark starts, bounded in files and attempts, readable after each step."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from emberkeep.adapters.shared_storage.event_logs import (
    APPLICATIONS_KEPT,
    ATTEMPTS_KEPT,
    EVENT_LOGS,
    make_event_log,
    trim_event_logs,
    trimming,
)

APPLICATION = "app-20261126120000-0000-0a1b2c3d"


def logged(directory: Path, numbers: range, application: str = APPLICATION) -> Path:
    """Make the files of an application's log, each with its own number as content."""
    place = directory / f"eventlog_v2_{application}"
    place.mkdir(parents=True)
    (place / f"appstatus_{application}.inprogress").touch()
    for number in numbers:
        (place / f"events_{number}_{application}.zstd").write_text(str(number))
    return place


def numbers_of(place: Path) -> list[int]:
    return sorted(int(path.name.split("_")[1]) for path in place.glob("events_*"))


@pytest.mark.parametrize("count", range(12))
@pytest.mark.parametrize("first", [1, 40])
def test_the_first_and_the_newest_files_stay_and_no_number_is_missing_after_any_step(count: int, first: int) -> None:
    numbers = set(range(first, first + count))
    planned = trimming(numbers, 4)
    if count <= 4:
        assert planned is None
        return
    assert planned is not None
    contents = {number: number for number in numbers}
    contents[planned.onto] = contents.pop(planned.head)
    for number in (None, *planned.removed):
        if number is not None:
            del contents[number]
        assert sorted(contents) == list(range(min(contents), max(contents) + 1))
        assert first in contents.values()
    newest = first + count - 1
    assert list(dict(sorted(contents.items())).values()) == [first, newest - 2, newest - 1, newest]


def test_a_log_is_trimmed_again_and_again(tmp_path: Path) -> None:
    place = logged(tmp_path, range(1, 12))
    other = logged(tmp_path, range(1, 3), "app-other")
    trim_event_logs(tmp_path, 4)
    assert numbers_of(place) == [8, 9, 10, 11]
    for number in (12, 13):
        (place / f"events_{number}_{APPLICATION}.zstd").write_text(str(number))
    trim_event_logs(tmp_path, 4)
    assert numbers_of(place) == [10, 11, 12, 13]
    assert (place / f"events_10_{APPLICATION}.zstd").read_text() == "1", "the first file says what the application is"
    assert (place / f"appstatus_{APPLICATION}.inprogress").exists()
    assert numbers_of(other) == [1, 2]


def test_an_attempt_keeps_the_logs_of_its_newest_applications(tmp_path: Path) -> None:
    names = [f"app-2026112612000{number}-0000" for number in range(APPLICATIONS_KEPT + 2)]
    for name in names:
        logged(tmp_path, range(1, 3), name)
    trim_event_logs(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"eventlog_v2_{name}" for name in names[2:]]


def test_without_a_log_there_is_nothing_to_trim(tmp_path: Path) -> None:
    trim_event_logs(tmp_path / "no such attempt")
    (tmp_path / "eventlog_v2_no-directory").touch()
    with pytest.raises(OSError, match="Not a directory"):
        trim_event_logs(tmp_path)


def test_the_oldest_attempts_make_room(tmp_path: Path) -> None:
    root = tmp_path / "job"
    for attempt in range(1, 9):
        logged(make_event_log(root, attempt), range(1, 2))
    assert sorted(path.name for path in (root / EVENT_LOGS).iterdir()) == ["4", "5", "6", "7", "8"]
    assert len(list((root / EVENT_LOGS).iterdir())) == ATTEMPTS_KEPT
    make_event_log(root, 3)
    assert (root / EVENT_LOGS / "8").exists(), "an attempt that is over removes nothing of a newer one"
    assert make_event_log(root, 8).is_dir()
    assert [path.name for path in make_event_log(root, 8).iterdir()] == [f"eventlog_v2_{APPLICATION}"]


def test_a_pipe_among_the_oldest_attempts_does_not_stop_the_next_one(tmp_path: Path) -> None:
    root = tmp_path / "job"
    for attempt in range(2, ATTEMPTS_KEPT + 1):
        make_event_log(root, attempt)
    os.mkfifo(root / EVENT_LOGS / "1")
    assert make_event_log(root, ATTEMPTS_KEPT + 1).is_dir()


def test_a_full_disk_is_noticed_before_spark_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        make_event_log(tmp_path / "job", 1)
    assert not list((tmp_path / "job" / EVENT_LOGS / "1").iterdir())


def test_a_missing_storage_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        make_event_log(tmp_path / "not mounted" / "job", 1)
