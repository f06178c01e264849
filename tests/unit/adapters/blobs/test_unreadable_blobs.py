"""A local copy of a BLOB that cannot be read now is neither damaged nor gone: it stays, and other stores are asked."""

from __future__ import annotations

import errno
import hashlib
import os
import random
from pathlib import Path
from typing import Any, NoReturn

import pytest

from emberkeep.adapters.blobs import files_tree
from emberkeep.adapters.blobs.directory import DirectoryBlobs
from emberkeep.adapters.blobs.files import BlobFiles
from emberkeep.adapters.blobs.files_tree import BlobTree
from emberkeep.adapters.blobs.objects import ObjectBlobs
from emberkeep.base.clock import SystemClock
from emberkeep.base.errors import EmberkeepError, Fatal, RetryLater, Unavailable
from emberkeep.base.system import System
from emberkeep.blobs.errors import CannotStore
from emberkeep.jobmanager.blobs.core import ThreadedDisk
from emberkeep.taskmanager.blobs.cache import BlobCache
from tests.support.contracts.local_store import ONE, OTHER, blob
from tests.support.seeded_ids import SeededIds
from tests.unit.jobmanager.blobs.test_blob_server import SCRIPT, A, Bench, put
from tests.unit.jobmanager.cluster import in_virtual_time

KEY, CONTENT = blob("a")


