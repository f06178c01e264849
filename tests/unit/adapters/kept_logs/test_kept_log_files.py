"""Stored logs in a directory."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from emberkeep.adapters.kept_logs import files as module
from emberkeep.adapters.kept_logs import segments
from emberkeep.adapters.kept_logs.files import KeepLimits, KeptLogFiles
from emberkeep.base.errors import Damaged, Fatal, NewerFormat, Unavailable
from emberkeep.base.ids import JobId
from emberkeep.kept_logs.model import KeptLogKey, Position
from emberkeep.kept_logs.retention import FILE_COST
from tests.support.kept_logs.pieces import JOB, content_of, key, piece

LIMITS = KeepLimits(most_bytes=64 * 1024**2, keep_ms=1_000_000)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "storage" / "logs"


@pytest.fixture
def files(root: Path) -> KeptLogFiles:
    root.parent.mkdir()
    return KeptLogFiles(root, LIMITS)


def content(files: KeptLogFiles, log: KeptLogKey) -> bytes:
    opened = files.open(log)
    assert opened is not None
    return content_of(opened)


def test_pieces_are_stored_one_after_the_other(files: KeptLogFiles, root: Path) -> None:
    assert files.keep(1, key(), piece(0, b"one\n")) == Position(end=4, source=4)
    assert files.keep(1, key(), piece(4, b"two\n", is_last=True)) == Position(end=8, source=8, is_whole=True)

    assert content(files, key()) == b"one\ntwo\n"
    assert [(log.key, log.end, log.is_whole) for log in files.logs(JOB).logs] == [(key(), 8, True)]
    assert files.jobs() == [JOB]
    assert [path.name for path in root.rglob("*.segment")] == ["0000000000000000-000000000000001.segment"]


def test_a_piece_that_comes_twice_changes_nothing(files: KeptLogFiles, root: Path) -> None:
    files.keep(1, key(), piece(0, b"one\n"))
    before = [path.read_bytes() for path in root.rglob("*.segment")]

    assert files.keep(1, key(), piece(0, b"one\n")) == Position(end=4, source=4)
    assert files.keep(1, key(), piece(2, b"e\ntw")) == Position(end=4, source=4)
    assert [path.read_bytes() for path in root.rglob("*.segment")] == before


def test_an_empty_piece_asks_for_the_position(files: KeptLogFiles, root: Path) -> None:
    assert files.keep(1, key(), piece(0, b"")) == Position()
    assert not root.exists()

    files.keep(1, key(), piece(0, b"one\n", source=90))
    assert files.keep(1, key(), piece(0, b"")) == Position(end=4, source=94)


def test_the_end_of_an_empty_log_is_stored(files: KeptLogFiles) -> None:
    assert files.keep(1, key(), piece(0, b"", is_last=True)).is_whole
    assert files.keep(1, key(), piece(0, b"", is_last=True)).is_whole

    assert content(files, key()) == b""
    assert [log.is_whole for log in files.logs(JOB).logs] == [True]


def test_the_next_leader_continues_in_a_file_of_its_own(files: KeptLogFiles, root: Path) -> None:
    files.keep(1, key(), piece(0, b"one\n"))
    later = KeptLogFiles(root, LIMITS)

    assert later.keep(2, key(), piece(0, b"")) == Position(end=4, source=4)
    later.keep(2, key(), piece(4, b"two\n"))
    files.keep(1, key(), piece(4, b"two\n"))  # the deposed leader writes once more
    later.keep(2, key(), piece(8, b"three\n"))

    assert content(later, key()) == b"one\ntwo\nthree\n"
    assert content(KeptLogFiles(root, LIMITS), key()) == b"one\ntwo\nthree\n"


def test_a_piece_that_was_not_written_completely_is_written_again(files: KeptLogFiles, root: Path) -> None:
    files.keep(1, key(), piece(0, b"one\n"))
    (segment,) = root.rglob("*.segment")
    segment.write_bytes(segment.read_bytes() + b"EKlp\x00\x01 torn")

    later = KeptLogFiles(root, LIMITS)
    assert later.keep(2, key(), piece(0, b"")) == Position(end=4, source=4)
    later.keep(2, key(), piece(4, b"two\n"))
    files.keep(1, key(), piece(4, b"two\n"))  # without the torn rest

    assert content(later, key()) == b"one\ntwo\n"


def test_a_damaged_piece_leaves_a_gap_that_is_told(files: KeptLogFiles, root: Path) -> None:
    files.keep(1, key(), piece(0, b"one\n"))
    (segment,) = root.rglob("*.segment")
    size = segment.stat().st_size
    files.keep(1, key(), piece(4, b"x" * 199 + b"\n", until_ms=7000))
    files.keep(1, key(), piece(204, b"three\n", until_ms=9000))
    with segment.open("r+b") as file:
        file.seek(size + 40)
        file.write(b"?")

    told = content(KeptLogFiles(root, LIMITS), key()).split(b"\n")

    assert told[0] == b"one"
    assert told[1] == (
        b"--- Emberkeep: 200 bytes of this log are not kept, written between 1970-01-01 00:00:00 UTC and "
        b"1970-01-01 00:00:09 UTC ---"
    )
    assert told[2] == b"three"


def test_logs_of_all_writers_are_kept_apart(files: KeptLogFiles) -> None:
    logs = [key(), key("executor-1.stdout"), key(attempt=2), key(task_manager="tm-2"), key(job_id=JobId("2" * 32))]
    for number, log in enumerate(logs):
        files.keep(1, log, piece(0, b"%d\n" % number))

    assert [content(files, log) for log in logs] == [b"%d\n" % number for number in range(len(logs))]
    assert {log.key for log in files.logs(JOB).logs} == set(logs[:4])


def test_foreign_files_are_left_alone(files: KeptLogFiles, root: Path) -> None:
    files.keep(1, key(), piece(0, b"one\n"))
    (root / "lost+found").mkdir()
    (root / JOB / "notes").mkdir()
    (root / JOB / "1" / "tm-1~else").mkdir()
    (root / JOB / "1" / "tm-1~driver.stderr" / "x.tmp").touch()

    assert [log.key for log in files.logs(JOB).logs] == [key()]
    assert files.jobs() == [JOB]
    assert content(files, key()) == b"one\n"


class TestLimits:
    def test_of_too_much_the_head_and_the_tail_stay(self, root: Path) -> None:
        root.parent.mkdir()
        files = KeptLogFiles(root, KeepLimits(most_bytes=300 * 1024, keep_ms=0))
        line = os.urandom(40 * 1024).replace(b"\n", b"x")[:-1] + b"\n"
        for number in range(40):
            files.keep(1, key(), piece(number * len(line), line, until_ms=number))

        kept = content(files, key())

        assert sum(path.stat().st_size for path in root.rglob("*.segment")) <= 400 * 1024
        assert kept.startswith(line)
        assert kept.endswith(line)
        assert b"--- Emberkeep: " in kept
        later = KeptLogFiles(root, KeepLimits(most_bytes=300 * 1024, keep_ms=0))
        assert later.keep(2, key(), piece(0, b"")).end == 40 * len(line)

    def test_small_logs_of_many_attempts_are_too_much(self, root: Path) -> None:
        root.parent.mkdir()
        files = KeptLogFiles(root, KeepLimits(most_bytes=10 * FILE_COST, keep_ms=0))
        for attempt in range(30):
            files.keep(1, key(attempt=attempt), piece(0, b"it has failed\n", is_last=True))

        assert 0 < len(list(root.rglob("*.segment"))) < 10
        assert content(files, key(attempt=29)) == b"it has failed\n"

    def test_what_is_too_old_is_deleted(self, files: KeptLogFiles, root: Path) -> None:
        files.keep(1, key(), piece(0, b"one\n"))
        (segment,) = root.rglob("*.segment")
        changed_ms = segment.stat().st_mtime_ns // 1_000_000

        files.prune(JOB, changed_ms + 1_000_000)
        assert segment.exists()
        files.prune(JOB, changed_ms + 1_000_001)
        assert not (root / JOB).exists()

        files.keep(1, key(), piece(4, b"two\n"))  # the log goes on
        assert content(files, key()).endswith(b"two\n")


def test_a_listing_reads_no_segment_a_second_time(
    files: KeptLogFiles, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_SCANNED", 2)
    for attempt in range(5):
        files.keep(1, key(attempt=attempt), piece(0, b"one\n"))
    listed = files.logs(JOB).logs
    with monkeypatch.context() as refused:
        refused.setattr(Path, "read_bytes", lambda path: pytest.fail(f"{path} is read again"))
        assert files.logs(JOB).logs == listed

    files.keep(1, key(attempt=3), piece(4, b"two\n"))
    assert [log.end for log in files.logs(JOB).logs] == [4, 4, 4, 8, 4]


def test_a_reader_opens_each_segment_once(files: KeptLogFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(40):
        files.keep(1, key(), piece(4 * number, b"%03d\n" % number))
    opened, opening = [], os.open

    def counting(path: Path, *rest: Any, **more: Any) -> int:
        opened.append(path)
        return opening(path, *rest, **more)

    monkeypatch.setattr(os, "open", counting)

    assert content(files, key()) == b"".join(b"%03d\n" % number for number in range(40))
    assert len(opened) == 1


def test_a_segment_that_has_become_shorter_is_damaged(files: KeptLogFiles, root: Path) -> None:
    files.keep(1, key(), piece(0, b"one\n"))
    log = files.open(key())
    assert log is not None
    (segment,) = root.rglob("*.segment")
    os.truncate(segment, segment.stat().st_size - 1)

    with pytest.raises(Damaged, match="shorter"):
        log.load(0)


def test_what_cannot_be_read_is_not_gone(files: KeptLogFiles, root: Path) -> None:
    files.keep(1, key(), piece(0, b"one\n"))
    (segment,) = root.rglob("*.segment")
    segment.unlink()
    segment.mkdir()  # reading it fails, also for root

    with pytest.raises(Unavailable):
        files.open(key())
    (listed,) = files.logs(JOB).logs
    assert (listed.key, listed.end, listed.is_whole) == (key(), 0, False)
    assert "cannot be read now" in listed.problem


class TestListWithOneBadElement:
    """The others are listed, and what is bad is said."""

    @pytest.fixture
    def others(self, files: KeptLogFiles) -> list[KeptLogKey]:
        others = [key("driver.stdout"), key("driver.stderr", attempt=2)]
        for each in (key(), *others):
            files.keep(1, each, piece(0, b"one\n"))
        return others

    def test_a_log_of_a_newer_release(
        self, files: KeptLogFiles, root: Path, others: list[KeptLogKey], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as newer:
            newer.setattr(segments, "VERSION", 2)
            files.keep(2, key(), piece(4, b"two\n"))
        later = KeptLogFiles(root, LIMITS)

        found = {log.key: log for log in later.logs(JOB).logs}

        assert "format 2" in found[key()].problem
        assert [(found[each].end, found[each].problem) for each in others] == [(4, ""), (4, "")]
        with pytest.raises(NewerFormat):
            later.open(key())

    def test_an_unreadable_directory_of_a_log(self, files: KeptLogFiles, root: Path, others: list[KeptLogKey]) -> None:
        directory = root / JOB / "1" / f"{key().task_manager}~{key().name}"
        shutil.rmtree(directory)
        directory.touch()  # listing it fails, also for root

        found = {log.key: log for log in files.logs(JOB).logs}

        assert "cannot be read now" in found[key()].problem
        assert [found[each].end for each in others] == [4, 4]

    def test_an_unreadable_attempt(self, files: KeptLogFiles, root: Path, others: list[KeptLogKey]) -> None:
        shutil.rmtree(root / JOB / "1")
        (root / JOB / "1").touch()

        found = files.logs(JOB)

        assert [log.key for log in found.logs] == [others[1]]
        assert found.problem.startswith("attempt 1: ")
        assert "cannot be read now" in found.problem

    def test_an_unreadable_job_is_no_empty_one(self, files: KeptLogFiles, root: Path) -> None:
        root.mkdir()
        (root / JOB).touch()
        with pytest.raises(Unavailable):
            files.logs(JOB)


def test_a_full_disk_is_said(files: KeptLogFiles, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files.keep(1, key(), piece(0, b"one\n"))

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        with pytest.raises(Fatal, match="No space"):
            files.keep(1, key(), piece(4, b"two\n"))
    files.keep(1, key(), piece(4, b"two\n"))

    assert content(files, key()) == b"one\ntwo\n"


@pytest.mark.req("SAFE-2")
def test_nothing_is_put_where_a_storage_was_just_unmounted(files: KeptLogFiles, root: Path, tmp_path: Path) -> None:
    files.keep(1, key(), piece(0, b"one\n"))
    root.parent.rename(tmp_path / "elsewhere")
    root.parent.mkdir()

    with pytest.raises(Unavailable):
        files.keep(1, key(attempt=2), piece(0, b"two\n"))
    assert not root.exists()

    files.keep(1, key(attempt=2), piece(0, b"two\n"))  # the caller has found that the storage is this cluster's
    assert content(files, key(attempt=2)) == b"two\n"
