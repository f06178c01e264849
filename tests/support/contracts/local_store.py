"""Contract of local BLOB stores: tests for every implementation of ``blobs.ports.LocalStore``.

A test module gives a subclass of ``LocalStoreContract`` (its name begins with "Test") a fixture ``place``.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Set
from pathlib import Path
from typing import Protocol

import pytest

from emberkeep.base.errors import Absent, Conflict, InvalidInput
from emberkeep.base.ids import JobId
from emberkeep.blobs.errors import DamagedBlob
from emberkeep.blobs.model import BlobKey, permanent, transient
from emberkeep.blobs.ports import LocalStore

ONE, OTHER = JobId(f"{1:032x}"), JobId(f"{2:032x}")
LIMIT = 64 * 1024**2
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda content: content[:-1],
    "torn": lambda content: content[:512] + bytes(len(content) - 512),
    "flipped bit": lambda content: content[:700] + bytes([content[700] ^ 4]) + content[701:],
    "empty": lambda _: b"",
    "longer": lambda content: content + b"\n",
}


class Place(Protocol):
    """Durable storage under test. Its ``store`` belongs to the running event loop."""

    def store(self) -> LocalStore:
        """Return the store of a new process, not opened yet."""

    def files(self) -> Set[str]:
        """Return the names of all files, also of transfers in progress; ``<owner>/<key>`` for a BLOB."""

    def overwrite(self, file: Path, content: bytes) -> None:
        """Write a file without the store's knowledge, or create one at a path from ``temporary()``."""

    def read(self, file: Path) -> bytes:
        """Return a file's content."""


