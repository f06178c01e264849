"""What a node keeps of state on its own disk and cannot read now is neither damaged nor gone: it stays as it is."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NoReturn

import pytest

from emberkeep.adapters.state.copies import DiskCopies
from emberkeep.adapters.state.journal import FileRenameJournal
from emberkeep.base.errors import Unavailable
from emberkeep.base.ids import JobId
from emberkeep.local_state.gateway_ports import Rename
from emberkeep.local_state.model import DRIVER, Caller
from tests.support.contracts.local_copies import content_of, keep

NOT_NOW = [errno.EIO, errno.ESTALE, errno.EACCES, errno.EMFILE]


def failing(number: int) -> object:
    def fail(*_: object, **__: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    return fail


def files_in(root: Path) -> set[Path]:
    return {path for path in root.rglob("*") if path.is_file()}


@pytest.mark.req("SAFE-1")
@pytest.mark.parametrize("step", ["open", "pread"])
@pytest.mark.parametrize("number", NOT_NOW)
def test_a_local_copy_that_cannot_be_read_now_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, number: int
) -> None:
    copies = DiskCopies(tmp_path)
    copies.open_copies()
    record = keep(copies, "f", b"x" * 300_000)
    with monkeypatch.context() as disk:
        disk.setattr(os, step, failing(number))
        with pytest.raises(Unavailable):
            content_of(copies, record)
    assert copies.find(record.path) == record
    assert content_of(copies, record) == b"x" * 300_000


@pytest.mark.req("SAFE-1")
@pytest.mark.parametrize("step", ["open", "pread"])
@pytest.mark.parametrize("number", NOT_NOW)
def test_a_local_copy_that_cannot_be_read_at_the_start_is_there_at_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, number: int
) -> None:
    copies = DiskCopies(tmp_path)
    copies.open_copies()
    record = keep(copies, "f", b"x")
    before = files_in(tmp_path)
    with monkeypatch.context() as disk:
        disk.setattr(os, step, failing(number))
        assert DiskCopies(tmp_path).open_copies() == ()
    assert files_in(tmp_path) == before
    assert DiskCopies(tmp_path).open_copies() == (record,)


def rename(source: str) -> Rename:
    caller = Caller(job_id=JobId("1" * 32), attempt=1, allocation_id=DRIVER)
    return Rename(caller=caller, root="/r", source=source, target="t")


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """The journal of a process that was killed."""
    journal = FileRenameJournal(tmp_path / "renames", Clock())
    for name in ("a", "b"):
        assert journal.begin(rename(name))
    return tmp_path / "renames"


@pytest.mark.req("SAFE-1", "LOC-8")
@pytest.mark.parametrize("number", NOT_NOW)
def test_a_journal_that_cannot_be_read_now_is_read_later(
    begun: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    written, clock = begun.read_bytes(), Clock()
    with monkeypatch.context() as disk:
        disk.setattr(Path, "read_bytes", failing(number))
        journal = FileRenameJournal(begun, clock)
        for _ in range(2):
            with pytest.raises(Unavailable, match="a may or may not have been renamed"):
                journal.knows(rename("a"))
            assert not journal.begin(rename("c"))
            clock.now += 60_000
        assert not journal.begin(rename("b"))
        assert not journal.void(rename("b"))
        assert journal.knows(rename("c"))
    assert begun.read_bytes() == written
    clock.now += 1000
    assert [journal.knows(rename(name)) for name in "abcd"] == [True, True, True, False]
    assert journal.begin(rename("e"))
    again = FileRenameJournal(begun, clock)
    assert [again.knows(rename(name)) for name in "abcde"] == [True, True, True, False, True]


@pytest.mark.req("SAFE-1")
def test_a_journal_is_begun_anew_once_nothing_in_it_counts_any_more(
    begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(Path, "read_bytes", failing(errno.EIO))
    journal = FileRenameJournal(begun, clock)
    clock.now += 600_000
    assert not journal.knows(rename("a"))
    assert journal.begin(rename("b"))
