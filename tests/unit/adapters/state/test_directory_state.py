"""Durable state in a shared directory: the contract, what plain file:// leaves there, other kinds of file system."""

from __future__ import annotations

import errno
import itertools
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.adapters.state.directories.store import DirectoryState
from emberkeep.adapters.state.names import INCOMING
from emberkeep.base.errors import Absent, Fatal, RetryLater, Unavailable, UnknownOutcome
from emberkeep.base.files.operations import SystemFiles
from emberkeep.local_state.errors import Exists, NotADirectory
from emberkeep.local_state.ports import DurableState
from tests.support.contracts.durable_state import DurableStateContract, names, read
from tests.unit.adapters.small_disks import make_read_only, small_disk


class Directory:
    """A directory that several processes use."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "not" / "made" / "yet"
        self.machine = directory / "machine"
        self.machine.mkdir()
        self.files = itertools.count()

    def store(self) -> DurableState:
        return DirectoryState(self.root)

    def new_file(self, content: bytes) -> Path:
        file = self.machine / str(next(self.files))
        file.write_bytes(content)
        return file

    def leftovers(self) -> set[str]:
        return {path.name for path in self.root.rglob("*") if INCOMING in path.parts or not ours(path)}


def ours(path: Path) -> bool:
    return (path.is_file() or path.is_dir()) and not path.is_symlink()


@pytest.fixture
def place(tmp_path: Path) -> Directory:
    return Directory(tmp_path)


class TestDirectoryState(DurableStateContract):
    pass


class NoExclusiveRename(SystemFiles):
    """NFS."""

    def rename_new(self, source: str, target: str, **_: int | None) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


class TestWithoutExclusiveRename(DurableStateContract):
    @pytest.fixture
    def place(self, place: Directory, monkeypatch: pytest.MonkeyPatch) -> Directory:
        monkeypatch.setattr(place, "store", lambda: DirectoryState(place.root, NoExclusiveRename()))
        return place


class FailingFiles(SystemFiles):
    """``failing``: names of steps that fail, and with which error. It is done nevertheless where ``done`` says so."""

    def __init__(self) -> None:
        self.failing: dict[str, int] = {}
        self.done = False

    def _fail(self, step: str) -> None:
        if step in self.failing:
            raise OSError(self.failing[step], os.strerror(self.failing[step]))

    def rename_new(
        self, source: str, target: str, *, source_directory: int | None = None, target_directory: int | None = None
    ) -> None:
        if self.done or "rename_new" not in self.failing:
            super().rename_new(source, target, source_directory=source_directory, target_directory=target_directory)
        self._fail("rename_new")

    def link(
        self, source: str, target: str, *, source_directory: int | None = None, target_directory: int | None = None
    ) -> None:
        if self.done or "link" not in self.failing:
            super().link(source, target, source_directory=source_directory, target_directory=target_directory)
        self._fail("link")

    def write(self, file: int, data: bytes) -> None:
        self._fail("write")
        super().write(file, data)

    def sync(self, descriptor: int) -> None:
        self._fail("sync" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "sync of the file")
        super().sync(descriptor)


@pytest.fixture
def files() -> FailingFiles:
    return FailingFiles()


@pytest.fixture
def store(place: Directory, files: FailingFiles) -> Iterator[DirectoryState]:
    store = DirectoryState(place.root, files)
    yield store
    files.failing.clear()
    store.close()


def test_checksums_of_plain_file_access_do_not_condemn_other_bytes(place: Directory, store: DirectoryState) -> None:
    def plain(name: str) -> Path:
        """As Hadoop's local file system writes a file."""
        (place.root / name).parent.mkdir(parents=True, exist_ok=True)
        (place.root / name).write_bytes(b"plain")
        side = (place.root / name).with_name(f".{Path(name).name}.crc")
        side.write_bytes(b"crc\0\0\0\2\0")
        return side

    sides = [plain(name) for name in ("d/replaced", "d/taken", "d/moved", "d/deleted")]
    stale = plain("d/gone before")
    (place.root / "d/gone before").unlink()
    untouched = plain("d/untouched")
    assert names(store, "d") == [f"d/{name}" for name in ("deleted", "moved", "replaced", "taken", "untouched")]
    assert read(store, "d/untouched") == b"plain"
    store.create("d/replaced", place.new_file(b"x"), overwrite=True)
    store.create("d/.tmp", place.new_file(b"x"), overwrite=True)
    store.rename("d/.tmp", "d/taken", overwrite=True)
    store.rename("d/moved", "d/elsewhere", overwrite=False)
    store.delete("d/deleted", recursive=False)
    store.create("d/gone before", place.new_file(b"x"), overwrite=False)
    with pytest.raises(Exists):
        store.create("d/untouched", place.new_file(b"x"), overwrite=False)
    assert [side for side in (*sides, stale) if side.exists()] == []
    assert untouched.exists()
    for name in names(store, "d"):
        store.delete(name, recursive=False)
    plain("d/only a side file is left")
    (place.root / "d/only a side file is left").unlink()
    assert store.delete("d", recursive=False)


