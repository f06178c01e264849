"""The HA store in a directory: one file for equal content, several processes, file systems that fail."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from emberkeep.adapters.blobs import files_tree
from emberkeep.adapters.blobs.directory import DirectoryBlobs
from emberkeep.adapters.blobs.files_copy import copy_hashed
from emberkeep.adapters.blobs.ha_store import open_blob_storage
from emberkeep.base.errors import Absent, Fatal, RetryLater, Unavailable
from emberkeep.blobs.errors import CannotStore
from emberkeep.blobs.model import BlobKey
from tests.support.contracts.local_store import ONE, OTHER, blob
from tests.unit.adapters.small_disks import files_up_to, make_read_only, small_disk

DEADLINE = 120  # seconds


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "ha"


def new_file(tmp_path: Path, text: str, length: int = 2000) -> tuple[BlobKey, Path]:
    key, content = blob(text, length)
    file = tmp_path / f"file {text} {length}"
    file.write_bytes(content)
    return key, file


def names_in(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}


@pytest.mark.req("BLOB-21")
async def test_equal_content_is_one_file(root: Path, tmp_path: Path) -> None:
    store = DirectoryBlobs(root)
    key, file = new_file(tmp_path, "a")
    await store.put(ONE, key, file)
    await store.put(OTHER, key, file)
    paths = [root / owner / str(key) for owner in (ONE, OTHER)]
    assert paths[0].stat().st_ino == paths[1].stat().st_ino
    assert paths[0].stat().st_ino != file.stat().st_ino  # damage to the local file must not be damage here


@pytest.mark.req("BLOB-21")
async def test_it_is_found_again_by_the_next_leader(root: Path, tmp_path: Path) -> None:
    key, file = new_file(tmp_path, "a")
    await DirectoryBlobs(root).put(ONE, key, file)
    store = DirectoryBlobs(root)
    await store.listing()
    await store.put(OTHER, key, file)
    assert (root / OTHER / str(key)).stat().st_nlink == 2


async def test_what_another_process_deleted_is_stored_anew(root: Path, tmp_path: Path) -> None:
    key, file = new_file(tmp_path, "a")
    store, deposed = DirectoryBlobs(root), DirectoryBlobs(root)
    await store.put(ONE, key, file)
    await deposed.listing()
    await deposed.delete_owner(ONE)
    await store.put(OTHER, key, file)
    assert names_in(root) == {f"{OTHER}/{key}"}
    await store.put(ONE, key, file)
    assert names_in(root) == {f"{OTHER}/{key}", f"{ONE}/{key}"}


async def test_what_another_process_has_stored_stays_if_it_cannot_be_stored_again(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, file = new_file(tmp_path, "a")
    await DirectoryBlobs(root).put(ONE, key, file)

    def cannot_sync(path: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    monkeypatch.setattr(files_tree, "sync_directory", cannot_sync)
    store = DirectoryBlobs(root)
    with pytest.raises(Unavailable):
        await store.put(ONE, key, file)
    with pytest.raises(Unavailable):
        await store.put(OTHER, key, file)
    assert names_in(root) == {f"{ONE}/{key}"}, "what is new is taken back"


@pytest.mark.req("BLOB-5")
async def test_storing_mends_what_is_damaged_for_all(root: Path, tmp_path: Path) -> None:
    store = DirectoryBlobs(root)
    key, file = new_file(tmp_path, "a")
    await store.put(ONE, key, file)
    await store.put(OTHER, key, file)
    path = root / ONE / str(key)
    before = path.stat().st_mtime_ns
    path.write_bytes(b"?" * 2000)
    os.utime(path, ns=(before + 1, before + 1))
    third = type(ONE)(f"{3:032x}")
    await store.put(third, key, file)
    assert {(root / owner / str(key)).read_bytes() for owner in (ONE, OTHER, third)} == {blob("a")[1]}


async def test_a_reader_makes_nothing(root: Path, tmp_path: Path) -> None:
    store = DirectoryBlobs(root)
    key = blob("a")[0]
    for call in (store.size(ONE, key), store.fetch(ONE, key, tmp_path / "copy")):
        with pytest.raises(Unavailable):  # the mount may be away
            await call
    await store.delete(ONE, [key])
    await store.delete_owner(ONE)
    assert await store.listing() == {}
    assert not root.exists()
    assert not (tmp_path / "copy").exists()


async def test_others_transfers_are_left_alone_until_they_are_old(root: Path, tmp_path: Path) -> None:
    key, file = new_file(tmp_path, "a")
    await DirectoryBlobs(root).put(ONE, key, file)
    for name, age in (("under way", 0), ("left by a crash", 2 * 3600)):
        leftover = root / ".incoming" / name
        leftover.write_bytes(b"half")
        os.utime(leftover, (time.time() - age, time.time() - age))
    await DirectoryBlobs(root).listing()
    assert ".incoming/left by a crash" in names_in(root), "only who may delete there does"
    await DirectoryBlobs(root).delete(ONE, [])
    assert names_in(root) == {f"{ONE}/{key}", ".incoming/under way"}


@pytest.mark.req("BLOB-5")
async def test_a_full_file_system(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "3m") as disk:
        store = DirectoryBlobs(disk / "ha")
        key, file = new_file(tmp_path, "a")
        await store.put(ONE, key, file)
        large, large_file = new_file(tmp_path, "b", 5_000_000)
        with pytest.raises(Fatal, match="No space left") as told:
            await store.put(ONE, large, large_file)
        assert str(disk / "ha") in str(told.value)
        assert names_in(disk / "ha") == {f"{ONE}/{key}"}


@pytest.mark.req("BLOB-5")
async def test_a_read_only_file_system(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "3m") as disk:
        store = DirectoryBlobs(disk / "ha")
        key, file = new_file(tmp_path, "a")
        await store.put(ONE, key, file)
        make_read_only(disk)
        for call in (store.put(OTHER, key, file), store.delete(ONE, [key]), store.delete_owner(ONE)):
            with pytest.raises(Unavailable, match="Read-only"):
                await call
        await store.fetch(ONE, key, tmp_path / "copy")
        assert (tmp_path / "copy").read_bytes() == blob("a")[1]
        assert list(await DirectoryBlobs(disk / "ha").listing()) == [ONE]


@pytest.mark.req("BLOB-5")
async def test_a_limit_on_the_size_of_files(root: Path, tmp_path: Path) -> None:
    store = DirectoryBlobs(root)
    key, file = new_file(tmp_path, "a", 5_000_000)
    with files_up_to(2_000_000), pytest.raises(Fatal, match="too large"):
        await store.put(ONE, key, file)
    assert names_in(root) == set()
    await store.put(ONE, key, file)
    with files_up_to(2_000_000), pytest.raises(CannotStore, match="too large"):  # it is this machine's disk
        await store.fetch(ONE, key, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ESTALE, RetryLater),
        (errno.ETIMEDOUT, RetryLater),
        (errno.ENOTCONN, RetryLater),
        (errno.EDQUOT, Fatal),
        (errno.ENAMETOOLONG, Fatal),
        (errno.EACCES, Unavailable),
        (errno.EIO, Unavailable),
    ],
)
async def test_what_an_error_of_the_file_system_means(
    root: Path, tmp_path: Path, number: int, kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    key, file = new_file(tmp_path, "a")
    real = os.fsync

    def bad(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", bad)
    store = DirectoryBlobs(root)
    with pytest.raises(kind, match=os.strerror(number)):
        await store.put(ONE, key, file)
    monkeypatch.setattr(os, "fsync", real)
    assert names_in(root) == set()
    await store.put(ONE, key, file)


class Hang:
    """A file system that does not answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached = threading.Event()
        self.go_on = threading.Event()
        self.ended = threading.Event()

        def slow(source: Path, destination: Path, pause: Callable[[], None]) -> str:
            self.reached.set()
            assert self.go_on.wait(DEADLINE)
            try:
                return copy_hashed(source, destination, pause)
            finally:
                self.ended.set()

        monkeypatch.setattr("emberkeep.adapters.blobs.directory.copy_hashed", slow)


