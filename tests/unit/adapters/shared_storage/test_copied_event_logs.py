"""Event logs are copied for their reader, because the job's user may have put anything in their place."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import NoReturn

import pytest

from emberkeep.adapters.shared_storage import event_logs
from emberkeep.adapters.shared_storage.event_log_copier import EventLogCopier
from emberkeep.adapters.shared_storage.event_logs import EVENT_LOGS, attempt_directory, copy_event_log
from emberkeep.base.errors import Absent, Conflict, Damaged, Unavailable
from emberkeep.base.ids import JobId

OLD, NEW = "app-20261126120000-0000-ffffffff", "app-20261126120001-0000-00000000"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The directory of a job whose first attempt has had two SparkContexts."""
    root = tmp_path / "checkpoints" / "job"
    for app_id in (OLD, NEW):
        place = attempt_directory(root, 1) / f"eventlog_v2_{app_id}"
        place.mkdir(parents=True)
        (place / f"appstatus_{app_id}.inprogress").touch()
        (place / f"events_1_{app_id}.zstd").write_text(app_id)
        (place / ".hidden").touch()
    return root


@pytest.fixture
def into(tmp_path: Path) -> Path:
    (tmp_path / "into").mkdir()
    return tmp_path / "into"


def test_the_newest_application_of_the_attempt_is_copied(root: Path, into: Path) -> None:
    for _ in range(2):
        assert copy_event_log(root, 1, into) == NEW
        (place,) = into.iterdir()
        assert place.name == f"eventlog_v2_{NEW}"
        assert sorted(path.name for path in place.iterdir()) == [
            f"appstatus_{NEW}.inprogress",
            f"events_1_{NEW}.zstd",
        ]
        assert (place / f"events_1_{NEW}.zstd").read_text() == NEW


def test_an_attempt_without_a_log_says_why_it_may_have_none(root: Path, into: Path) -> None:
    for place, attempt in ((root, 2), (root.parent / "other", 1)):
        with pytest.raises(Absent) as caught:
            copy_event_log(place, attempt, into)
        assert "left no event log here" in str(caught.value)
        assert "spark.eventLog.dir" in str(caught.value.hint)
    (attempt_directory(root, 3)).mkdir()
    with pytest.raises(Absent):
        copy_event_log(root, 3, into)


def test_a_storage_that_is_away_is_not_a_missing_log(tmp_path: Path, into: Path) -> None:
    with pytest.raises(Unavailable):
        copy_event_log(tmp_path / "not mounted" / "job", 1, into)


@pytest.mark.req("SEC-10")
def test_links_and_pipes_are_not_followed(root: Path, into: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of another user")
    events = attempt_directory(root, 1) / f"eventlog_v2_{NEW}" / f"events_1_{NEW}.zstd"
    events.unlink()
    for planted in ("link", "pipe", "directory"):
        if planted == "link":
            events.symlink_to(secret)
        elif planted == "pipe":
            os.mkfifo(events)
        else:
            events.mkdir()
        with pytest.raises(Damaged, match="cannot be used"):
            copy_event_log(root, 1, into)
        assert not list(into.iterdir())
        events.rmdir() if events.is_dir() else events.unlink()


@pytest.mark.req("SEC-10")
@pytest.mark.parametrize("part", ["", "1", f"1/eventlog_v2_{NEW}"])
def test_a_directory_that_was_replaced_by_a_link_is_not_read(root: Path, into: Path, tmp_path: Path, part: str) -> None:
    real = root / EVENT_LOGS / part
    real.rename(tmp_path / "elsewhere")
    real.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Damaged):
        copy_event_log(root, 1, into)
    assert not list(into.iterdir())


def test_a_copy_is_bounded(root: Path, into: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_logs, "_MOST_BYTES", len(NEW) - 1)
    with pytest.raises(Conflict, match="has more than"):
        copy_event_log(root, 1, into)
    monkeypatch.setattr(event_logs, "_MOST_FILES", 1)
    with pytest.raises(Conflict, match="more than 1 files"):
        copy_event_log(root, 1, into)
    assert not list(into.iterdir())


async def test_a_copy_for_which_there_was_no_thread_is_begun_again(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: threading.Thread) -> NoReturn:
        raise RuntimeError("can't start new thread")

    copier = EventLogCopier(root.parent, tmp_path / "staging")
    with monkeypatch.context() as few:
        few.setattr(threading.Thread, "start", refused)
        with pytest.raises(Unavailable, match="no thread can be started"):
            async with copier.copied(JobId("job"), 1):
                pass
    async with copier.copied(JobId("job"), 1) as copied:
        assert copied.app_id == NEW
