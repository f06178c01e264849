"""The local BLOB store: one file for equal content, first use, foreign files, disks that fail."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import stat
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from emberkeep.adapters.blobs.files import BlobFiles
from emberkeep.adapters.blobs.files_tree import BlobTree
from emberkeep.base.errors import Absent, Fatal, InvalidInput, Unavailable
from emberkeep.base.ids import JobId
from emberkeep.blobs.errors import CannotStore, DamagedBlob
from emberkeep.blobs.model import BlobKey, transient
from tests.support.contracts.local_store import LIMIT, ONE, OTHER, blob, chunks, receive
from tests.unit.adapters.small_disks import files_up_to, make_read_only, small_disk

DEADLINE = 120  # seconds


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "blobs"


@pytest.fixture
async def store(root: Path) -> BlobFiles:
    return await opened(root)


async def opened(root: Path) -> BlobFiles:
    store = BlobFiles(root)
    await store.open_store()
    return store


def files_in(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}


def inode(path: Path) -> int:
    return path.stat().st_ino


# --- one file for equal content (BLOB-21) -----------------------------------------------------------------------------


@pytest.mark.req("BLOB-21")
async def test_equal_content_is_one_file_however_it_came(store: BlobFiles) -> None:
    key = await receive(store, ONE, "a")
    await receive(store, OTHER, "a")
    third = JobId(f"{3:032x}")
    assert await store.share(third, transient(key.sha256))
    paths = [await store.path(ONE, key), await store.path(OTHER, key), await store.path(third, transient(key.sha256))]
    assert len({inode(path) for path in paths}) == 1
    assert paths[0].stat().st_nlink == 3


@pytest.mark.req("BLOB-21")
async def test_the_last_owner_s_deletion_frees_the_content(store: BlobFiles, root: Path) -> None:
    key = await receive(store, ONE, "a")
    assert await store.share(OTHER, key)
    path = await store.path(OTHER, key)
    await store.delete(ONE, [key])
    assert path.stat().st_nlink == 1
    await store.delete(OTHER, [key])
    assert files_in(root) == set()
    assert sorted(child.name for child in root.iterdir()) == [".incoming"]


@pytest.mark.req("BLOB-2")
@pytest.mark.req("BLOB-21")
async def test_damaged_content_is_dropped_for_all_who_share_it(store: BlobFiles, root: Path) -> None:
    key = await receive(store, ONE, "a")
    await receive(store, ONE, "b")
    assert await store.share(OTHER, key)
    damage(await store.path(ONE, key))
    with pytest.raises(DamagedBlob):
        await store.path(OTHER, key)
    with pytest.raises(Absent):
        await store.path(ONE, key)
    assert files_in(root) == {f"{ONE}/{blob('b')[0]}"}


@pytest.mark.req("BLOB-21")
async def test_an_upload_mends_it_for_all(store: BlobFiles) -> None:
    key = await receive(store, ONE, "a")
    assert await store.share(OTHER, key)
    damage(await store.path(ONE, key))
    await receive(store, OTHER, "a")
    assert (await store.path(ONE, key)).read_bytes() == blob("a")[1]
    assert inode(await store.path(ONE, key)) == inode(await store.path(OTHER, key))


@pytest.mark.parametrize("error", [errno.EMLINK, errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP])
@pytest.mark.req("BLOB-21")
async def test_where_no_link_can_be_made_content_is_copied(
    store: BlobFiles, root: Path, error: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await receive(store, ONE, "a")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "link", refuse)
    assert await store.share(OTHER, key)
    await receive(store, JobId(f"{3:032x}"), "a")
    assert (await store.path(OTHER, key)).read_bytes() == blob("a")[1]
    assert inode(await store.path(OTHER, key)) != inode(await store.path(ONE, key))
    assert len(files_in(root)) == 3


async def test_a_copy_is_verified_before_it_is_served(store: BlobFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    key = await receive(store, ONE, "a")

    def no_links(*_: object, **__: object) -> None:
        raise OSError(errno.EMLINK, "")

    def copy(reader: int, writer: int, count: int) -> int:
        return os.write(writer, os.read(reader, count)[:-1] + b"?" if os.lseek(reader, 0, os.SEEK_CUR) == 0 else b"")

    monkeypatch.setattr(os, "link", no_links)
    monkeypatch.setattr(os, "copy_file_range", copy)
    assert await store.share(OTHER, key)
    with pytest.raises(DamagedBlob):
        await store.path(OTHER, key)
    assert (await store.path(ONE, key)).read_bytes() == blob("a")[1]


async def test_an_owner_s_file_that_vanished_is_no_source(store: BlobFiles) -> None:
    key = await receive(store, ONE, "a")
    (await store.path(ONE, key)).unlink()
    assert not await store.share(OTHER, key)


# --- first use (BLOB-2) -----------------------------------------------------------------------------------------------


class Hashing:
    """Counts how often a file is read for its hash, and may hold it up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files = 0
        self.go_on = threading.Event()
        self.go_on.set()
        self.begun = threading.Event()
        real = hashlib.file_digest

        def counted(file: Any, name: str) -> Any:
            self.files += 1
            self.begun.set()
            assert self.go_on.wait(DEADLINE)
            return real(file, name)

        monkeypatch.setattr(hashlib, "file_digest", counted)


