"""What a state gateway remembers from one life to the next: its port, the renames that it began."""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emberkeep.adapters.http.server import BoundPort, bind_port
from emberkeep.adapters.state import journal as gateway_journal
from emberkeep.adapters.state.directories.store import DirectoryState
from emberkeep.adapters.state.journal import FileRenameJournal
from emberkeep.adapters.state.spool import FileSpool
from emberkeep.adapters.webhdfs import port as gateway_port
from emberkeep.adapters.webhdfs.port import bind_gateway_port
from emberkeep.base.clock import boot_ms
from emberkeep.base.errors import Fatal
from emberkeep.base.files.operations import SystemFiles
from emberkeep.base.ids import JobId
from emberkeep.local_state.gateway_ports import Rename
from emberkeep.local_state.model import DRIVER, Caller
from tests.unit.adapters.small_disks import make_read_only, small_disk

CALLER = Caller(job_id=JobId("1" * 32), attempt=1, allocation_id=DRIVER)


def rename(source: str) -> Rename:
    return Rename(caller=CALLER, root="/r", source=source, target="t")


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000_000

    def __call__(self) -> int:
        return self.now


def test_the_next_life_knows_the_renames_that_were_begun(tmp_path: Path) -> None:
    clock = Clock()
    journal = FileRenameJournal(tmp_path / "renames", clock)
    for name in ("a", "b", "c"):
        journal.begin(rename(name))
    journal.void(rename("b"))
    # Not closed: the process was killed.
    for again in (journal, FileRenameJournal(tmp_path / "renames", clock)):
        assert [again.knows(rename(name)) for name in ("a", "b", "c", "d")] == [True, False, True, False]
        again.close()
        again.close()
    clock.now += 600_000
    late = FileRenameJournal(tmp_path / "renames", clock)
    assert not late.knows(rename("a"))
    late.close()


def test_a_rename_stays_known_although_the_wall_clock_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wall = time.time
    journal = FileRenameJournal(tmp_path / "renames", boot_ms)
    journal.begin(rename("a"))
    monkeypatch.setattr(time, "time", lambda: wall() + 86_400)
    monkeypatch.setattr(time, "time_ns", lambda: int((wall() + 86_400) * 1e9))
    for again in (journal, FileRenameJournal(tmp_path / "renames", boot_ms)):
        assert again.knows(rename("a"))
        again.close()


def test_a_time_that_has_not_come_counts_from_now_on(tmp_path: Path) -> None:
    """It is of an earlier boot, or an earlier release has written the wall clock's."""
    clock = Clock()
    journal = FileRenameJournal(tmp_path / "renames", lambda: 1_700_000_000_000)
    journal.begin(rename("a"))
    journal.close()
    again = FileRenameJournal(tmp_path / "renames", clock)
    assert again.knows(rename("a"))
    clock.now += 600_000
    assert not again.knows(rename("a"))
    again.close()


@pytest.mark.req("LOC-8")
@settings(deadline=None)
@given(cut=st.integers(0, 2000), flip=st.integers(0, 2000))
def test_a_damaged_journal_claims_nothing(tmp_path_factory: pytest.TempPathFactory, cut: int, flip: int) -> None:
    directory = tmp_path_factory.mktemp("journal")
    journal = FileRenameJournal(directory / "renames", Clock())
    names = [f"name-{number}" for number in range(8)]
    for name in names:
        journal.begin(rename(name))
    journal.close()
    data = bytearray((directory / "renames").read_bytes())
    if flip < len(data):
        data[flip] ^= 0x55
    (directory / "renames").write_bytes(data[: len(data) - cut])
    again = FileRenameJournal(directory / "renames", Clock())
    known = [name for name in names if again.knows(rename(name))]
    again.begin(rename("more"))
    again.close()
    assert set(known) <= set(names)
    assert set(again._begun) <= {rename(name) for name in (*names, "more")}


class CountedFiles(SystemFiles):
    """Counts the files that are made; refuses everything while ``problem`` is set."""

    def __init__(self) -> None:
        self.made = 0
        self.problem: int | None = None

    def create(self, path: str, mode: int = 0o600, *, directory: int | None = None) -> int:
        self.made += 1
        self._fail()
        return super().create(path, mode, directory=directory)

    def write(self, file: int, data: bytes) -> None:
        if self.problem is not None:
            super().write(file, data[:10])  # a full disk takes a part
        self._fail()
        super().write(file, data)

    def _fail(self) -> None:
        if self.problem is not None:
            raise OSError(self.problem, os.strerror(self.problem))


def test_many_renames_at_once_cost_few_rewrites(tmp_path: Path) -> None:
    files = CountedFiles()
    journal = FileRenameJournal(tmp_path / "renames", Clock(), files)
    for number in range(20_000):
        assert journal.begin(rename(f"state/0/1/.{number}.delta.{'u' * 36}.tmp"))
    assert (tmp_path / "renames").stat().st_size > 4 * 1024**2
    assert files.made < 5
    journal.close()
    again = FileRenameJournal(tmp_path / "renames", Clock())
    assert again.knows(rename(f"state/0/1/.0.delta.{'u' * 36}.tmp"))
    again.close()