async def test_a_file_system_that_hangs_is_given_up(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, file = new_file(tmp_path, "a")
    hang, store = Hang(monkeypatch), DirectoryBlobs(root, patience=0.2)
    with pytest.raises(RetryLater, match="does not answer"):
        await store.put(ONE, key, file)
    hang.go_on.set()
    assert await asyncio.to_thread(hang.ended.wait, DEADLINE)
    assert names_in(root) == set()  # nothing comes after that was told


async def test_a_caller_that_goes_away_leaves_nothing(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, file = new_file(tmp_path, "a")
    hang, store = Hang(monkeypatch), DirectoryBlobs(root)
    putting = asyncio.create_task(store.put(ONE, key, file))
    assert await asyncio.to_thread(hang.reached.wait, DEADLINE)
    putting.cancel()
    asyncio.get_running_loop().call_soon(hang.go_on.set)
    with pytest.raises(asyncio.CancelledError):
        await putting
    assert names_in(root) == set()


async def test_what_lies_in_the_place_of_a_blob_may_be_foreign(root: Path, tmp_path: Path) -> None:
    key, content = blob("a")
    (tmp_path / "elsewhere").write_bytes(content)
    (root / ONE).mkdir(parents=True)
    (root / ONE / str(key)).symlink_to(tmp_path / "elsewhere")
    store = DirectoryBlobs(root)
    with pytest.raises(Absent):
        await store.fetch(ONE, key, tmp_path / "copy")
    with pytest.raises(Absent):
        await store.size(ONE, key)


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("/a/b", "/a/b"),
        ("file:///a/b%20c", "/a/b c"),
        ("file://localhost/a", "/a"),
        ("relative", f"{Path.cwd()}/relative"),
    ],
)
def test_a_location_names_a_directory(location: str, path: str) -> None:
    store = open_blob_storage(location)
    assert isinstance(store, DirectoryBlobs)
    assert store.location == path


@pytest.mark.parametrize("location", ["", "hdfs://name/x", "file://server/share", "file:///a?b"])
def test_a_location_of_no_known_kind_is_refused(location: str) -> None:
    with pytest.raises(Fatal) as told:
        open_blob_storage(location)
    assert told.value.hint
