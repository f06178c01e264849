"""Contract of stores of local copies: tests for every implementation of ``local_state.ports.LocalCopies``.

A test module gives a subclass of ``LocalCopiesContract`` (its name begins with "Test") a fixture ``disk``.
"""

from __future__ import annotations

import contextlib
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import pytest

from emberkeep.base.errors import Absent
from emberkeep.base.ids import AllocationId, JobId
from emberkeep.local_state.errors import DamagedCopy
from emberkeep.local_state.model import CopyRecord, Holding, StatePath, disk_bytes
from emberkeep.local_state.ports import LocalCopies

ONE, OTHER = JobId("1" * 32), JobId("2" * 32)
A, B, C = (AllocationId(digit * 32) for digit in "abc")
ROOT = "/durable/one"


class Disk(Protocol):
    """A node's disk under test."""

    def copies(self) -> LocalCopies:
        """Return the copies as a new process sees them, before ``open_copies`` is called."""

    def flip(self, record: CopyRecord, offset: int) -> None:
        """Change one bit of a copy's bytes."""

    def cut(self, record: CopyRecord, length: int) -> None:
        """Truncate a copy's file to ``length`` bytes."""

    def remove(self, record: CopyRecord) -> None:
        """Remove a copy's file."""

    def files(self) -> set[str]:
        """Return all files and directories except those that exist from the beginning."""


def at(name: str, root: str = ROOT) -> StatePath:
    return StatePath(root=root, name=name)


def keep(
    copies: LocalCopies,
    name: str,
    content: bytes,
    *,
    job: JobId = ONE,
    allocation: AllocationId = A,
    generation: str = "g1",
    root: str = ROOT,
) -> CopyRecord:
    staged = copies.stage()
    for begin in range(0, len(content), 100_000):
        staged.write(content[begin : begin + 100_000])
    assert staged.finish() == len(content)
    assert staged.path.read_bytes() == content
    staged.keep(at(name, root), job, 3, allocation, generation)
    staged.discard()
    record = copies.find(at(name, root))
    assert record is not None
    assert (record.job_id, record.allocation_id, record.attempt) == (job, allocation, 3)
    assert (record.length, record.generation) == (len(content), generation)
    return record


def content_of(copies: LocalCopies, record: CopyRecord) -> bytes:
    return b"".join(copies.read(record, 0, None))


def some_bytes(size: int) -> bytes:
    return random.Random(size).randbytes(size)


