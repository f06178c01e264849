"""Progress histories in a job's directory, which belongs to the job's user."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NoReturn

import pytest
from structlog.testing import capture_logs

from emberkeep.adapters.shared_storage.progress_files import read_progress, write_progress
from emberkeep.base.errors import Fatal, Unavailable
from emberkeep.base.files.durable import encode_record
from emberkeep.jobs.progress.encoding import KIND, VERSION
from emberkeep.jobs.progress.history import QueryHistory
from emberkeep.jobs.progress.kept_progress import NOTHING_KEPT, KeptProgress
from tests.support.crashes.observed import observed
from tests.support.crashes.recorded import Loss, RecordedFiles
from tests.support.progress.records import record

FOLDER = "_emberkeep_progress"


def history(batch: int) -> KeptProgress:
    return KeptProgress(queries=(QueryHistory(query_id="q-1", records=(record(batch),)),))


def test_the_newest_attempt_counts_and_removes_those_before(tmp_path: Path) -> None:
    root = tmp_path / "job"
    assert read_progress(root) == NOTHING_KEPT
    write_progress(root, 1, history(1))
    write_progress(root, 2, history(2))
    assert [path.name for path in (root / FOLDER).iterdir()] == ["2.record"]
    assert read_progress(root) == history(2)
    assert root.stat().st_mode & 0o777 == 0o700


def test_a_first_history_survives_a_power_failure(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    disk = RecordedFiles(tmp_path / "disk", remembers=False)
    with observed(disk):
        write_progress(tmp_path / "disk" / "job", 1, history(1))
    disk.build(tmp_path / "found", Loss.LOST)
    assert read_progress(tmp_path / "found" / "job") == history(1)


def test_an_attempt_that_is_over_changes_nothing(tmp_path: Path) -> None:
    write_progress(tmp_path / "job", 12, history(12))
    write_progress(tmp_path / "job", 9, history(9))
    assert read_progress(tmp_path / "job") == history(12)
    assert read_progress(tmp_path / "job", before=12) == history(9)


def test_a_directory_that_cannot_be_listed_now_is_not_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_progress(tmp_path / "job", 1, history(1))

    def broken(_: object) -> NoReturn:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr(os, "listdir", broken)
    with pytest.raises(Unavailable, match="cannot be read now"):
        read_progress(tmp_path / "job")


@pytest.mark.parametrize(
    "content", [b"", b"junk", encode_record(KIND, VERSION + 1, b"x"), encode_record("other", 1, b"x")]
)
def test_an_unusable_file_is_passed_over_and_logged(tmp_path: Path, content: bytes) -> None:
    root = tmp_path / "job"
    write_progress(root, 1, history(1))
    (root / FOLDER / "2.record").write_bytes(content)
    with capture_logs() as logs:
        assert read_progress(root) == history(1)
    assert [entry["event"] for entry in logs] == ["a progress history cannot be used"]


@pytest.mark.req("SAFE-14")
def test_what_a_later_release_has_kept_is_left_to_it(tmp_path: Path) -> None:
    write_progress(tmp_path / "job", 1, history(1))
    later = tmp_path / "job" / FOLDER / "1.record"
    readable = later.read_bytes()
    later.write_bytes(encode_record(KIND, VERSION + 1, b"{}"))
    for attempt in (2, 3):  # attempts of this release, one after the other
        write_progress(tmp_path / "job", attempt, history(attempt))
    assert sorted(path.name for path in later.parent.iterdir()) == ["1.record", "3.record"]
    later.write_bytes(readable)  # what the later release makes of it
    write_progress(tmp_path / "job", 4, history(4))
    assert [path.name for path in later.parent.iterdir()] == ["4.record"]


@pytest.mark.parametrize("what", ["link", "pipe", "directory"])
@pytest.mark.parametrize("owner", [None, 4711])
def test_an_odd_file_of_an_earlier_attempt_does_not_end_the_keeping_of_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, owner: int | None
) -> None:
    """``owner``: the user who writes, if that is not the owner of the directory."""
    root = tmp_path / "job"
    write_progress(root, 1, history(1))
    odd = root / FOLDER / "1.record"
    odd.unlink()
    if what == "link":
        odd.symlink_to("/etc/passwd")
    elif what == "pipe":
        os.mkfifo(odd)
    else:
        odd.mkdir()
    if owner is not None:
        monkeypatch.setattr(os, "geteuid", lambda: owner)
    for attempt in (2, 3):
        write_progress(root, attempt, history(attempt))
        assert read_progress(root) == history(attempt)
    assert not (root / FOLDER / "2.record").exists()


def test_a_file_of_an_earlier_attempt_that_cannot_be_read_now_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_progress(tmp_path / "job", 1, history(1))
    usual = os.open

    def refuse(path: Path, *flags: int, **options: int) -> int:
        if Path(path).name == "1.record":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return usual(path, *flags, **options)

    monkeypatch.setattr(os, "open", refuse)
    write_progress(tmp_path / "job", 2, history(2))
    monkeypatch.undo()
    assert sorted(path.name for path in (tmp_path / "job" / FOLDER).iterdir()) == ["1.record", "2.record"]
    write_progress(tmp_path / "job", 3, history(3))
    assert [path.name for path in (tmp_path / "job" / FOLDER).iterdir()] == ["3.record"]


def test_a_link_out_of_the_directory_is_not_followed(tmp_path: Path) -> None:
    write_progress(tmp_path / "victim", 1, history(1))
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / FOLDER).symlink_to(tmp_path / "victim" / FOLDER)
    assert read_progress(tmp_path / "job") == NOTHING_KEPT


def test_storage_that_is_away_is_not_taken_for_an_empty_history(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cannot be read now"):
        read_progress(tmp_path / "unmounted" / "job")
    with pytest.raises(Fatal, match="cannot write"):
        write_progress(tmp_path / "unmounted" / "job", 1, history(1))
    assert not (tmp_path / "unmounted").exists()
