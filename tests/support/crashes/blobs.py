"""The durable steps of BLOBs: of a store that one process uses, and of the storage that JobManagers share."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from emberkeep.adapters.blobs.directory import DirectoryBlobs
from emberkeep.adapters.blobs.files import BlobFiles
from emberkeep.base.ids import JobId
from emberkeep.blobs.model import BlobKey, permanent
from tests.support.crashes.recorded import Crash, RecordedFiles
from tests.support.kept_logs.pieces import JOB

_T = TypeVar("_T")
OTHER = JobId("2" * 32)


def run(work: Coroutine[Any, Any, _T]) -> _T:
    return asyncio.run(work)


CONTENTS = {name: name.encode() * size for name, size in (("a", 10), ("b", 3000), ("c", 1))}
KEYS = {name: permanent(hashlib.sha256(content).hexdigest()) for name, content in CONTENTS.items()}
_NAMES = {blob: name for name, blob in KEYS.items()}


async def pieces(content: bytes) -> AsyncIterator[bytes]:
    yield content[: len(content) // 2]
    yield content[len(content) // 2 :]


def live_blobs(root: Path, files: RecordedFiles) -> None:
    async def live() -> None:
        store = BlobFiles(root / "blobs")
        await store.open_store()
        for owner, name in ((JOB, "a"), (JOB, "b"), (OTHER, "c")):
            await store.receive(owner, KEYS[name], pieces(CONTENTS[name]), max_size=10**6)
            files.mark(f"{owner} {name}")
        await store.share(OTHER, KEYS["a"])
        files.mark(f"{OTHER} a")
        files.mark(f"deleting {JOB} a")
        await store.delete(JOB, [KEYS["a"]])
        files.mark(f"deleting {OTHER} a")
        files.mark(f"deleting {OTHER} c")
        await store.delete_owner(OTHER)

    run(live())


def promised_blobs(marks: tuple[str, ...]) -> set[tuple[str, str]]:
    """Return owner and name of each BLOB that was stored, and whose deletion has not begun."""
    gone = {mark.removeprefix("deleting ") for mark in marks if mark.startswith("deleting ")}
    kept = [mark.split() for mark in marks if not mark.startswith("deleting ") and mark not in gone]
    return {(owner, name) for owner, name in kept}


def check_blobs(crash: Crash) -> None:
    async def check() -> None:
        store = BlobFiles(crash.directory / "blobs")
        await store.open_store()
        listed = {(owner, blob.key) for owner, blobs in (await store.listing()).items() for blob in blobs}
        for owner, name in promised_blobs(crash.marks):
            assert (owner, KEYS[name]) in listed, f"{name} of {owner} is gone"
        await _check_contents(store, listed)
        for owner, name in ((JOB, "a"), (OTHER, "c")):
            await store.receive(owner, KEYS[name], pieces(CONTENTS[name]), max_size=10**6)
            assert (await store.path(owner, KEYS[name])).read_bytes() == CONTENTS[name]
        assert not [path for path in (crash.directory / "blobs" / ".incoming").rglob("*") if path.is_file()]

    run(check())


async def _check_contents(store: BlobFiles, listed: set[tuple[JobId, BlobKey]]) -> None:
    for owner, blob in listed:
        assert (await store.path(owner, blob)).read_bytes() == CONTENTS[_NAMES[blob]]


def live_shared_blobs(root: Path, files: RecordedFiles) -> None:
    sources = {name: root.with_name(f"source-{name}") for name in CONTENTS}
    for name, source in sources.items():
        source.write_bytes(CONTENTS[name])

    async def live() -> None:
        store = DirectoryBlobs(root / "blobs")
        try:
            for owner, name in ((JOB, "a"), (JOB, "b"), (OTHER, "c"), (OTHER, "a")):
                await store.put(owner, KEYS[name], sources[name])
                files.mark(f"{owner} {name}")
            await DirectoryBlobs(root / "blobs").put(JOB, KEYS["b"], sources["b"])  # a process that has listed nothing
            files.mark(f"deleting {JOB} a")
            await store.delete(JOB, [KEYS["a"]])
            files.mark(f"deleting {OTHER} a")
            files.mark(f"deleting {OTHER} c")
            await store.delete_owner(OTHER)
        finally:
            await store.close()

    run(live())


def check_shared_blobs(crash: Crash) -> None:
    async def check() -> None:
        store = DirectoryBlobs(crash.directory / "blobs")
        fetched = crash.directory / "fetched"
        try:
            for owner, name in promised_blobs(crash.marks):
                await store.fetch(JobId(owner), KEYS[name], fetched)
                assert fetched.read_bytes() == CONTENTS[name], f"{name} of {owner} is another one"
                fetched.unlink()
            source = crash.directory / "source"
            source.write_bytes(CONTENTS["a"])
            await store.put(OTHER, KEYS["a"], source)
            await store.fetch(OTHER, KEYS["a"], fetched)
            assert fetched.read_bytes() == CONTENTS["a"]
        finally:
            await store.close()

    run(check())