class LocalCopiesContract:
    """Tests of LocalCopies."""

    @pytest.fixture
    def copies(self, disk: Disk) -> LocalCopies:
        copies = disk.copies()
        assert copies.open_copies() == ()
        return copies

    @pytest.mark.req("LOC-2")
    @pytest.mark.parametrize("size", [0, 1, 1000, 262_143, 262_144, 262_145, 1_000_000])
    def test_a_copy_outlives_the_process(self, disk: Disk, copies: LocalCopies, size: int) -> None:
        record = keep(copies, "state/0/1/2.delta", some_bytes(size))
        assert content_of(copies, record) == some_bytes(size)
        again = disk.copies()
        assert again.open_copies() == again.records() == (record,)
        assert content_of(again, record) == some_bytes(size)
        assert again.used() == copies.used() == disk_bytes(record)

    @pytest.mark.parametrize("offset", [0, 1, 262_143, 262_144, 500_000, 599_999, 600_000, 700_000])
    @pytest.mark.parametrize("length", [0, 1, 5, 300_000, None])
    def test_a_part_of_a_copy(self, copies: LocalCopies, offset: int, length: int | None) -> None:
        content = some_bytes(600_000)
        record = keep(copies, "f", content)
        pieces = list(copies.read(record, offset, length))
        assert b"".join(pieces) == (content[offset:] if length is None else content[offset : offset + length])
        assert all(len(piece) <= record.block_size for piece in pieces)

    @pytest.mark.req("LOC-7")
    @pytest.mark.parametrize("block", [0, 1, 2])
    def test_no_byte_of_a_damaged_block_is_yielded(self, disk: Disk, copies: LocalCopies, block: int) -> None:
        content = some_bytes(600_000)
        record = keep(copies, "state/0/1/2.zip", content)
        disk.flip(record, block * record.block_size + 17)
        received: list[bytes] = []
        with pytest.raises(DamagedCopy):
            received.extend(copies.read(record, 0, None))  # keeps the bytes received before the error
        assert b"".join(received) == content[: block * record.block_size]
        # The copy is removed, from the disk too.
        assert copies.find(record.path) is None
        assert disk.files() == set()
        assert disk.copies().open_copies() == ()

    @pytest.mark.req("LOC-7")
    def test_what_is_cut_off_or_missing_is_damaged(self, disk: Disk, copies: LocalCopies) -> None:
        for length in (0, 1, 299_999, 300_000):
            record = keep(copies, "f", some_bytes(300_000))
            disk.cut(record, length)
            if length < record.length:
                with pytest.raises(DamagedCopy):
                    content_of(copies, record)
            assert disk.copies().open_copies() == ()
            copies.drop(record.path)
        record = keep(copies, "f", b"x")
        disk.remove(record)
        with pytest.raises(DamagedCopy):
            copies.read(record, 0, None)
        assert copies.find(record.path) is None

    def test_only_what_was_kept_lasts(self, disk: Disk, copies: LocalCopies) -> None:
        left, unfinished = copies.stage(), copies.stage()
        left.write(b"never kept")
        left.finish()
        discarded = copies.stage()
        discarded.write(b"x")
        discarded.discard()
        discarded.discard()
        unfinished.write(b"x")
        assert len(disk.files()) == 2
        assert disk.copies().open_copies() == ()
        assert disk.files() == set()
        left.discard()
        unfinished.discard()

    @pytest.mark.req("LOC-7")
    def test_a_newer_generation_replaces(self, disk: Disk, copies: LocalCopies) -> None:
        old = keep(copies, "f", b"old", generation="g1")
        reading = copies.read(old, 0, None)
        new = keep(copies, "f", b"new!", generation="g2", allocation=B)
        assert copies.records() == (new,)
        with pytest.raises(Absent):
            copies.read(old, 0, None)
        assert b"".join(reading) == b"old"
        assert copies.used() == disk_bytes(new)
        assert disk.copies().open_copies() == (new,)

    def test_a_copy_follows_its_file(self, disk: Disk, copies: LocalCopies) -> None:
        keep(copies, "d/2", b"replaced")
        record = keep(copies, "d/.2.uuid.tmp", b"moved")
        copies.move(record, at("d/2"), "g2")
        assert copies.find(record.path) is None
        moved = copies.find(at("d/2"))
        assert moved is not None
        assert (moved.generation, content_of(copies, moved)) == ("g2", b"moved")
        copies.move(moved, at("e/2"), "g3", modified_ms=7)
        copies.move(moved, at("e/3"), "g3")  # no effect: the copy was moved before
        again = disk.copies()
        assert again.open_copies() == copies.records()
        assert [(each.path, each.generation, each.modified_ms) for each in again.records()] == [(at("e/2"), "g3", 7)]
        assert content_of(again, again.records()[0]) == b"moved"

    @pytest.mark.req("LOC-5")
    def test_a_copy_under_a_temporary_name_ends_with_the_process(self, disk: Disk, copies: LocalCopies) -> None:
        keep(copies, "state/0/0/.5.delta.0815.tmp", b"x")
        assert disk.copies().open_copies() == ()
        assert disk.files() == set()

    def test_the_least_recently_used_comes_first(self, copies: LocalCopies) -> None:
        records = [keep(copies, f"f{number}", b"x") for number in range(4)]
        copies.touch(records[1])
        copies.hand_over(ONE, A, B)
        assert [record.path.name for record in copies.records()] == ["f0", "f2", "f3", "f1"]

    @pytest.mark.req("LOC-4")
    def test_a_copy_lives_as_long_as_its_allocation(self, disk: Disk, copies: LocalCopies) -> None:
        kept = [
            keep(copies, "of b", b"x", allocation=B),
            keep(copies, "of c", b"x", allocation=C),
            keep(copies, "of another job", b"x", job=OTHER),
        ]
        keep(copies, "of a", b"x")
        copies.drop_allocation(ONE, A)
        copies.drop_allocation(ONE, A)
        assert copies.records() == tuple(kept)
        assert set(disk.copies().open_copies()) == set(kept)
        copies.drop_allocation(ONE, B)
        assert copies.records() == tuple(kept[1:])
        copies.drop_job(ONE)
        assert copies.records() == (kept[2],)
        copies.drop_job(OTHER)
        assert (copies.records(), copies.used(), disk.files()) == ((), 0, set())

    def test_handing_over(self, disk: Disk, copies: LocalCopies) -> None:
        first = keep(copies, "first", b"x")
        keep(copies, "of another job", b"x", job=OTHER)
        copies.hand_over(ONE, A, B)
        assert content_of(copies, first) == b"x"  # a reader that found the copy before may continue
        keep(copies, "second", b"x")
        copies.hand_over(ONE, A, B)
        copies.hand_over(ONE, A, B)
        copies.hand_over(ONE, B, B)
        for view in (copies, disk.copies()):
            records = view.records() or view.open_copies()
            assert {(record.path.name, record.job_id, record.allocation_id) for record in records} == {
                ("first", ONE, B),
                ("second", ONE, B),
                ("of another job", OTHER, A),
            }
        copies.drop_allocation(ONE, A)
        assert len(copies.records()) == 3
        copies.drop_allocation(ONE, B)
        assert [record.path.name for record in copies.records()] == ["of another job"]

    def test_dropping_a_name_and_what_is_below(self, disk: Disk, copies: LocalCopies) -> None:
        for name in ("d/a", "d/b/c", "d/b", "de", "e/f/g"):
            keep(copies, name, b"x")
        keep(copies, "d/a", b"x", root="/another")
        copies.drop(at("d"))
        copies.drop(at("nothing/here"))
        assert {record.path for record in copies.records()} == {at("de"), at("e/f/g"), at("d/a", "/another")}
        copies.drop(at("e/f/g"))
        copies.drop(at(""))
        assert [record.path for record in copies.records()] == [at("d/a", "/another")]
        copies.drop(at("d/a", "/another"))
        assert (disk.files(), copies.used()) == (set(), 0)

    @pytest.mark.req("LOC-11")
    def test_what_is_held_of_which_partition(self, copies: LocalCopies) -> None:
        for name in (
            "q/state/0/3/1.delta",
            "q/state/0/3/12.delta",
            "q/state/0/3/9.snapshot",
            "q/state/0/4/7_0815-abc.zip",
            "q/state/0/4/SSTs/000017-0815.sst",
            "q/state/1/0/left-keyToNumValues/5.changelog",
            "q/state/1/_metadata/metadata",
            "q/offsets/99",
        ):
            keep(copies, name, b"12345", allocation=B if "0/4" in name else A)
        keep(copies, "state/0/0/1.delta", b"x", job=OTHER, root="/another")

        def held(name: str, files: int, newest: int) -> Holding:
            return Holding(job_id=ONE, root=ROOT, name=name, files=files, size=5 * files, newest_version=newest)

        assert copies.holdings(ONE) == (
            held("q/state/0/3", 3, 12),
            held("q/state/0/4", 2, 7),
            held("q/state/1/0/left-keyToNumValues", 1, 5),
        )
        assert [(each.root, each.name) for each in copies.holdings(OTHER)] == [("/another", "state/0/0")]

    def test_many_threads(self, disk: Disk, copies: LocalCopies) -> None:
        def work(number: int) -> None:
            chance = random.Random(number)
            for step in range(60):
                name = f"state/0/{chance.randrange(4)}/{chance.randrange(4)}.delta"
                match chance.randrange(8):
                    case 0:
                        copies.drop(at(name.rpartition("/")[0]))
                    case 1:
                        copies.hand_over(ONE, chance.choice((A, B)), chance.choice((A, B)))
                    case 2:
                        copies.drop_allocation(ONE, chance.choice((A, B)))
                    case 3:
                        found = copies.find(at(name))
                        if found is not None:
                            copies.move(found, at(f"state/0/9/{number}-{step}"), "moved")
                    case _:
                        staged = copies.stage()
                        staged.write(name.encode() * 10)
                        staged.finish()
                        staged.keep(at(name), ONE, 1, chance.choice((A, B)), f"{number}-{step}")
                found = copies.find(at(name))
                if found is not None:
                    with contextlib.suppress(Absent):
                        assert content_of(copies, found) == name.encode() * 10

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
        assert copies.used() == sum(disk_bytes(record) for record in copies.records())
        assert set(disk.copies().open_copies()) == set(copies.records())
        copies.drop_job(ONE)
        assert disk.files() == set()