def test_links_lead_nowhere(place: Directory, store: DirectoryState, tmp_path: Path) -> None:
    (outside := tmp_path / "outside").mkdir()
    (outside / "secret").write_bytes(b"secret")
    store.make_directory("d")
    (place.root / "link").symlink_to(outside)
    (place.root / "d" / "file").symlink_to(outside / "secret")
    os.mkfifo(place.root / "d" / "pipe")
    assert names(store) == ["d"]
    assert names(store, "d") == []
    for name in ("link", "link/secret", "d/file", "d/pipe"):
        with pytest.raises(Absent):
            store.status(name)
        with pytest.raises(Absent):
            store.read(name, 0, None)
        with pytest.raises(Absent):
            store.rename(name, "taken", overwrite=True)
        assert not store.delete(name, recursive=True)
    for name in ("link/new", "link/new/new", "d/file/new"):
        with pytest.raises(NotADirectory):
            store.create(name, place.new_file(b"x"), overwrite=True)
        with pytest.raises(NotADirectory):
            store.make_directory(name)
    store.create("d/file", place.new_file(b"x"), overwrite=True)  # takes the link's place
    assert (outside / "secret").read_bytes() == b"secret"
    store.delete("", recursive=True)
    assert [path.name for path in outside.iterdir()] == ["secret"]


def test_an_answer_that_gets_lost_is_told_as_such(place: Directory, store: DirectoryState, files: FailingFiles) -> None:
    source = place.new_file(b"x")
    store.create("d/f", source, overwrite=False)
    for failing in ({"rename_new": errno.ETIMEDOUT}, {"rename_new": errno.EIO}, {"sync": errno.EIO}):
        files.failing = failing
        files.done = True
        with pytest.raises(UnknownOutcome):
            store.create("d/g", source, overwrite=False)
        files.failing = {}
        assert read(store, "d/g") == b"x"
        files.failing = failing
        with pytest.raises(UnknownOutcome):
            store.rename("d/g", "d/h", overwrite=False)
        files.failing = {}
        assert names(store, "d") == ["d/f", "d/h"]
        store.delete("d/h", recursive=False)
    for failing, expected in (
        ({"write": errno.ENOSPC}, Fatal),
        ({"write": errno.EDQUOT}, Fatal),
        ({"sync of the file": errno.EIO}, Unavailable),
        ({"write": errno.EACCES}, Unavailable),
        ({"write": errno.ESTALE}, Unavailable),
    ):
        files.failing = failing
        with pytest.raises(expected):
            store.create("d/g", source, overwrite=False)
        files.failing = {}
        assert names(store, "d") == ["d/f"]


