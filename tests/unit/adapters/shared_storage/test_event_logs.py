"""Event logs of attempts: made before Spark starts, bounded in files and attempts, readable after each step."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from emberkeep.adapters.shared_storage import event_logs
from emberkeep.adapters.shared_storage.event_logs import (
    APPLICATIONS_KEPT,
    ATTEMPTS_KEPT,
    EVENT_LOGS,
    LINES_KEPT,
    copy_event_log,
    dropped_files,
    make_event_log,
    trim_event_logs,
)
from emberkeep.base.errors import Damaged, Fatal, RetryLater

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


def contents(place: Path) -> list[str]:
    """Return what the files of a log have, in the order of their numbers."""
    return [path.read_text() for path in sorted(place.glob("events_*"), key=lambda path: int(path.name.split("_")[1]))]


def lasting(file: Path) -> list[bytes]:
    """Return the lines of a log's file that last: all but the names of files that have nothing else."""
    return [line for line in file.read_bytes().splitlines() if line.startswith(b"began")]


@pytest.mark.parametrize("count", range(12))
def test_the_first_and_the_newest_files_stay(count: int) -> None:
    files = [f"events_{number}" for number in range(40, 40 + count)]
    dropped = dropped_files(files, 4)
    assert len(dropped) != 1, "one name is for the first file, and one for what lasts"
    left = [file for file in files if file not in dropped]
    if count <= 4:
        assert not dropped
    else:
        assert left == [files[0], files[-2], files[-1]]


def test_a_log_is_trimmed_again_and_again(tmp_path: Path) -> None:
    place = logged(tmp_path, range(1, 12))
    other = logged(tmp_path, range(1, 3), "app-other")
    trim_event_logs(tmp_path, most=4)
    assert numbers_of(place) == [8, 9, 10, 11]
    for number in (12, 13):
        (place / f"events_{number}_{APPLICATION}.zstd").write_text(str(number))
    trim_event_logs(tmp_path, most=4)
    assert numbers_of(place) == [10, 11, 12, 13]
    assert contents(place) == ["1", "", "12", "13"], "the first file says what the application is"
    assert (place / f"appstatus_{APPLICATION}.inprogress").exists()
    assert numbers_of(other) == [1, 2]


def test_what_lasts_longer_than_its_file_is_kept(tmp_path: Path) -> None:
    place = logged(tmp_path, range(1, 4))
    for number in range(4, 12):
        (place / f"events_{number}_{APPLICATION}.zstd").write_text(f"{number}\nbegan {number}\n")
        trim_event_logs(tmp_path, lasting, most=5)
    kept = "".join(f"began {number}\n" for number in range(4, 9))
    assert contents(place) == ["1", kept, *(f"{number}\nbegan {number}\n" for number in (9, 10, 11))]
    assert [path.name for path in place.glob("events_8_*")] == [f"events_8_{APPLICATION}"], "it has no codec"


def test_of_what_lasts_only_so_much_is_kept(tmp_path: Path) -> None:
    place = logged(tmp_path, range(1, 8))
    for number in (2, 3):
        lines = "".join(f"began {number}.{line}\n" for line in range(LINES_KEPT))
        (place / f"events_{number}_{APPLICATION}.zstd").write_text(lines)
    trim_event_logs(tmp_path, lasting, most=6)
    assert contents(place)[1].splitlines() == [f"began 3.{line}" for line in range(LINES_KEPT)]


def test_a_file_that_spark_cannot_read_and_a_full_disk_let_the_log_get_smaller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(file: Path) -> list[bytes]:
        raise Damaged(file.name)

    place = logged(tmp_path, range(1, 8))
    trim_event_logs(tmp_path, damaged, most=5)
    assert contents(place) == ["1", "", "5", "6", "7"]

    def full(*_: object) -> NoReturn:
        raise Fatal("no space left")

    (place / f"events_8_{APPLICATION}.zstd").write_text("8")
    monkeypatch.setattr(event_logs, "write_file", full)
    trim_event_logs(tmp_path, lasting, most=5)
    assert contents(place) == ["1", "6", "7", "8"]


def test_a_deletion_that_fails_costs_neither_the_first_file_nor_a_lasting_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(path: Path, *, missing_ok: bool = False) -> None:
        raise OSError(errno.EIO, "input/output error", str(path))

    place = logged(tmp_path, range(1, 4))
    (place / f"events_2_{APPLICATION}.zstd").write_text("began 2\n")
    (place / f"events_4_{APPLICATION}.zstd").write_text("4")
    monkeypatch.setattr(Path, "unlink", failing)
    with pytest.raises(OSError, match="input"):
        trim_event_logs(tmp_path, lasting, most=3)
    monkeypatch.undo()
    for number in (5, 6, 7, 8):
        trim_event_logs(tmp_path, lasting, most=3)
        (place / f"events_{number}_{APPLICATION}.zstd").write_text(str(number))
    trim_event_logs(tmp_path, lasting, most=3)
    assert contents(place) == ["1", "began 2\n", "8"]


def test_without_spark_nothing_is_dropped(tmp_path: Path) -> None:
    def unavailable(_: Path) -> NoReturn:
        raise RetryLater("no SparkContext")

    place = logged(tmp_path, range(1, 12))
    with pytest.raises(RetryLater):
        trim_event_logs(tmp_path, unavailable, most=4)
    assert numbers_of(place) == list(range(1, 12))


@pytest.mark.parametrize("steps", range(6))
def test_the_copy_of_a_log_that_was_being_trimmed_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """The driver ends after any of the steps: a file written, others removed, and the first one renamed."""
    root, into = tmp_path / "job", tmp_path / "into"
    into.mkdir()
    place = logged(make_event_log(root, 1), range(1, 6))
    (place / f"events_2_{APPLICATION}.zstd").write_text("began 2\n")
    trim_event_logs(place.parent, lasting, most=4)
    for number in (6, 7):
        (place / f"events_{number}_{APPLICATION}.zstd").write_text(str(number))
    ends = DriverEnds(steps)
    for owner, name in ((event_logs, "write_file"), (Path, "rename"), (Path, "unlink")):
        monkeypatch.setattr(owner, name, ends.before(getattr(owner, name)))
    with contextlib.suppress(DriverEnds):
        trim_event_logs(place.parent, lasting, most=4)
    monkeypatch.undo()
    copy_event_log(root, 1, into)
    copied = contents(into / place.name)
    assert numbers_of(into / place.name) == list(range(1, len(copied) + 1))
    assert (copied[0], copied[-2:]) == ("1", ["6", "7"])
    assert "began 2\n" in copied
    trim_event_logs(place.parent, lasting, most=4)
    assert contents(place) == ["1", "began 2\n", "6", "7"]


class DriverEnds(Exception):
    """Raised instead of all steps after so many."""

    def __init__(self, after: int) -> None:
        self.left = after

    def before(self, step: Callable[..., object]) -> Callable[..., object]:
        def counted(*arguments: object, **options: object) -> object:
            if self.left == 0:
                raise self
            self.left -= 1
            return step(*arguments, **options)

        return counted


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