@pytest.mark.req("LOC-7")
@pytest.mark.parametrize("problem", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_a_disk_that_takes_no_lines_costs_no_rename(tmp_path: Path, problem: int) -> None:
    clock, files = Clock(), CountedFiles()
    journal = FileRenameJournal(tmp_path / "renames", clock, files)
    assert journal.begin(rename("before"))
    assert journal.begin(rename("refused"))
    files.problem = problem
    assert not journal.begin(rename("meanwhile"))
    assert not journal.void(rename("refused"))
    with (tmp_path / "of somebody else").open("wb"):  # it gets the number of the file that was given up
        tries = files.made
        for number in range(1000):
            assert not journal.begin(rename(f"meanwhile-{number}"))
        assert files.made == tries  # the disk is left alone for a while
        clock.now += 60_000
        assert not journal.begin(rename("still"))
        files.problem = None
        clock.now += 60_000
        assert journal.begin(rename("after"))
    assert (tmp_path / "of somebody else").read_bytes() == b""
    for again in (journal, FileRenameJournal(tmp_path / "renames", clock)):
        names = ("before", "refused", "meanwhile", "meanwhile-999", "still", "after")
        assert [again.knows(rename(name)) for name in names] == [True, False, True, True, True, True]
        again.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["of somebody else", "renames"]


def test_a_journal_that_is_begun_anew_on_a_full_disk_writes_into_nobodys_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_journal, "_LEAST", 2000)
    clock, files = Clock(), CountedFiles()
    journal = FileRenameJournal(tmp_path / "renames", clock, files)
    while (tmp_path / "renames").stat().st_size <= 2000:
        journal.begin(rename("x" * 500 + str(clock.now)))
        clock.now += 1
    files.problem = errno.ENOSPC
    assert not journal.begin(rename("one"))
    others = [(tmp_path / str(number)).open("w+b") for number in range(5)]
    files.problem = None
    for number in range(100):
        clock.now += 1000
        journal.begin(rename(f"more-{number}"))
    assert all(other.read() == b"" for other in others)
    for other in others:
        other.close()
    journal.close()
    journal.close()
    assert not journal.begin(rename("after the end"))


def test_a_gateway_begins_on_a_disk_that_takes_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", "64k") as directory:
        make_read_only(directory)
        journal = FileRenameJournal(directory / "renames", Clock())
        assert not journal.begin(rename("a"))
        assert journal.knows(rename("a"))
        journal.close()
    (tmp_path / "renames").mkdir()
    journal = FileRenameJournal(tmp_path / "renames", Clock())
    assert not journal.begin(rename("a"))
    assert journal.knows(rename("a"))
    journal.close()


def test_a_journal_does_not_grow_for_ever(tmp_path: Path) -> None:
    clock = Clock()
    journal = FileRenameJournal(tmp_path / "renames", clock)
    for number in range(15_000):
        clock.now += 1000
        journal.begin(rename(f"name-{number}"))
    assert (tmp_path / "renames").stat().st_size < 3 * 1024**2
    assert journal.knows(rename("name-14999"))
    assert journal.knows(rename("name-14500"))
    journal.close()


@pytest.mark.req("LOC-11")
async def test_the_next_life_takes_the_same_port(tmp_path: Path) -> None:
    first = await bind_gateway_port("127.0.0.1", 0, tmp_path / "port")
    first.close()
    second = await bind_gateway_port("127.0.0.1", 0, tmp_path / "port")
    assert second.port == first.port
    second.close()
    with socket.socket() as other:
        other.bind(("127.0.0.1", first.port))
        other.listen()
        third = await bind_gateway_port("127.0.0.1", 0, tmp_path / "port", patience=0.5)
        assert third.port != first.port
    third.close()
    (tmp_path / "port").write_bytes(b"torn")
    fourth = await bind_gateway_port("127.0.0.1", 0, tmp_path / "port")
    fourth.close()


@pytest.mark.req("LOC-11")
async def test_a_port_that_somebody_has_for_a_moment_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await bind_gateway_port("127.0.0.1", 0, tmp_path / "port")
    first.close()
    other = socket.socket()
    other.bind(("127.0.0.1", first.port))
    other.listen()
    tries = []

    def bind(host: str, port: int, *, port_option: str) -> BoundPort:
        tries.append(port)
        if len(tries) == 3:
            other.close()
        return bind_port(host, port, port_option=port_option)

    monkeypatch.setattr(gateway_port, "bind_port", bind)
    second = await bind_gateway_port("127.0.0.1", 0, tmp_path / "port", patience=240.0)
    second.close()
    assert tries == [first.port] * 3


@pytest.mark.parametrize("refusal", [None, errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT])
def test_a_spooled_file_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: int | None) -> None:
    """``refusal``: what the file system says to a file without a name."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    if refusal is not None:
        monkeypatch.setattr(os, "open", refusing(os.O_TMPFILE, refusal, os.open))
    spool = FileSpool()
    spool.write(b"one")
    spool.write(b"two")
    assert spool.finish() == 6
    assert spool.path.read_bytes() == b"onetwo"
    assert list(tmp_path.iterdir()) == []
    store = DirectoryState(tmp_path / "store")
    assert store.create("f", spool.path, overwrite=False).length == 6
    store.close()
    spool.discard()
    spool.discard()


def test_a_spool_without_a_place_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    with pytest.raises(Fatal, match="none: No such file or directory"):
        FileSpool()


def refusing(flags: int, code: int, real: Callable[..., int]) -> Callable[..., int]:
    """``os.open`` of a file system that does not know ``flags``."""

    def open_file(path: str, wanted: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if wanted & flags == flags:
            raise OSError(code, os.strerror(code), path)
        return real(path, wanted, mode, dir_fd=dir_fd)

    return open_file