def test_a_link_whose_answer_got_lost_finds_itself(
    place: Directory, store: DirectoryState, files: FailingFiles
) -> None:
    files.failing = {"rename_new": errno.EINVAL}
    store.create("d/.f.tmp", place.new_file(b"temporary"), overwrite=False)  # from now on by links
    files.failing, files.done = {"link": errno.EEXIST}, True
    store.create("d/f", place.new_file(b"x"), overwrite=False)
    assert read(store, "d/f") == b"x"
    store.rename("d/.f.tmp", "d/g", overwrite=False)
    assert names(store, "d") == ["d/f", "d/g"]


def test_a_file_system_that_gives_no_name_once_is_refused(
    place: Directory, store: DirectoryState, files: FailingFiles
) -> None:
    files.failing = {"rename_new": errno.EINVAL, "link": errno.EPERM}
    with pytest.raises(Fatal, match="neither an exclusive rename nor hard links"):
        store.create("d/f", place.new_file(b"x"), overwrite=False)
    store.create("d/f", place.new_file(b"x"), overwrite=True)
    assert names(store, "d") == ["d/f"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_move_by_link_that_was_cut_off_is_finished(place: Directory, store: DirectoryState, overwrite: bool) -> None:
    store.create("d/.f.tmp", place.new_file(b"x"), overwrite=False)
    (place.root / "d" / "f").hardlink_to(place.root / "d" / ".f.tmp")
    store.rename("d/.f.tmp", "d/f", overwrite=overwrite)
    assert names(store, "d") == ["d/f"]


def test_only_old_leftovers_of_others_are_removed(place: Directory, store: DirectoryState) -> None:
    (incoming := place.root / INCOMING).mkdir(parents=True)
    for name, age in (("old", 4000), ("young", 3000)):
        (incoming / name).write_bytes(b"x")
        os.utime(incoming / name, (0, time.time() - age))
    (incoming / "being deleted" / "in it").mkdir(parents=True)
    assert names(store) == []
    store.create("f", place.new_file(b"x"), overwrite=False)
    assert [path.name for path in incoming.iterdir()] == ["young"]
    (incoming / "young").unlink()


def test_a_full_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", "1M") as root:
        store = DirectoryState(root)
        source = tmp_path / "source"
        source.write_bytes(b"x" * 700_000)
        store.create("f", source, overwrite=False)
        with pytest.raises(Fatal, match="No space"):
            store.create("g", source, overwrite=False)
        assert names(store) == ["f"]
        store.delete("f", recursive=False)
        store.create("g", source, overwrite=False)
        make_read_only(root)
        for refused in (
            lambda: store.create("h", source, overwrite=False),
            lambda: store.rename("g", "h", overwrite=False),
            lambda: store.make_directory("d"),
            lambda: store.delete("g", recursive=False),
        ):
            with pytest.raises(Unavailable, match="Read-only"):
                refused()
        assert read(store, "g") == source.read_bytes()


class LeavingNeighbour(SystemFiles):
    """Another process that uses the directory is closed just before a directory is moved away for its deletion."""

    def __init__(self, root: Path, times: int) -> None:
        self.root = root
        self.times = times

    def rename(
        self, source: str, target: str, *, source_directory: int | None = None, target_directory: int | None = None
    ) -> None:
        if self.times > 0:
            self.times -= 1
            DirectoryState(self.root).close()
        super().rename(source, target, source_directory=source_directory, target_directory=target_directory)


def test_a_directory_is_deleted_although_another_process_leaves_meanwhile(place: Directory) -> None:
    store = DirectoryState(place.root, LeavingNeighbour(place.root, times=1))
    store.create("a/b", place.new_file(b"1"), overwrite=False)
    assert store.delete("a", recursive=True)
    assert names(store) == []
    assert not store.delete("a", recursive=True)


def test_a_directory_that_is_there_is_never_said_to_be_missing(place: Directory) -> None:
    store = DirectoryState(place.root, LeavingNeighbour(place.root, times=100))
    store.create("a/b", place.new_file(b"1"), overwrite=False)
    with pytest.raises(RetryLater, match="cannot be deleted now"):
        store.delete("a", recursive=True)
    assert read(store, "a/b") == b"1"