@pytest.mark.req("BLOB-2")
async def test_a_file_is_read_at_its_first_use_and_when_it_has_changed(
    root: Path, store: BlobFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashing = Hashing(monkeypatch)
    key = await receive(store, ONE, "a")
    for _ in range(3):
        await store.path(ONE, key)
    assert hashing.files == 0  # it was hashed while it came
    again = await opened(root)
    for _ in range(3):
        await again.path(ONE, key)
    assert hashing.files == 1
    os.utime(await again.path(ONE, key))
    for _ in range(3):
        await again.path(ONE, key)
    assert hashing.files == 2


@pytest.mark.req("BLOB-8")
async def test_all_who_ask_at_once_wait_for_one_reading(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await opened(root)
    key = await receive(first, ONE, "a")
    assert await first.share(OTHER, key)
    store = await opened(root)
    hashing = Hashing(monkeypatch)
    hashing.go_on.clear()
    asked = [asyncio.create_task(store.path((ONE, OTHER)[n % 2], key)) for n in range(100)]
    assert await asyncio.to_thread(hashing.begun.wait, DEADLINE)
    asked[0].cancel()  # who asked first is not the one on whom the others depend
    hashing.go_on.set()
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert {type(result) for result in results[1:]} == {type(root)}
    assert hashing.files == 1


@pytest.mark.req("BLOB-2")
async def test_all_who_wait_hear_of_the_damage(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await opened(root)
    key = await receive(first, ONE, "a")
    assert await first.share(OTHER, key)
    damage(await first.path(ONE, key))
    store = await opened(root)
    hashing = Hashing(monkeypatch)
    hashing.go_on.clear()
    asked = [asyncio.create_task(store.path((ONE, OTHER)[n % 2], key)) for n in range(10)]
    assert await asyncio.to_thread(hashing.begun.wait, DEADLINE)
    hashing.go_on.set()
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(result, DamagedBlob) for result in results)
    assert [result.owner for result in results if isinstance(result, DamagedBlob)] == [ONE, OTHER] * 5


@pytest.mark.req("SAFE-1")
async def test_a_file_that_cannot_be_read_now_is_not_damaged(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = await receive(await opened(root), ONE, "a")
    store = await opened(root)

    def bad_sector(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as failing:
        failing.setattr(hashlib, "file_digest", bad_sector)
        with pytest.raises(Unavailable, match="cannot be read now"):
            await store.path(ONE, key)
        assert not await store.share(OTHER, key)
    assert files_in(root) == {f"{ONE}/{key}"}
    assert (await store.path(ONE, key)).read_bytes() == blob("a")[1]


async def test_a_file_replaced_while_it_is_read_is_read_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await opened(root)
    key = await receive(first, ONE, "a")
    damage(await first.path(ONE, key))
    store = await opened(root)
    hashing = Hashing(monkeypatch)
    hashing.go_on.clear()
    asked = asyncio.create_task(store.path(ONE, key))
    assert await asyncio.to_thread(hashing.begun.wait, DEADLINE)
    await receive(store, ONE, "a")
    hashing.go_on.set()
    assert (await asked).read_bytes() == blob("a")[1]


# --- what else lies there ---------------------------------------------------------------------------------------------


async def test_files_and_directories_are_their_owner_s_alone(store: BlobFiles, root: Path) -> None:
    before = os.umask(0)
    try:
        path = await store.path(ONE, await receive(store, ONE, "a"))
        file = store.temporary()
        file.write_bytes(blob("b")[1])
        await store.adopt(ONE, blob("b")[0], file)
    finally:
        os.umask(before)
    modes = {stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    assert modes == {0o600}
    assert {stat.S_IMODE(each.stat().st_mode) for each in (root, path.parent, root / ".incoming")} == {0o700}


@pytest.mark.parametrize("what", ["link", "directory", "pipe", "nothing"])
async def test_what_is_no_file_is_no_blob(root: Path, tmp_path: Path, what: str) -> None:
    key, content = blob("a")
    (tmp_path / "elsewhere").write_bytes(content)
    place = root / ONE / str(key)
    place.parent.mkdir(parents=True)
    match what:
        case "link":
            place.symlink_to(tmp_path / "elsewhere")
        case "directory":
            place.mkdir()
        case "pipe":
            os.mkfifo(place)
    store = await opened(root)
    with pytest.raises(Absent):
        await store.path(ONE, key)
    assert (await store.listing()).get(ONE, ()) == ()


async def test_a_link_in_the_place_of_an_owner_is_foreign(root: Path, tmp_path: Path) -> None:
    key, content = blob("a")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / str(key)).write_bytes(content)
    root.mkdir()
    (root / ONE).symlink_to(tmp_path / "elsewhere")
    store = await opened(root)
    assert await store.listing() == {}
    with pytest.raises(Absent):
        await store.path(ONE, key)
    with pytest.raises(CannotStore):
        await receive(store, ONE, "b")
    await store.delete_owner(ONE)
    assert (tmp_path / "elsewhere" / str(key)).read_bytes() == content


async def test_foreign_names_are_told_once_and_left_alone(root: Path) -> None:
    first = await opened(root)
    key = await receive(first, ONE, "a")
    foreign = ["lost+found", f"{ONE}/README", f"{ONE}/x-{key.sha256}", f"{ONE}/p-{key.sha256.upper()}", "A" * 32]
    for name in foreign:
        (root / name).write_bytes(b"hello")
    with structlog.testing.capture_logs() as logs:
        store = await opened(root)
        assert {owner: [b.key for b in blobs] for owner, blobs in (await store.listing()).items()} == {ONE: [key]}
    assert {str(entry["path"]) for entry in logs} == {str(root / name) for name in foreign}
    assert len(logs) == len(foreign)
    assert files_in(root) == {*foreign, f"{ONE}/{key}"}


@pytest.mark.req("BLOB-3")
async def test_leftovers_of_a_crash_are_removed(root: Path) -> None:
    (root / ".incoming" / "deleted owner").mkdir(parents=True)
    (root / ".incoming" / "deleted owner" / "p-x").write_bytes(b"x")
    (root / ".incoming" / "half").write_bytes(b"x")
    (root / OTHER).mkdir()
    await opened(root)
    assert [child.name for child in root.iterdir()] == [".incoming"]
    assert list((root / ".incoming").iterdir()) == []


# --- disks that fail (BLOB-5) -----------------------------------------------------------------------------------------


@pytest.mark.req("BLOB-5")
async def test_a_full_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "6m") as disk:
        store = await opened(disk / "blobs")
        kept = await receive(store, ONE, "kept")
        key, content = blob("large", 20_000_000)
        with pytest.raises(CannotStore, match="No space left") as told:
            await store.receive(ONE, key, chunks(content, 65536), max_size=LIMIT)
        assert told.value.hint is not None
        assert "free space" in told.value.hint
        assert files_in(disk / "blobs") == {f"{ONE}/{kept}"}
        await receive(store, ONE, "goes on")


@pytest.mark.req("BLOB-5")
async def test_a_disk_on_which_nothing_may_be_written(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "6m") as disk:
        store = await opened(disk / "blobs")
        key = await receive(store, ONE, "a")
        make_read_only(disk)
        with pytest.raises(CannotStore, match="Read-only"):
            await receive(store, ONE, "b")
        with pytest.raises(Fatal, match="Read-only"):
            await store.delete(ONE, [key])
        with pytest.raises(CannotStore):
            await store.share(OTHER, key)
        assert (await store.path(ONE, key)).read_bytes() == blob("a")[1]
        again = BlobFiles(disk / "blobs")
        await again.open_store()  # there is nothing to remove
        assert (await again.path(ONE, key)).read_bytes() == blob("a")[1]


@pytest.mark.req("BLOB-5")
async def test_a_limit_on_the_size_of_files(store: BlobFiles, root: Path) -> None:
    key, content = blob("large", 5_000_000)
    with files_up_to(2_000_000), pytest.raises(CannotStore, match="too large"):
        await store.receive(ONE, key, chunks(content, 65536), max_size=LIMIT)
    assert files_in(root) == set()
    assert await store.receive(ONE, key, chunks(content, 65536), max_size=LIMIT) == len(content)


async def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(CannotStore, match="Not a directory"):
        await opened(tmp_path / "file" / "blobs")


@pytest.mark.req("BLOB-3")
@pytest.mark.parametrize("syscall", ["fsync", "rename", "writev"])
async def test_what_cannot_be_made_durable_is_not_there(
    store: BlobFiles, root: Path, syscall: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = getattr(os, syscall), 0

    def bad(*arguments: object, **options: object) -> object:
        nonlocal calls
        calls += 1
        if calls == failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(*arguments, **options)

    monkeypatch.setattr(os, syscall, bad)
    failing = 0
    for number in range(1, 4):
        calls, failing = 0, number
        try:
            await receive(store, ONE, "a")
        except CannotStore:
            assert files_in(root) == set()
        else:
            assert calls < failing
            failing = 0
            await store.delete_owner(ONE)


async def test_an_early_sync_s_error_is_not_lost(store: BlobFiles, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk tells of an error once: the last sync of the file would not see it again."""

    def bad(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fdatasync", bad)
    key, content = blob("a", 40 * 1024**2)
    with pytest.raises(CannotStore):
        await store.receive(ONE, key, chunks(content, 1024**2), max_size=LIMIT)
    assert files_in(root) == set()


# --- callers that go away ---------------------------------------------------------------------------------------------


@pytest.mark.req("BLOB-3")
@pytest.mark.parametrize("there", [False, True])
async def test_cancelled_in_the_last_moment(
    store: BlobFiles, root: Path, there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows of what was stored then; what had been there before stays."""
    if there:
        await receive(store, ONE, "a")
    reached, go_on, real = threading.Event(), threading.Event(), os.fsync

    def slow(descriptor: int) -> None:
        reached.set()
        assert go_on.wait(DEADLINE)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", slow)
    upload = asyncio.create_task(receive(store, ONE, "a"))
    assert await asyncio.to_thread(reached.wait, DEADLINE)
    upload.cancel()
    await asyncio.sleep(0)
    upload.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await upload
    assert files_in(root) == ({f"{ONE}/{blob('a')[0]}"} if there else set())


@pytest.mark.req("BLOB-3")
async def test_cancelled_beside_another_upload_of_the_same(
    store: BlobFiles, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose upload has succeeded finds the BLOB, whatever becomes of the other one."""
    reached, go_on, real = threading.Event(), threading.Event(), BlobTree.replace_others

    def slow(tree: BlobTree, owner: JobId, key: BlobKey) -> None:
        if not reached.is_set():  # the first upload has stored its file
            reached.set()
            assert go_on.wait(DEADLINE)
        real(tree, owner, key)

    monkeypatch.setattr(BlobTree, "replace_others", slow)
    first = asyncio.create_task(receive(store, ONE, "a"))
    assert await asyncio.to_thread(reached.wait, DEADLINE)
    key = await receive(store, ONE, "a")
    first.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert files_in(root) == {f"{ONE}/{key}"}
    assert (await store.path(ONE, key)).read_bytes() == blob("a")[1]


async def test_chunks_of_any_size(store: BlobFiles) -> None:
    content = bytes(range(256)) * 20_000

    async def odd() -> AsyncIterator[bytes]:
        position = 0
        for size in (0, 1, 3_000_000, 0, 17, 2_000_000, 5, 10**9):
            yield content[position : position + size]
            position += size

    key = BlobKey(kind=blob("a")[0].kind, sha256=hashlib.sha256(content).hexdigest())
    assert await store.receive(ONE, key, odd(), max_size=LIMIT, size=len(content)) == len(content)
    assert (await store.path(ONE, key)).read_bytes() == content
    with pytest.raises(InvalidInput, match="larger than 100 bytes"):
        await store.receive(ONE, key, odd(), max_size=100)


def damage(path: Path) -> None:
    status = path.stat()
    path.write_bytes(b"rot")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
