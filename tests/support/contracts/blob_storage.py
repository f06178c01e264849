"""Contract of HA stores of BLOBs: tests for every implementation of ``blobs.ports.BlobStorage``.

A test module gives a subclass of ``BlobStorageContract`` (its name begins with "Test") a fixture ``place``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Set
from pathlib import Path
from typing import Protocol

import pytest

from emberkeep.base.errors import Absent, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.blobs.errors import DamagedBlob
from emberkeep.blobs.ports import BlobStorage
from tests.support.contracts.local_store import DAMAGES, ONE, OTHER, blob


class Place(Protocol):
    """Durable storage under test, and the disk of a machine that uses it."""

    def store(self) -> BlobStorage:
        """Return the store as a new process opens it."""

    def names(self) -> Set[str]:
        """Return the names of everything stored: ``<owner>/<key>`` for a BLOB."""

    def damage(self, name: str, content: bytes) -> None:
        """Write ``content`` under this name without the store's knowledge; replace what is there."""

    def new_file(self, content: bytes | None) -> Path:
        """Create a file on the machine; with None, return only an unused path."""

    def read(self, file: Path) -> bytes:
        """Return the content of a file on the machine. Raises FileNotFoundError or Absent."""


class BlobStorageContract:
    """Tests of BlobStorage."""

    LARGE = 20 * 1024**2 + 1  # more than a few parts of an upload

    @pytest.fixture
    async def store(self, place: Place) -> AsyncIterator[BlobStorage]:
        store = place.store()
        yield store
        await store.close()
        await store.close()

    async def test_what_was_put_is_fetched(self, place: Place, store: BlobStorage) -> None:
        key, content = blob("a")
        await store.put(ONE, key, place.new_file(content))
        assert await store.size(ONE, key) == len(content)
        destination = place.new_file(None)
        await store.fetch(ONE, key, destination)
        assert place.read(destination) == content
        assert place.names() == {f"{ONE}/{key}"}

    @pytest.mark.parametrize("size", [1, 8 * 1024**2, LARGE])
    async def test_any_size(self, place: Place, store: BlobStorage, size: int) -> None:
        key, content = blob("0123456789abcde", size)
        await store.put(ONE, key, place.new_file(content))
        destination = place.new_file(None)
        await store.fetch(ONE, key, destination)
        assert place.read(destination) == content
        assert await store.size(ONE, key) == size

    async def test_an_empty_blob(self, place: Place, store: BlobStorage) -> None:
        key, _ = blob("a", 0)
        await store.put(ONE, key, place.new_file(b""))
        destination = place.new_file(None)
        await store.fetch(ONE, key, destination)
        assert place.read(destination) == b""
        assert await store.size(ONE, key) == 0

    async def test_what_is_not_there_is_absent(self, place: Place, store: BlobStorage) -> None:
        a, b = blob("a")[0], blob("b")[0]
        await store.put(ONE, a, place.new_file(blob("a")[1]))
        destination = place.new_file(None)
        for owner, key in ((ONE, b), (OTHER, a)):
            with pytest.raises(Absent):
                await store.size(owner, key)
            with pytest.raises(Absent):
                await store.fetch(owner, key, destination)
        with pytest.raises((Absent, FileNotFoundError)):
            place.read(destination)

    @pytest.mark.req("BLOB-17")
    async def test_the_listing_tells_everything(self, place: Place, store: BlobStorage) -> None:
        assert dict(await store.listing()) == {}
        wanted = {}
        for owner in (ONE, OTHER):
            for number in range(3):
                key, content = blob(f"{owner}{number}", 100 + number)
                await store.put(owner, key, place.new_file(content))
                wanted[owner, key] = len(content)
        for view in (store, place.store()):
            listing = await view.listing()
            assert {(owner, s.key): s.size for owner, blobs in listing.items() for s in blobs} == wanted

    @pytest.mark.req("BLOB-5")
    @pytest.mark.parametrize("damage", DAMAGES)
    @pytest.mark.parametrize("times", [1, 5000], ids=["small", "large"])
    async def test_a_file_that_does_not_hold_its_blob_any_more_is_not_stored(
        self, place: Place, store: BlobStorage, damage: str, times: int
    ) -> None:
        key, content = blob("ab", 2000 * times)
        with pytest.raises(DamagedBlob):
            await store.put(ONE, key, place.new_file(DAMAGES[damage](content)))
        assert place.names() == frozenset()
        await store.put(ONE, key, place.new_file(content))
        assert place.names() == {f"{ONE}/{key}"}

    async def test_another_process_reads_what_was_put(self, place: Place, store: BlobStorage) -> None:
        key, content = blob("a")
        await store.put(ONE, key, place.new_file(content))
        destination = place.new_file(None)
        await place.store().fetch(ONE, key, destination)
        assert place.read(destination) == content

    @pytest.mark.req("BLOB-2")
    @pytest.mark.parametrize("damage", DAMAGES)
    async def test_bytes_come_as_they_are_and_putting_again_mends_them(
        self, place: Place, store: BlobStorage, damage: str
    ) -> None:
        key, content = blob("ab")
        await store.put(ONE, key, place.new_file(content))
        place.damage(f"{ONE}/{key}", DAMAGES[damage](content))
        destination = place.new_file(None)
        await store.fetch(ONE, key, destination)
        assert place.read(destination) == DAMAGES[damage](content)
        await store.put(ONE, key, place.new_file(content))
        destination = place.new_file(None)
        await store.fetch(ONE, key, destination)
        assert place.read(destination) == content

    @pytest.mark.req("BLOB-21")
    async def test_two_owners_of_one_content_do_not_disturb_each_other(self, place: Place, store: BlobStorage) -> None:
        key, content = blob("ab")
        for owner in (ONE, OTHER):
            await store.put(owner, key, place.new_file(content))
        assert place.names() == {f"{ONE}/{key}", f"{OTHER}/{key}"}
        await store.delete(ONE, [key])
        destination = place.new_file(None)
        await store.fetch(OTHER, key, destination)
        assert place.read(destination) == content

    @pytest.mark.req("BLOB-5")
    @pytest.mark.parametrize("damage", DAMAGES)
    async def test_a_damaged_copy_of_another_owner_is_not_taken_for_the_content(
        self, place: Place, store: BlobStorage, damage: str
    ) -> None:
        key, content = blob("ab")
        await store.put(ONE, key, place.new_file(content))
        place.damage(f"{ONE}/{key}", DAMAGES[damage](content))
        await store.put(OTHER, key, place.new_file(content))
        destination = place.new_file(None)
        await store.fetch(OTHER, key, destination)
        assert place.read(destination) == content

    @pytest.mark.req("BLOB-11")
    async def test_deleting(self, place: Place, store: BlobStorage) -> None:
        keys = []
        for text in "abc":
            key, content = blob(text)
            keys.append(key)
            for owner in (ONE, OTHER):
                await store.put(owner, key, place.new_file(content))
        await store.delete(ONE, [keys[0], blob("never there")[0], keys[1]])
        assert place.names() == {f"{ONE}/{keys[2]}", *(f"{OTHER}/{key}" for key in keys)}
        await store.delete_owner(OTHER)
        await store.delete_owner(OTHER)
        await store.delete(OTHER, keys)
        assert place.names() == {f"{ONE}/{keys[2]}"}
        await store.delete(ONE, [])
        await store.put(OTHER, keys[0], place.new_file(blob("a")[1]))
        assert place.names() == {f"{ONE}/{keys[2]}", f"{OTHER}/{keys[0]}"}

    @pytest.mark.req("HA-6")
    async def test_a_deletion_whose_time_is_over_deletes_nothing(self, place: Place, store: BlobStorage) -> None:
        key, content = blob("a")
        await store.put(ONE, key, place.new_file(content))
        with pytest.raises(RetryLater, match="abandoned"):
            await store.delete(ONE, [key], within=0.0)
        assert place.names() == {f"{ONE}/{key}"}
        await store.delete(ONE, [key], within=240.0)
        assert place.names() == set()

    async def test_what_is_foreign_is_neither_listed_nor_served(self, place: Place, store: BlobStorage) -> None:
        key, content = blob("a")
        await store.put(ONE, key, place.new_file(content))
        place.damage(f"{ONE}/README", b"hello")
        place.damage("lost+found", b"hello")
        listing = await store.listing()
        assert {owner: [s.key for s in blobs] for owner, blobs in listing.items()} == {ONE: [key]}

    async def test_many_at_the_same_time(self, place: Place, store: BlobStorage) -> None:
        blobs = [(JobId(f"{number % 3:032x}"), *blob(f"text {number}")) for number in range(30)]
        await asyncio.gather(*(store.put(owner, key, place.new_file(content)) for owner, key, content in blobs))
        files = [place.new_file(None) for _ in blobs]
        await asyncio.gather(
            *(store.fetch(owner, key, file) for (owner, key, _), file in zip(blobs, files, strict=True))
        )
        assert [place.read(file) for file in files] == [content for _, _, content in blobs]
        await asyncio.gather(*(store.delete(owner, [key]) for owner, key, _ in blobs))
        assert place.names() == set()
