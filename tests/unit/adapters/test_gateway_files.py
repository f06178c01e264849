"""What a state gateway remembers from one life to the next: its port, the renames that it began."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emberkeep.adapters.gateway_journal import FileRenameJournal
from emberkeep.adapters.gateway_port import bind_gateway_port
from emberkeep.adapters.gateway_spool import FileSpool
from emberkeep.base.ids import JobId
from emberkeep.local_state.gateway_ports import Rename
from emberkeep.local_state.model import DRIVER, Caller

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


@pytest.mark.req("LOC-8")
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
def test_the_next_life_takes_the_same_port(tmp_path: Path) -> None:
    first = bind_gateway_port("127.0.0.1", 0, tmp_path / "port")
    first.close()
    second = bind_gateway_port("127.0.0.1", 0, tmp_path / "port")
    assert second.port == first.port
    second.close()
    with socket.socket() as other:
        other.bind(("127.0.0.1", first.port))
        other.listen()
        third = bind_gateway_port("127.0.0.1", 0, tmp_path / "port")
        assert third.port != first.port
    third.close()
    (tmp_path / "port").write_bytes(b"torn")
    fourth = bind_gateway_port("127.0.0.1", 0, tmp_path / "port")
    fourth.close()


def test_a_spooled_file_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    spool = FileSpool()
    spool.write(b"one")
    spool.write(b"two")
    assert spool.finish() == 6
    assert spool.path.read_bytes() == b"onetwo"
    assert list(tmp_path.iterdir()) == []
    spool.discard()
    spool.discard()