class BadDisk:
    """Below ``root`` no BLOB can be verified, ``times`` times."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times = 0
        verify = BlobTree.verify

        def failing(tree: BlobTree, *place: object) -> object:
            if tree.root == root and self.times:
                self.times -= 1
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return verify(tree, *place)  # type: ignore[arg-type]

        monkeypatch.setattr(BlobTree, "verify", failing)


async def _stored(tmp_path: Path) -> None:
    """In the HA store, and in a local one."""
    for number, root in enumerate((tmp_path / "ha", tmp_path / "local")):
        file = tmp_path / str(number)
        file.write_bytes(CONTENT)
        await DirectoryBlobs(root).put(ONE, KEY, file)


def _cache(tmp_path: Path, *, with_ha: bool) -> BlobCache:
    rng = random.Random(1)
    system = System(SystemClock(), rng, SeededIds(rng))
    ha = DirectoryBlobs(tmp_path / "ha") if with_ha else None
    return BlobCache(system, BlobFiles(tmp_path / "local"), ha, [], retention=1800.0, patience=0.0)


@pytest.mark.anyio
@pytest.mark.req("SAFE-1")
async def test_a_cache_asks_the_next_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await _stored(tmp_path)
    disk = BadDisk(tmp_path / "local", monkeypatch)
    cache = _cache(tmp_path, with_ha=True)
    await cache.start()
    disk.times = 1
    assert (await cache.acquire(ONE, KEY, "driver")).read_bytes() == CONTENT
    report = cache.report()
    assert (report.ha_hits, report.verify_failures) == (1, 0)


@pytest.mark.anyio
@pytest.mark.req("SAFE-1")
async def test_a_cache_without_another_source_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await _stored(tmp_path)
    disk = BadDisk(tmp_path / "local", monkeypatch)
    cache = _cache(tmp_path, with_ha=False)
    await cache.start()
    disk.times = 1
    with pytest.raises(RetryLater, match="cannot be read now"):
        await cache.acquire(ONE, KEY, "driver")
    assert (await cache.acquire(ONE, KEY, "driver")).read_bytes() == CONTENT


@pytest.mark.anyio
@pytest.mark.req("SAFE-1")
async def test_the_ha_store_takes_a_copy_where_another_jobs_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _stored(tmp_path)
    store = DirectoryBlobs(tmp_path / "ha")
    await store.listing()
    disk = BadDisk(tmp_path / "ha", monkeypatch)
    disk.times = 1
    await store.put(OTHER, KEY, tmp_path / "0")
    assert not disk.times, "the other job's was tried"
    for owner in (ONE, OTHER):
        assert (tmp_path / "ha" / owner / str(KEY)).read_bytes() == CONTENT


@pytest.mark.anyio
@pytest.mark.req("SAFE-1")
async def test_a_blob_that_cannot_be_looked_at_is_not_taken_for_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new one is deleted again if its directory cannot be synced."""
    await _stored(tmp_path)
    again = tmp_path / "again"
    again.write_bytes(CONTENT)
    target, look = str(tmp_path / "ha" / ONE / str(KEY)), os.lstat
    unreadable = [target]

    def failing(path: Any, *arguments: Any, **named: Any) -> os.stat_result:
        if os.fspath(path) in unreadable:
            unreadable.clear()
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return look(path, *arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(os, "lstat", failing)
        patched.setattr(files_tree, "_sync_directory", _fails)
        with pytest.raises(EmberkeepError):
            await DirectoryBlobs(tmp_path / "ha").put(ONE, KEY, again)
    assert Path(target).read_bytes() == CONTENT


def _fails(_: Path) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.req("SAFE-1")
@pytest.mark.parametrize("has_ha", [True, False])
def test_the_server_asks_the_ha_store_and_forgets_nothing(has_ha: bool) -> None:
    async def scenario() -> None:
        bench = Bench()
        async with bench.serving() as server:
            key = await put(server, SCRIPT, holders=("driver",))
            if not has_ha:
                bench.shared.contents.clear()
            bench.at_local.errors["path"] = [Unavailable("the BLOB cannot be read now")]
            if has_ha:
                await server.path(A, key)
            else:
                with pytest.raises(Unavailable, match="cannot be read now"):
                    await server.path(A, key)
            await server.path(A, key)
            assert bench.in_local() == {SCRIPT}

    in_virtual_time(scenario)


@pytest.mark.anyio
@pytest.mark.req("SAFE-1")
@pytest.mark.parametrize("kind", [DirectoryBlobs, BlobFiles])
async def test_a_blob_stays_when_it_is_sent_again_and_cannot_be_made_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[DirectoryBlobs | BlobFiles]
) -> None:
    store = kind(tmp_path / "store")

    async def put() -> None:
        file = tmp_path / "sent"
        file.write_bytes(CONTENT)
        if isinstance(store, BlobFiles):
            await store.adopt(ONE, KEY, file)
        else:
            await store.put(ONE, KEY, file)

    if isinstance(store, BlobFiles):
        await store.open_store()
    await put()

    def fail(_tree: BlobTree, _owner: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as context:
        context.setattr(BlobTree, "sync", fail)
        with pytest.raises((CannotStore, RetryLater, Fatal)):
            await put()
    assert (tmp_path / "store" / ONE / str(KEY)).read_bytes() == CONTENT


def test_a_file_that_is_replaced_at_each_reading_is_not_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = BlobTree(tmp_path / "store")
    (tree.root / ONE).mkdir(parents=True)
    path = tree.file(ONE, KEY)
    path.write_bytes(b"older")
    digest = hashlib.file_digest

    def replaced(*arguments: Any) -> Any:
        found = digest(*arguments)
        path.with_name("next").write_bytes(CONTENT)
        path.with_name("next").rename(path)
        return found

    monkeypatch.setattr(hashlib, "file_digest", replaced)
    with pytest.raises(OSError, match="replaced during each"):
        tree.verify(ONE, KEY)


async def test_a_want_of_descriptors_fails_no_upload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_bytes(CONTENT)
    local, objects = BlobFiles(tmp_path / "local"), ObjectBlobs("s3://bucket/prefix")

    def refused(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(Path, "open", refused)
    monkeypatch.setattr(Path, "read_bytes", refused)
    for use in (objects.put(ONE, KEY, file), local.adopt(ONE, KEY, file), ThreadedDisk().digest(file)):
        with pytest.raises(Unavailable, match="Too many open files") as raised:
            await use
        assert "ulimit -n" in (raised.value.hint or "")
