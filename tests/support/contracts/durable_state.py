"""Contract of durable stores of state files: tests for every implementation of ``local_state.ports.DurableState``.

A test module gives a subclass of ``DurableStateContract`` (its name begins with "Test") a fixture ``place``.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar, Protocol

import pytest

from emberkeep.base.errors import Absent, Conflict, Fatal, InvalidInput, RetryLater
from emberkeep.local_state.errors import Exists, IsADirectory, NotADirectory, NotEmpty
from emberkeep.local_state.model import FileKind
from emberkeep.local_state.ports import DurableState

UNSAFE = ("..", "../x", "a/../b", "/a", "a//b", "a/", "./a", ".", "a/.", "a\0b")


class Place(Protocol):
    """Durable storage under test."""

    def store(self) -> DurableState:
        """Return the store as a new process opens it. The caller closes it."""

    def new_file(self, content: bytes) -> Path:
        """Create a file on the machine."""

    def leftovers(self) -> set[str]:
        """Return names of temporary data that remains after all stores are closed."""


def read(store: DurableState, name: str, offset: int = 0, length: int | None = None) -> bytes:
    return b"".join(store.read(name, offset, length)[1])


def names(store: DurableState, name: str = "") -> list[str]:
    return [status.name for status in store.listing(name)]


class DurableStateContract:
    """Tests of DurableState."""

    MOVES_DIRECTORIES: ClassVar = True
    RACERS: ClassVar = 8
    LARGE: ClassVar = 9 * 1024**2 + 1

    @pytest.fixture
    def store(self, place: Place) -> Iterator[DurableState]:
        store = place.store()
        yield store
        store.close()
        store.close()
        assert place.leftovers() == set()

    def put(self, place: Place, store: DurableState, name: str, content: bytes, *, overwrite: bool = False) -> str:
        status = store.create(name, place.new_file(content), overwrite=overwrite)
        assert (status.name, status.kind, status.length) == (name, FileKind.FILE, len(content))
        assert status.generation
        return status.generation

    # --- files --------------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("content", [b"", b"v1\n{}", bytes(range(256)) * 3000])
    def test_a_file_is_read_as_it_was_written(self, place: Place, store: DurableState, content: bytes) -> None:
        generation = self.put(place, store, "state/0/3/1.delta", content)
        for view in (store, place.store()):
            status, pieces = view.read("state/0/3/1.delta", 0, None)
            assert b"".join(pieces) == content
            assert status == view.status("state/0/3/1.delta")
            assert status.generation == generation
            assert view.listing("state/0/3") == view.listing("state/0/3/1.delta") == (status,)
            view.close()

    def test_a_large_file(self, place: Place, store: DurableState) -> None:
        content = bytes(range(251)) * (self.LARGE // 251 + 1)
        self.put(place, store, "state/0/0/1.zip", content)
        assert read(store, "state/0/0/1.zip") == content
        assert read(store, "state/0/0/1.zip", len(content) - 5) == content[-5:]
        assert store.rename("state/0/0/1.zip", "state/0/0/2.zip", overwrite=False).length == len(content)
        assert read(store, "state/0/0/2.zip") == content
        assert names(store, "state/0/0") == ["state/0/0/2.zip"]

    @pytest.mark.parametrize(
        ("offset", "length"), [(0, None), (3, None), (3, 4), (0, 0), (9, 5), (10, None), (10, 3), (11, None), (99, 9)]
    )
    def test_a_part_of_a_file(self, place: Place, store: DurableState, offset: int, length: int | None) -> None:
        content = b"0123456789"
        self.put(place, store, "f", content)
        wanted = content[offset:] if length is None else content[offset : offset + length]
        assert read(store, "f", offset, length) == wanted

    @pytest.mark.req("LOC-7")
    def test_other_bytes_are_another_generation(self, place: Place, store: DurableState) -> None:
        generations = [self.put(place, store, "f", b"%05d" % n, overwrite=True) for n in range(10)]
        assert len(set(generations)) == len(generations)
        assert store.status("f").generation == generations[-1]
        assert read(store, "f") == b"00009"

    def test_a_file_that_is_being_read_is_replaced(self, place: Place, store: DurableState) -> None:
        content = b"old" * 200_000
        self.put(place, store, "f", content)
        _, pieces = store.read("f", 0, None)
        begin = next(pieces)
        self.put(place, store, "f", b"new" * 200_000, overwrite=True)
        # All of the old file or an error, never parts of both.
        with contextlib.suppress(RetryLater):
            assert begin + b"".join(pieces) == content

    def test_a_read_may_be_left_at_any_point(self, place: Place, store: DurableState) -> None:
        self.put(place, store, "f", b"x" * 1_000_000)
        store.read("f", 0, None)
        _, pieces = store.read("f", 0, None)
        next(pieces)
        del pieces

    def test_what_is_not_there_is_absent(self, place: Place, store: DurableState) -> None:
        calls: list[Callable[[str], object]] = [
            store.status,
            store.listing,
            lambda name: store.read(name, 0, None),
            lambda name: store.rename(name, "other", overwrite=True),
            lambda name: store.rename(name, name, overwrite=True),
        ]
        for call in calls:  # not even the root directory exists
            with pytest.raises(Absent):
                call("a/b")
        assert not store.delete("a/b", recursive=True)
        self.put(place, store, "a/f", b"x")
        for name in ("a/b", "b", "a/f/g", "a/b/c"):
            for call in calls:
                with pytest.raises(Absent):
                    call(name)
            assert not store.delete(name, recursive=False)
            assert not store.delete(name, recursive=True)

    @pytest.mark.parametrize("name", UNSAFE)
    def test_no_name_leads_out_of_the_root(self, place: Place, store: DurableState, name: str) -> None:
        source = place.new_file(b"x")
        self.put(place, store, "f", b"x")
        for call in (
            lambda: store.status(name),
            lambda: store.listing(name),
            lambda: store.make_directory(name),
            lambda: store.create(name, source, overwrite=True),
            lambda: store.read(name, 0, None),
            lambda: store.rename("f", name, overwrite=True),
            lambda: store.rename(name, "f", overwrite=True),
            lambda: store.delete(name, recursive=True),
        ):
            with pytest.raises(InvalidInput):
                call()
        assert read(store, "f") == b"x"

    def test_names_of_all_kinds(self, place: Place, store: DurableState) -> None:
        wanted = [".5.delta.0815.TID7.tmp", "5_a-b.changelog", "a b", "ä+%41&=", "_metadata", "x" * 200]
        for name in wanted:
            self.put(place, store, f"d/{name}", name.encode())
        assert names(store, "d") == sorted(f"d/{name}" for name in wanted)
        for name in wanted:
            assert read(store, f"d/{name}") == name.encode()

    # --- names that can be taken once ---------------------------------------------------------------------------------

    @pytest.mark.req("LOC-10")
    def test_a_file_is_created_once(self, place: Place, store: DurableState) -> None:
        generation = self.put(place, store, "offsets/0", b"first")
        with pytest.raises(Exists):
            store.create("offsets/0", place.new_file(b"second"), overwrite=False)
        assert read(store, "offsets/0") == b"first"
        assert store.status("offsets/0").generation == generation
        self.put(place, store, "offsets/0", b"third", overwrite=True)
        assert read(store, "offsets/0") == b"third"

    def test_of_many_creators_one_succeeds(self, place: Place, store: DurableState) -> None:
        def create(racer: int, name: str) -> None:
            store.create(name, sources[racer], overwrite=False)

        sources = [place.new_file(b"racer %d" % racer) for racer in range(self.RACERS)]
        for number in range(3):
            winner = self.race(functools.partial(create, name=f"offsets/{number}"))
            assert read(store, f"offsets/{number}") == b"racer %d" % winner

    def test_of_many_renamers_one_succeeds(self, place: Place, store: DurableState) -> None:
        for racer in range(self.RACERS):
            self.put(place, store, f"offsets/.0.{racer}.tmp", b"racer %d" % racer)
        winner = self.race(lambda racer: store.rename(f"offsets/.0.{racer}.tmp", "offsets/0", overwrite=False))
        assert read(store, "offsets/0") == b"racer %d" % winner
        losers = {f"offsets/.0.{racer}.tmp" for racer in range(self.RACERS) if racer != winner}
        assert set(names(store, "offsets")) == losers | {"offsets/0"}

    def race(self, call: Callable[[int], object]) -> int:
        """Run ``call`` concurrently for RACERS numbers. Return the number of the only one that succeeded."""
        barrier = threading.Barrier(self.RACERS)

        def run(racer: int) -> bool:
            barrier.wait(120)
            try:
                call(racer)
            except Exists:
                return False
            return True

        with ThreadPoolExecutor(self.RACERS) as pool:
            won = list(pool.map(run, range(self.RACERS)))
        assert sum(won) == 1
        return won.index(True)

    # --- renames ------------------------------------------------------------------------------------------------------

    def test_a_file_is_renamed(self, place: Place, store: DurableState) -> None:
        generation = self.put(place, store, "state/0/0/.1.delta.tmp", b"x")
        store.make_directory("other")
        status = store.rename("state/0/0/.1.delta.tmp", "other/1.delta", overwrite=False)
        found = store.status("other/1.delta")
        assert (status.name, status.length, status.generation) == (found.name, found.length, found.generation)
        assert (status.generation == generation) or not self.MOVES_DIRECTORIES
        assert names(store, "state/0/0") == []
        assert read(store, "other/1.delta") == b"x"

    def test_a_rename_replaces_only_where_it_may(self, place: Place, store: DurableState) -> None:
        self.put(place, store, "a", b"a")
        self.put(place, store, "b", b"b")
        with pytest.raises(Exists):
            store.rename("a", "b", overwrite=False)
        assert (read(store, "a"), read(store, "b")) == (b"a", b"b")
        store.rename("a", "b", overwrite=True)
        assert names(store) == ["b"]
        assert read(store, "b") == b"a"
        with pytest.raises(Exists):
            store.rename("b", "b", overwrite=False)
        assert store.rename("b", "b", overwrite=True) == store.status("b")
        assert read(store, "b") == b"a"

    def test_a_rename_makes_no_directories(self, place: Place, store: DurableState) -> None:
        self.put(place, store, "a", b"a")
        self.put(place, store, "file", b"")
        with pytest.raises(Absent):
            store.rename("a", "no/a", overwrite=False)
        with pytest.raises(NotADirectory):
            store.rename("a", "file/a", overwrite=False)
        assert read(store, "a") == b"a"

    def test_a_file_does_not_take_a_directorys_place(self, place: Place, store: DurableState) -> None:
        self.put(place, store, "a", b"a")
        store.make_directory("d")
        with pytest.raises(IsADirectory):
            store.rename("a", "d", overwrite=True)
        with pytest.raises(Exists):
            store.rename("a", "d", overwrite=False)
        with pytest.raises(IsADirectory):
            store.create("d", place.new_file(b""), overwrite=True)
        with pytest.raises(Exists):
            store.create("d", place.new_file(b""), overwrite=False)
        with pytest.raises(IsADirectory):
            store.read("d", 0, None)
        with pytest.raises(Conflict):
            store.rename("a", "", overwrite=True)
        assert names(store) == ["a", "d"]

    def test_a_directory_is_renamed_or_refused(self, place: Place, store: DurableState) -> None:
        generation = self.put(place, store, "d/e/f", b"x")
        store.make_directory("full/x")
        store.make_directory("empty")
        if not self.MOVES_DIRECTORIES:
            with pytest.raises(Fatal):
                store.rename("d", "new", overwrite=False)
            assert read(store, "d/e/f") == b"x"
            return
        for target, overwrite in (("full", False), ("full", True), ("empty", False)):
            with pytest.raises(Exists):
                store.rename("d", target, overwrite=overwrite)
        with pytest.raises(Conflict):
            store.rename("d", "d/e/d", overwrite=False)
        store.rename("d", "new", overwrite=False)
        store.rename("new", "empty", overwrite=True)
        assert names(store) == ["empty", "full"]
        assert store.status("empty/e/f").generation == generation
        self.put(place, store, "file", b"")
        with pytest.raises(NotADirectory):
            store.rename("empty", "file", overwrite=True)

    # --- directories --------------------------------------------------------------------------------------------------

    def test_a_directory_is_there_without_files(self, store: DurableState) -> None:
        store.make_directory("a/b/c")
        store.make_directory("a/b/c")
        assert store.status("a/b/c").kind is FileKind.DIRECTORY
        assert (store.status("a/b/c").length, store.status("a/b/c").generation) == (0, "")
        assert store.listing("a/b/c") == ()
        assert names(store, "a") == ["a/b"]
        assert names(store) == ["a"]

    def test_the_root_is_made_like_any_directory(self, store: DurableState) -> None:
        store.make_directory("")
        assert store.status("").kind is FileKind.DIRECTORY
        assert store.listing("") == ()
        with pytest.raises(IsADirectory):
            store.read("", 0, None)

    def test_a_directory_outlives_its_last_file(self, place: Place, store: DurableState) -> None:
        self.put(place, store, "a/b/f", b"x")
        assert store.delete("a/b/f", recursive=False)
        assert store.listing("a/b") == ()
        assert store.delete("a/b", recursive=False)
        assert store.status("a").kind is FileKind.DIRECTORY

    def test_a_file_is_no_directory(self, place: Place, store: DurableState) -> None:
        self.put(place, store, "a/f", b"x")
        for name in ("a/f", "a/f/g", "a/f/g/h"):
            with pytest.raises(NotADirectory):
                store.make_directory(name)
        with pytest.raises(NotADirectory):
            store.create("a/f/g", place.new_file(b""), overwrite=True)
        assert read(store, "a/f") == b"x"

    def test_a_listing_tells_one_level(self, place: Place, store: DurableState) -> None:
        for name in ("d/b/deep", "d/a", "d/c/deep", "d-e", "d/b.x"):
            self.put(place, store, name, name.encode())
        listed = store.listing("d")
        assert [status.name for status in listed] == ["d/a", "d/b", "d/b.x", "d/c"]
        assert listed == tuple(store.status(status.name) for status in listed)

    def test_deleting(self, place: Place, store: DurableState) -> None:
        for name in ("d/a", "d/b/c", "d/b/e", "de", "f/g"):
            self.put(place, store, name, b"x")
        store.make_directory("empty")
        with pytest.raises(NotEmpty):
            store.delete("d", recursive=False)
        assert store.delete("empty", recursive=False)
        assert store.delete("d/b", recursive=True)
        assert names(store, "d") == ["d/a"]
        assert store.delete("d", recursive=True)
        assert store.delete("de", recursive=True)
        assert names(store) == ["f"]
        with pytest.raises(NotEmpty):
            store.delete("", recursive=False)
        assert store.delete("", recursive=True)
        assert not store.delete("", recursive=True)
        with pytest.raises(Absent):
            store.status("")

    def test_what_was_deleted_can_be_made_again(self, place: Place, store: DurableState) -> None:
        for overwrite in (False, True, False):
            generation = self.put(place, store, "d/f", b"x%d" % overwrite, overwrite=overwrite)
            assert store.status("d/f").generation == generation
            assert store.delete("d", recursive=True)
            with pytest.raises(Absent):
                store.status("d")
