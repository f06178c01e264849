"""Which job logs a task manager keeps."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emberkeep.adapters.processes import log_retention
from emberkeep.adapters.processes.log_retention import prune_once

HOUR = 3600.0
NOW = 1_700_000_000.0


def job(logs: Path, name: str, hours_ago: float) -> None:
    """A job whose last line was written so long ago."""
    attempt = logs / name / "1"
    attempt.mkdir(parents=True)
    log = attempt / "driver.stdout"
    log.write_text("line\n")
    for path in (log, attempt, logs / name):
        os.utime(path, (NOW - hours_ago * HOUR, NOW - hours_ago * HOUR))


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    for number in range(5):
        job(tmp_path, f"job-{number}", hours_ago=2.0 * number)
    assert sorted(prune_once(tmp_path, 2, HOUR, frozenset())) == ["job-2", "job-3", "job-4"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job-0", "job-1"]
    assert prune_once(tmp_path, 2, HOUR, frozenset()) == []


def test_what_somebody_may_still_read_is_spared_however_much_there_is(tmp_path: Path) -> None:
    for number in range(5):
        job(tmp_path, f"job-{number}", hours_ago=0.1 * number)
    assert prune_once(tmp_path, 0, HOUR, frozenset()) == []
    assert sorted(prune_once(tmp_path, 0, 0.25 * HOUR, frozenset())) == ["job-3", "job-4"]


def test_an_attempt_that_writes_keeps_its_whole_job(tmp_path: Path) -> None:
    job(tmp_path, "old", hours_ago=50.0)
    job(tmp_path, "older-but-writing", hours_ago=60.0)
    job(tmp_path, "new", hours_ago=0.0)
    os.utime(tmp_path / "older-but-writing" / "1" / "driver.stdout", (NOW, NOW))
    assert prune_once(tmp_path, 1, HOUR, frozenset()) == ["old"]


def test_a_job_that_runs_keeps_its_logs_however_long_it_has_been_silent(tmp_path: Path) -> None:
    job(tmp_path, "silent-stream", hours_ago=1000.0)
    for number in range(3):
        job(tmp_path, f"job-{number}", hours_ago=2.0 * number)
    assert prune_once(tmp_path, 1, HOUR, {"silent-stream"}) == ["job-1", "job-2"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job-0", "silent-stream"]


@pytest.mark.req("SEC-18")
def test_a_job_that_dates_its_logs_in_the_future_ends_no_others(tmp_path: Path) -> None:
    for number in range(3):
        job(tmp_path, f"job-{number}", hours_ago=2.0)
        os.utime(tmp_path / f"job-{number}")  # now
    job(tmp_path, "hostile", hours_ago=2.0)
    os.utime(tmp_path / "hostile" / "1" / "driver.stdout", (2**33, 2**33))
    assert prune_once(tmp_path, 0, HOUR, frozenset()) == []


@pytest.mark.req("SEC-18")
def test_a_job_that_fills_its_folder_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_retention, "_MOST_FILES", 10)
    job(tmp_path, "hostile", hours_ago=2.0)
    for number in range(100):
        (tmp_path / "hostile" / "1" / f"executor-{number}.stdout").touch()
    looked_at = list(log_retention._within(tmp_path / "hostile"))
    assert len(looked_at) == 12


@pytest.mark.req("SAFE-15")
def test_a_link_whose_log_is_gone_stops_nothing(tmp_path: Path) -> None:
    for number in range(2):
        job(tmp_path, f"job-{number}", hours_ago=2.0 * number)
    link = tmp_path / "job-1" / "1" / "stderr"
    link.symlink_to("/nonexistent")
    os.utime(link, (NOW - 2 * HOUR, NOW - 2 * HOUR), follow_symlinks=False)
    os.utime(link.parent, (NOW - 2 * HOUR, NOW - 2 * HOUR))
    assert prune_once(tmp_path, 1, HOUR, frozenset()) == ["job-1"]


@pytest.mark.req("SAFE-15")
def test_a_log_that_vanishes_while_it_is_looked_at_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        job(tmp_path, f"job-{number}", hours_ago=2.0 * number)
    listed = Path.rglob

    def vanishing(path: Path, pattern: str) -> Iterator[Path]:
        for found in list(listed(path, pattern)):
            if found.name == "driver.stdout":
                found.unlink()
                os.utime(found.parent, (NOW - 2 * HOUR, NOW - 2 * HOUR))
            yield found

    monkeypatch.setattr(Path, "rglob", vanishing)
    assert prune_once(tmp_path, 2, HOUR, frozenset()) == []


@pytest.mark.req("SAFE-15")
@pytest.mark.parametrize("unreadable", ["", "job-1"])
def test_logs_that_cannot_be_read_now_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unreadable: str) -> None:
    for number in range(3):
        job(tmp_path, f"job-{number}", hours_ago=2.0 * number)
    list_names, scan = os.listdir, os.scandir

    def failing(path: Path | str = ".") -> list[str]:
        if str(path) == str(tmp_path / unreadable):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return list_names(path)

    def failing_scan(path: Path | str = ".") -> Any:
        if str(path) == str(tmp_path / unreadable):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return scan(path)

    monkeypatch.setattr(os, "listdir", failing)
    monkeypatch.setattr(os, "scandir", failing_scan)
    removed = prune_once(tmp_path, 1, HOUR, frozenset())
    monkeypatch.undo()
    assert removed == (["job-2"] if unreadable else [])
    assert (tmp_path / "job-1").exists()


def test_nothing_is_there_yet(tmp_path: Path) -> None:
    assert prune_once(tmp_path / "jobs", 1, HOUR, frozenset()) == []
