"""Local copies on a disk: the contract, disks that fail, whatever else may lie there."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from emberkeep.adapters.state.copies import DiskCopies
from emberkeep.base.errors import Fatal, InvalidInput
from emberkeep.base.files.operations import SystemFiles
from emberkeep.base.ids import AllocationId, JobId
from emberkeep.local_state.model import CopyRecord
from emberkeep.local_state.ports import LocalCopies
from tests.support.contracts.local_copies import ONE, A, LocalCopiesContract, at, content_of, keep
from tests.support.copy_files import copy_file, flip
from tests.unit.adapters.small_disks import files_up_to, make_read_only, small_disk


class DirectoryDisk:
    def __init__(self, root: Path) -> None:
        self.root = root

    def copies(self) -> LocalCopies:
        return DiskCopies(self.root)

    def file_of(self, record: CopyRecord) -> Path:
        return copy_file(self.root, record)

    def flip(self, record: CopyRecord, offset: int) -> None:
        flip(self.file_of(record), offset)

    def cut(self, record: CopyRecord, length: int) -> None:
        os.truncate(self.file_of(record), length)

    def remove(self, record: CopyRecord) -> None:
        self.file_of(record).unlink()

    def files(self) -> set[str]:
        return {str(path.relative_to(self.root)) for path in self.root.rglob("*")} - {"copies", "staging"}


@pytest.fixture
def disk(tmp_path: Path) -> DirectoryDisk:
    return DirectoryDisk(tmp_path / "state")


class TestDiskCopies(LocalCopiesContract):
    pass


@pytest.mark.req("LOC-5")
def test_whatever_else_lies_there_is_removed(disk: DirectoryDisk) -> None:
    copies = disk.copies()
    copies.open_copies()
    record = keep(copies, "f", b"x")
    content = disk.file_of(record).read_bytes()
    owner = disk.root / "copies" / ONE / A
    (outside := disk.root.parent / "outside").mkdir()
    (outside / "stays").write_bytes(b"")
    (owner / "directory" / "in it").mkdir(parents=True)
    (owner / "link").symlink_to(outside)
    (owner / "empty").touch()
    os.mkfifo(owner / "pipe")
    (owner.parent / "no-allocation").mkdir()
    (owner.parent / ("c" * 32)).symlink_to(outside)
    (owner.parent / ("d" * 32)).mkdir()
    (disk.root / "copies" / "no-job").mkdir()
    (disk.root / "copies" / ("3" * 32)).touch()
    (disk.root / "staging" / "link").symlink_to(outside)
    # A copy of one job in the directory of another.
    strange = disk.root / "copies" / ("4" * 32) / A
    strange.mkdir(parents=True)
    (strange / "x").write_bytes(content)
    assert disk.copies().open_copies() == (record,)
    assert disk.files() == {f"copies/{ONE}", f"copies/{ONE}/{A}", str(disk.file_of(record).relative_to(disk.root))}
    assert (outside / "stays").exists()


@pytest.mark.req("LOC-8")
@pytest.mark.parametrize(("old", "new"), [(b"local-copy 1 ", b"local-copy 2 "), (b'"length":1,', b'"length":0,')])
def test_a_record_of_another_version_or_changed_counts_for_nothing(disk: DirectoryDisk, old: bytes, new: bytes) -> None:
    copies = disk.copies()
    copies.open_copies()
    file = disk.file_of(keep(copies, "f", b"x"))
    assert old in file.read_bytes()
    file.write_bytes(file.read_bytes().replace(old, new))
    assert disk.copies().open_copies() == ()
    assert disk.files() == set()


def test_ids_that_are_none_lead_nowhere(disk: DirectoryDisk) -> None:
    copies = disk.copies()
    copies.open_copies()
    for job, allocation in (
        (JobId("../" + "1" * 29), A),
        (ONE, AllocationId("../../x")),
        (ONE, AllocationId("driver")),
        (ONE, AllocationId("")),
    ):
        staged = copies.stage()
        with pytest.raises(InvalidInput):
            staged.keep(at("f"), job, 1, allocation, "g")
        staged.discard()
    assert disk.files() == set()


def test_a_full_disk_takes_nothing_and_keeps_what_it_has(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", "1M") as directory:
        disk = DirectoryDisk(directory / "state")
        copies = disk.copies()
        copies.open_copies()
        record = keep(copies, "kept", b"x" * 300_000)
        staged = copies.stage()
        with pytest.raises(Fatal, match="No space"):
            staged.write(b"y" * 2_000_000)
        staged.discard()
        assert copies.records() == (record,)
        assert content_of(copies, record) == b"x" * 300_000
        keep(copies, "more", b"z" * 300_000)
        make_read_only(directory)
        for refused in (copies.stage, lambda: copies.drop(record.path)):
            with pytest.raises(Fatal):
                refused()
        assert content_of(copies, copies.records()[-1]) == b"z" * 300_000


class StuckFiles(SystemFiles):
    """A disk that does not let files go, or not the directories either."""

    def unlink(self, path: str, *, directory: int | None = None) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def remove_directory(self, path: str, *, directory: int | None = None) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)


@pytest.mark.req("LOC-7")
def test_what_cannot_be_removed_keeps_nobody_from_starting(disk: DirectoryDisk) -> None:
    copies = disk.copies()
    copies.open_copies()
    older = disk.file_of(keep(copies, "f", b"older")).read_bytes()
    record = keep(copies, "f", b"x")
    owner = disk.root / "copies" / ONE / A
    (owner / "older").write_bytes(older)  # a crash came before it was deleted
    os.utime(owner / "older", (0, 0))
    (owner / "torn").write_bytes(b"torn")
    (owner.parent / "no-allocation").mkdir()
    (disk.root / "copies" / "no-job").mkdir()
    (disk.root / "staging" / "directory" / "in it").mkdir(parents=True)
    (disk.root / "staging" / "file").touch()
    before = disk.files()
    stuck = DiskCopies(disk.root, StuckFiles())
    assert stuck.open_copies() == (record,)
    assert content_of(stuck, record) == b"x"
    assert disk.files() == before
    assert disk.copies().open_copies() == (record,)
    assert disk.files() == {f"copies/{ONE}", f"copies/{ONE}/{A}", str(disk.file_of(record).relative_to(disk.root))}


@pytest.mark.req("LOC-7")
def test_copies_on_a_disk_that_became_read_only_are_read(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", "1M") as directory:
        disk = DirectoryDisk(directory / "state")
        copies = disk.copies()
        copies.open_copies()
        record = keep(copies, "f", b"x" * 1000)
        (disk.root / "copies" / ONE / A / "torn").write_bytes(b"torn")
        (disk.root / "staging" / "left").write_bytes(b"x")
        make_read_only(directory)
        again = disk.copies()
        assert again.open_copies() == (record,)
        assert content_of(again, record) == b"x" * 1000


def test_a_disk_that_is_there_only_later_is_used_from_then_on(disk: DirectoryDisk) -> None:
    disk.root.write_bytes(b"no directory")
    copies = disk.copies()
    with pytest.raises(Fatal):
        copies.open_copies()
    with pytest.raises(Fatal):
        copies.stage()
    disk.root.unlink()
    assert content_of(copies, keep(copies, "f", b"x")) == b"x"


@pytest.mark.req("LOC-5")
def test_all_of_it_goes_when_nothing_is_kept_there_any_more(disk: DirectoryDisk) -> None:
    copies = disk.copies()
    copies.open_copies()
    for number in range(3):
        keep(copies, f"f{number}", b"x")
    left = copies.stage()
    DiskCopies(disk.root).clear()
    DiskCopies(disk.root).clear()
    assert not disk.root.exists()
    left.discard()
    disk.copies().open_copies()
    (disk.root / "of somebody else").touch()
    DiskCopies(disk.root).clear()
    assert [path.name for path in disk.root.iterdir()] == ["of somebody else"]
    with pytest.raises(Fatal):
        DiskCopies(disk.root / "of somebody else").clear()


def test_a_record_that_cannot_be_written_makes_no_copy(disk: DirectoryDisk) -> None:
    copies = disk.copies()
    copies.open_copies()
    staged = copies.stage()
    staged.write(b"x" * 1000)
    record = keep(copies, "other", b"y" * 900)
    with files_up_to(1100):
        with pytest.raises(Fatal):
            staged.keep(at("f"), ONE, 1, A, "g")
        with pytest.raises(Fatal):
            copies.move(record, at("moved"), "g2")
    staged.discard()
    assert (copies.records(), disk.files()) == ((), set())
