"""Contract of savepoint storages: tests for ``spark.stopping.savepoint_storage.SavepointStorage``.

A test module gives a subclass of ``SavepointStorageContract`` (its name begins with "Test") a fixture ``place``.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import msgspec
import pytest

from emberkeep.base.errors import Absent
from emberkeep.lifecycle.manifest import MANIFEST_NAME, described, query_directory
from emberkeep.spark.stopping.savepoint_storage import SavepointStorage

QUERY = query_directory("query-per%20hour%2F%E2%82%AC")  # a name that needs escapes
OFFSETS = f"{QUERY}/offsets/41"
STATE = f"{QUERY}/state/0/0/42_6ba7b810-9dad-11d1-80b4-00c04fd430c8.zip"
LARGE = 20 * 1024**2 + 1  # bytes: more than a few parts of an upload


class Place(Protocol):
    """Directory of one savepoint, and the disk of the node that writes it."""

    def storage(self) -> SavepointStorage:
        """Return the storage as a new process opens it."""

    def contents(self) -> Mapping[str, bytes]:
        """Return the content of every file in the savepoint, by name."""

    def damage(self, name: str, content: bytes) -> None:
        """Replace a file without the storage's knowledge."""

    def add_neighbour(self) -> None:
        """Add another savepoint, whose location begins with the characters of this one's."""

    def has_neighbour(self) -> bool:
        """True if the other savepoint is unchanged."""

    def new_file(self, content: bytes | None) -> Path:
        """Create a file on the node; with None, return only an unused path."""

    def staged(self) -> Set[Path]:
        """Return temporary files of the savepoint that remain on the node."""


class SavepointStorageContract:
    """Tests of SavepointStorage."""

    @pytest.fixture
    def storage(self, place: Place) -> SavepointStorage:
        return place.storage()

    @pytest.mark.parametrize("size", [0, 1, LARGE])
    def test_what_was_saved_is_fetched(self, place: Place, storage: SavepointStorage, size: int) -> None:
        content = bytes(range(251)) * (size // 251 + 1)
        content = content[:size]
        storage.prepare([STATE])
        saved = storage.save(f"file:{place.new_file(content)}", STATE)
        storage.seal([STATE])
        assert saved == described(STATE, content) == storage.check(STATE)
        assert place.contents() == {STATE: content}
        target = place.new_file(None)
        assert storage.fetch(STATE, f"file:{target}") == saved
        assert target.read_bytes() == content
        assert not place.staged()

    def test_many_at_once(self, place: Place, storage: SavepointStorage) -> None:
        contents = {f"{QUERY}/state/0/{number}/1.delta": str(number).encode() for number in range(60)}
        storage.prepare(contents)
        with ThreadPoolExecutor(8) as threads:
            sources = [f"file:{place.new_file(content)}" for content in contents.values()]
            saved = list(threads.map(storage.save, sources, contents))
        storage.seal(contents)
        assert saved == [described(name, content) for name, content in contents.items()]
        assert place.contents() == contents

    def test_the_newest_write_counts(self, place: Place, storage: SavepointStorage) -> None:
        for content in (b"an older attempt's", b"new"):
            assert storage.write(MANIFEST_NAME, content) == described(MANIFEST_NAME, content)
            storage.save(f"file:{place.new_file(content)}", OFFSETS)
        assert storage.read(MANIFEST_NAME) == b"new"
        assert place.contents() == {MANIFEST_NAME: b"new", OFFSETS: b"new"}

    def test_what_is_not_there_is_absent(self, place: Place, storage: SavepointStorage) -> None:
        storage.write(f"{OFFSETS}1", b"x")
        target = place.new_file(None)
        for look in (storage.read, storage.check, lambda name: storage.fetch(name, f"file:{target}")):
            with pytest.raises(Absent):
                look(OFFSETS)
        with pytest.raises(Absent):
            storage.save(f"file:{place.new_file(None)}", OFFSETS)
        assert set(place.contents()) == {f"{OFFSETS}1"}
        assert not target.exists()
        assert not place.staged()

    def test_a_flipped_bit_is_seen(self, place: Place, storage: SavepointStorage) -> None:
        storage.write(OFFSETS, b"v1 {}")
        place.damage(OFFSETS, b"v1 {|")
        changed = described(OFFSETS, b"v1 {|")
        assert storage.check(OFFSETS) == changed
        assert storage.fetch(OFFSETS, f"file:{place.new_file(None)}") == changed
        assert msgspec.structs.replace(changed, sha256="") == msgspec.structs.replace(
            described(OFFSETS, b"v1 {}"), sha256=""
        )

    def test_all_of_it_is_removed_and_nothing_else(self, place: Place, storage: SavepointStorage) -> None:
        storage.remove()
        place.add_neighbour()
        for name in (OFFSETS, STATE, MANIFEST_NAME):
            storage.write(name, b"x")
        storage.remove()
        assert not place.contents()
        assert place.has_neighbour()
        storage.remove()
        with pytest.raises(Absent):
            storage.read(MANIFEST_NAME)