def blob(text: str, length: int = 2000) -> tuple[BlobKey, bytes]:
    """Return ``length`` bytes that repeat ``text``, and their key."""
    content = (text.encode() * (length // len(text) + 1))[:length]
    return permanent(hashlib.sha256(content).hexdigest()), content


async def chunks(content: bytes, piece: int = 700) -> AsyncIterator[bytes]:
    for begin in range(0, len(content), piece):
        yield content[begin : begin + piece]
        await asyncio.sleep(0)


async def receive(store: LocalStore, owner: JobId, text: str) -> BlobKey:
    key, content = blob(text)
    assert await store.receive(owner, key, chunks(content), max_size=LIMIT, size=len(content)) == len(content)
    return key


async def keys_of(store: LocalStore) -> dict[JobId, list[BlobKey]]:
    return {owner: [stored.key for stored in blobs] for owner, blobs in (await store.listing()).items() if blobs}


class LocalStoreContract:
    """Tests of LocalStore."""

    @pytest.fixture
    async def store(self, place: Place) -> LocalStore:
        store = place.store()
        await store.open_store()
        return store

    @pytest.mark.req("BLOB-3")
    async def test_what_was_received_is_there_and_nothing_else(self, place: Place, store: LocalStore) -> None:
        keys = [await receive(store, ONE, text) for text in ("a", "b")]
        for key, text in zip(keys, "ab", strict=True):
            assert place.read(await store.path(ONE, key)) == blob(text)[1]
        assert place.files() == {f"{ONE}/{key}" for key in keys}
        with pytest.raises(Absent):
            await store.path(ONE, blob("c")[0])
        with pytest.raises(Absent):
            await store.path(OTHER, keys[0])

    @pytest.mark.req("BLOB-17")
    async def test_the_listing_tells_owners_keys_and_sizes(self, place: Place, store: LocalStore) -> None:
        assert await keys_of(store) == {}
        a, b = await receive(store, ONE, "a"), await receive(store, ONE, "b")
        c = await receive(store, OTHER, "c")
        listing = await store.listing()
        assert {owner: sorted((s.key, s.size) for s in blobs) for owner, blobs in listing.items()} == {
            ONE: sorted([(a, 2000), (b, 2000)]),
            OTHER: [(c, 2000)],
        }

    async def test_an_empty_blob_is_a_blob(self, place: Place, store: LocalStore) -> None:
        key = transient(hashlib.sha256().hexdigest())
        assert await store.receive(ONE, key, chunks(b""), max_size=0, size=0) == 0
        assert place.read(await store.path(ONE, key)) == b""

    async def test_the_largest_that_is_allowed(self, place: Place, store: LocalStore) -> None:
        key, content = blob("x")
        assert await store.receive(ONE, key, chunks(content), max_size=len(content)) == len(content)

    @pytest.mark.req("BLOB-3")
    @pytest.mark.parametrize(
        ("sent", "max_size", "size", "field"),
        [
            (blob("b")[1], LIMIT, None, "sha256"),
            (blob("a")[1][:-1], LIMIT, 2000, "size"),
            (blob("a")[1] + b"x", LIMIT, 2000, "size"),
            (blob("a")[1], 1999, None, "body"),
            (b"", LIMIT, None, "sha256"),
        ],
    )
    async def test_what_is_not_as_announced_is_refused(
        self, place: Place, store: LocalStore, sent: bytes, max_size: int, size: int | None, field: str
    ) -> None:
        with pytest.raises(InvalidInput) as refusal:
            await store.receive(ONE, blob("a")[0], chunks(sent), max_size=max_size, size=size)
        assert refusal.value.field == field
        assert place.files() == set()

    @pytest.mark.req("BLOB-3")
    async def test_an_upload_that_breaks_leaves_nothing(self, place: Place, store: LocalStore) -> None:
        key, content = blob("a", 5_000_000)

        async def broken() -> AsyncIterator[bytes]:
            async for chunk in chunks(content[:4_000_000], 65536):
                yield chunk
            raise Conflict("the job has ended")

        with pytest.raises(Conflict):
            await store.receive(ONE, key, broken(), max_size=LIMIT)
        assert place.files() == set()

    @pytest.mark.req("BLOB-3")
    async def test_a_cancelled_upload_leaves_nothing(self, place: Place, store: LocalStore) -> None:
        key, content = blob("a", 5_000_000)
        reached = asyncio.Event()

        async def stuck() -> AsyncIterator[bytes]:
            async for chunk in chunks(content[:3_000_000], 65536):
                yield chunk
            reached.set()
            await asyncio.Event().wait()

        upload = asyncio.create_task(store.receive(ONE, key, stuck(), max_size=LIMIT))
        await reached.wait()
        upload.cancel()
        with pytest.raises(asyncio.CancelledError):
            await upload
        assert place.files() == set()

    @pytest.mark.req("BLOB-2")
    @pytest.mark.parametrize("damage", DAMAGES)
    async def test_damage_is_noticed_told_and_dropped(self, place: Place, store: LocalStore, damage: str) -> None:
        key, content = blob("ab")
        await receive(store, ONE, "ab")
        place.overwrite(await store.path(ONE, key), DAMAGES[damage](content))
        with pytest.raises(DamagedBlob) as told:
            await store.path(ONE, key)
        assert (told.value.owner, told.value.key) == (ONE, key)
        assert told.value.actual == hashlib.sha256(DAMAGES[damage](content)).hexdigest()
        assert key.sha256 in str(told.value)
        assert told.value.actual in str(told.value)
        with pytest.raises(Absent):
            await store.path(ONE, key)
        assert await keys_of(store) == {}

    @pytest.mark.req("BLOB-2")
    async def test_damage_done_between_two_processes_is_noticed(self, place: Place, store: LocalStore) -> None:
        key = await receive(store, ONE, "a")
        whole = await receive(store, ONE, "b")
        place.overwrite(await store.path(ONE, key), b"something else")
        again = place.store()
        await again.open_store()
        assert sorted((await keys_of(again))[ONE]) == sorted([key, whole])
        with pytest.raises(DamagedBlob):
            await again.path(ONE, key)
        assert place.read(await again.path(ONE, whole)) == blob("b")[1]

    @pytest.mark.req("BLOB-2")
    async def test_receiving_it_again_mends_what_is_damaged(self, place: Place, store: LocalStore) -> None:
        key, content = blob("a")
        await receive(store, ONE, "a")
        place.overwrite(await store.path(ONE, key), b"rot")
        await receive(store, ONE, "a")
        assert place.read(await store.path(ONE, key)) == content

    async def test_a_complete_file_is_adopted(self, place: Place, store: LocalStore) -> None:
        for number, sha256 in enumerate((None, blob("a")[0].sha256)):
            key, content = blob("a")
            file = store.temporary()
            place.overwrite(file, content)
            assert await store.adopt(JobId(f"{number:032x}"), key, file, sha256=sha256) == len(content)
            assert place.read(await store.path(JobId(f"{number:032x}"), key)) == content
        assert len(place.files()) == 2

    @pytest.mark.req("BLOB-2")
    @pytest.mark.parametrize("told", [False, True])
    async def test_a_damaged_file_is_not_adopted(self, place: Place, store: LocalStore, told: bool) -> None:
        key, content = blob("a")
        actual = hashlib.sha256(content[:-1]).hexdigest()
        file = store.temporary()
        place.overwrite(file, content[:-1])
        with pytest.raises(DamagedBlob) as damage:
            await store.adopt(ONE, key, file, sha256=actual if told else None)
        assert damage.value.actual == actual
        with pytest.raises(Absent):
            await store.path(ONE, key)

    @pytest.mark.req("BLOB-21")
    async def test_another_owner_s_content_is_shared(self, place: Place, store: LocalStore) -> None:
        assert not await store.share(OTHER, blob("a")[0])
        key = await receive(store, ONE, "a")
        assert await store.share(OTHER, key)
        assert place.files() == {f"{ONE}/{key}", f"{OTHER}/{key}"}
        await store.delete_owner(ONE)
        assert place.read(await store.path(OTHER, key)) == blob("a")[1]
        with pytest.raises(Absent):
            await store.path(ONE, key)

    @pytest.mark.req("BLOB-2")
    async def test_damaged_content_is_not_shared(self, place: Place, store: LocalStore) -> None:
        key = await receive(store, ONE, "a")
        place.overwrite(await store.path(ONE, key), b"rot")
        assert not await store.share(OTHER, key)
        assert OTHER not in await keys_of(store)

    async def test_deleting(self, place: Place, store: LocalStore) -> None:
        a, b = await receive(store, ONE, "a"), await receive(store, ONE, "b")
        await receive(store, OTHER, "a")
        await store.delete(ONE, [a, blob("never there")[0]])
        assert place.files() == {f"{ONE}/{b}", f"{OTHER}/{a}"}
        await store.delete(ONE, [b])
        await store.delete(ONE, [b])
        assert place.files() == {f"{OTHER}/{a}"}
        await store.delete_owner(OTHER)
        await store.delete_owner(OTHER)
        assert place.files() == set()
        await receive(store, OTHER, "a")
        assert place.files() == {f"{OTHER}/{a}"}

    @pytest.mark.req("BLOB-3")
    async def test_a_new_process_finds_all_that_was_complete(self, place: Place, store: LocalStore) -> None:
        a, b = await receive(store, ONE, "a"), await receive(store, OTHER, "b")
        place.overwrite(store.temporary(), b"half of a BL")
        again = place.store()
        await again.open_store()
        assert place.files() == {f"{ONE}/{a}", f"{OTHER}/{b}"}
        assert place.read(await again.path(ONE, a)) == blob("a")[1]
        assert await again.share(ONE, b)

    @pytest.mark.req("BLOB-8")
    async def test_many_at_the_same_time(self, place: Place, store: LocalStore) -> None:
        texts = [f"text {number % 5}" for number in range(40)]
        owners = [JobId(f"{number % 3:032x}") for number in range(40)]
        keys = await asyncio.gather(*(receive(store, *item) for item in zip(owners, texts, strict=True)))
        paths = await asyncio.gather(*(store.path(*item) for item in zip(owners, keys, strict=True)))
        assert [place.read(path) for path in paths] == [blob(text)[1] for text in texts]
        assert place.files() == {f"{owner}/{key}" for owner, key in zip(owners, keys, strict=True)}
