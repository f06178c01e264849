"""The durable store of state against a dict, and against itself in many threads; local copies against a dict."""

from __future__ import annotations

import shutil
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from emberkeep.adapters.state.copies import DiskCopies
from emberkeep.adapters.state.directories.store import DirectoryState
from emberkeep.base.errors import Absent, Conflict
from emberkeep.base.files.operations import SystemFiles
from emberkeep.base.ids import AllocationId, JobId
from emberkeep.local_state.errors import Exists, IsADirectory, NotADirectory, NotEmpty
from emberkeep.local_state.model import FileKind, StatePath, disk_bytes
from tests.campaign import examples
from tests.support.contracts.durable_state import read

NAMES = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3).map("/".join)
CONTENTS = st.binary(max_size=8)


class Hasty(SystemFiles):
    """Syncs nothing: there is no power to lose here, and disks of test machines are slow."""

    def sync(self, descriptor: int) -> None:
        pass


class ModelledDirectory(RuleBasedStateMachine):
    """``files``: contents by name; ``directories``: names, the root's is ""."""

    def __init__(self) -> None:
        super().__init__()
        self.scratch = Path(tempfile.mkdtemp())
        self.source = self.scratch / "source"
        self.store = DirectoryState(self.scratch / "root", Hasty())
        self.store.make_directory("")
        self.files: dict[str, bytes] = {}
        self.directories = {""}

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.scratch)

    # --- what should happen -------------------------------------------------------------------------------------------

    def below(self, name: str) -> list[str]:
        return [each for each in (*self.files, *self.directories) if each.startswith(f"{name}/")]

    def has_file_above(self, name: str) -> bool:
        return any(name.startswith(f"{file}/") for file in self.files)

    def make_parents(self, name: str) -> None:
        parts = name.split("/")
        self.directories |= {"/".join(parts[:depth]) for depth in range(1, len(parts))}

    # --- rules --------------------------------------------------------------------------------------------------------

    @rule(name=NAMES, content=CONTENTS, overwrite=st.booleans())
    def create(self, name: str, content: bytes, overwrite: bool) -> None:
        self.source.write_bytes(content)
        expected: type[Exception] | None = None
        if self.has_file_above(name):
            expected = NotADirectory
        elif name in self.directories:
            expected = IsADirectory if overwrite else Exists
        elif name in self.files and not overwrite:
            expected = Exists
        if expected is not None:
            with pytest.raises(expected):
                self.store.create(name, self.source, overwrite=overwrite)
            if expected is not NotADirectory:
                self.make_parents(name)
            return
        self.store.create(name, self.source, overwrite=overwrite)
        self.files[name] = content
        self.make_parents(name)

    @rule(name=NAMES)
    def make_directory(self, name: str) -> None:
        if name in self.files or self.has_file_above(name):
            with pytest.raises(NotADirectory):
                self.store.make_directory(name)
            return
        self.store.make_directory(name)
        self.directories.add(name)
        self.make_parents(name)

    @rule(old=NAMES, new=NAMES, overwrite=st.booleans())
    def rename(self, old: str, new: str, overwrite: bool) -> None:
        expected = self.refusal(old, new, overwrite)
        if expected is not None:
            with pytest.raises(expected):
                self.store.rename(old, new, overwrite=overwrite)
            return
        before = self.store.status(old)
        after = self.store.rename(old, new, overwrite=overwrite)
        assert after.generation == before.generation
        if old == new:
            return
        if old in self.files:
            self.files[new] = self.files.pop(old)
            return
        for name in [old, *self.below(old)]:
            moved = new + name[len(old) :]
            if name in self.files:
                self.files[moved] = self.files.pop(name)
            else:
                self.directories.discard(name)
                self.directories.add(moved)

    def refusal(self, old: str, new: str, overwrite: bool) -> type[Exception] | None:
        if new.startswith(f"{old}/"):
            return Conflict
        if old not in self.files and old not in self.directories:
            return Absent
        if self.has_file_above(new):
            return NotADirectory
        if new.rpartition("/")[0] not in self.directories:
            return Absent
        taken = new in self.files or new in self.directories
        if taken and not overwrite:
            return Exists
        if old == new or not taken:
            return None
        if old in self.files:
            return IsADirectory if new in self.directories else None
        if new in self.files:
            return NotADirectory
        return Exists if self.below(new) else None

    @rule(name=NAMES, recursive=st.booleans())
    def delete(self, name: str, recursive: bool) -> None:
        if not recursive and self.below(name):
            with pytest.raises(NotEmpty):
                self.store.delete(name, recursive=False)
            return
        known = name in self.files or name in self.directories
        assert self.store.delete(name, recursive=recursive) == known
        for each in [name, *self.below(name)]:
            self.files.pop(each, None)
            self.directories.discard(each)

    @rule()
    def another_process(self) -> None:
        self.store = DirectoryState(self.scratch / "root", Hasty())

    @invariant()
    def the_same_is_there(self) -> None:
        found = {}
        waiting = [""]
        while waiting:
            for status in self.store.listing(waiting.pop()):
                found[status.name] = status
                if status.kind is FileKind.DIRECTORY:
                    waiting.append(status.name)
        assert found.keys() == self.files.keys() | (self.directories - {""})
        for name, content in self.files.items():
            assert read(self.store, name) == content
            assert found[name] == self.store.status(name)
            assert found[name].length == len(content)


TestModelledDirectory = ModelledDirectory.TestCase
TestModelledDirectory.settings = settings(max_examples=examples(20), stateful_step_count=25, deadline=None)


@pytest.mark.req("LOC-10")
def test_creators_and_renamers_of_many_nodes_never_take_a_name_twice(tmp_path: Path) -> None:
    """Each node races for every name by creating or renaming; readers see nothing but whole files."""
    nodes, rounds = 6, 12
    wins: dict[str, list[bytes]] = {f"offsets/{number}": [] for number in range(rounds)}
    over = threading.Event()
    lock = threading.Lock()

    def race(node: int) -> None:
        store = DirectoryState(tmp_path / "root")
        source = tmp_path / f"source-{node}"
        source.write_bytes(b"%d" % node * 5000)
        for name, winners in wins.items():
            try:
                if node % 2:
                    store.create(name, source, overwrite=False)
                else:
                    temporary = f"offsets/.{node}.tmp"
                    store.create(temporary, source, overwrite=True)
                    store.rename(temporary, name, overwrite=False)
            except Exists:
                continue
            with lock:
                winners.append(source.read_bytes())

    def watch() -> None:
        store = DirectoryState(tmp_path / "root")
        while not over.is_set():
            for name in wins:
                try:
                    content = read(store, name)
                except Absent:
                    continue
                assert len(set(content)) == 1
                assert len(content) == 5000

    with ThreadPoolExecutor(nodes + 1) as pool:
        watcher = pool.submit(watch)
        try:
            list(pool.map(race, range(nodes)))
        finally:
            over.set()
        watcher.result()
    store = DirectoryState(tmp_path / "root")
    for name, winners in wins.items():
        assert [read(store, name)] == winners


ONE = JobId("1" * 32)
OWNERS = st.sampled_from([AllocationId(digit * 32) for digit in "abc"])


class ModelledCopies(RuleBasedStateMachine):
    """``kept``: content, generation, owner by name, least recently used first."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.copies = DiskCopies(self.root)
        self.copies.open_copies()
        self.kept: dict[str, tuple[bytes, str, AllocationId]] = {}
        self.generations = 0

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    def at(self, name: str) -> StatePath:
        return StatePath(root="/r", name=name)

    @rule(name=NAMES, content=CONTENTS, owner=OWNERS)
    def keep(self, name: str, content: bytes, owner: AllocationId) -> None:
        self.generations += 1
        staged = self.copies.stage()
        staged.write(content)
        staged.finish()
        staged.keep(self.at(name), ONE, 1, owner, str(self.generations))
        staged.discard()
        self.kept.pop(name, None)
        self.kept[name] = (content, str(self.generations), owner)

    @rule(old=NAMES, new=NAMES)
    def move(self, old: str, new: str) -> None:
        record = self.copies.find(self.at(old))
        if record is None:
            return
        self.generations += 1
        self.copies.move(record, self.at(new), str(self.generations))
        content, _, owner = self.kept.pop(old)
        self.kept.pop(new, None)
        self.kept[new] = (content, str(self.generations), owner)

    @rule(name=NAMES)
    def touch(self, name: str) -> None:
        record = self.copies.find(self.at(name))
        if record is not None:
            self.copies.touch(record)
            self.kept[name] = self.kept.pop(name)

    @rule(name=NAMES)
    def drop(self, name: str) -> None:
        self.copies.drop(self.at(name))
        self.forget({each for each in self.kept if each == name or each.startswith(f"{name}/")})

    @rule(owner=OWNERS)
    def drop_allocation(self, owner: AllocationId) -> None:
        self.copies.drop_allocation(ONE, owner)
        self.forget({name for name, (_, _, kept_for) in self.kept.items() if kept_for == owner})

    def forget(self, names: set[str]) -> None:
        for name in names:
            del self.kept[name]

    @rule(old=OWNERS, new=OWNERS)
    def hand_over(self, old: AllocationId, new: AllocationId) -> None:
        self.copies.hand_over(ONE, old, new)
        for name, (content, generation, owner) in self.kept.items():
            if owner == old:
                self.kept[name] = (content, generation, new)

    @rule()
    def another_process(self) -> None:
        self.copies = DiskCopies(self.root)
        found = [record.path.name for record in self.copies.open_copies()]
        assert set(found) == set(self.kept)
        self.kept = {name: self.kept[name] for name in found}  # the order begins anew

    @invariant()
    def the_same_is_kept(self) -> None:
        records = self.copies.records()
        assert [record.path.name for record in records] == list(self.kept)
        for record in records:
            content, generation, owner = self.kept[record.path.name]
            assert (record.generation, record.allocation_id) == (generation, owner)
            assert self.copies.find(record.path) == record
            assert b"".join(self.copies.read(record, 0, None)) == content
        assert self.copies.used() == sum(disk_bytes(record) for record in records)
        lying = {path for path in self.root.rglob("*") if path.is_file()}
        assert len(lying) == len(records)


TestModelledCopies = ModelledCopies.TestCase
TestModelledCopies.settings = settings(max_examples=examples(30), stateful_step_count=30, deadline=None)


@pytest.mark.req("LOC-4")
@pytest.mark.req("LOC-5")
def test_nothing_accumulates(tmp_path: Path) -> None:
    """200 jobs, each with two slots, Spark's purges, a crash in between: no file or directory stays."""

    def everything(root: Path) -> set[Path]:
        return set(root.rglob("*"))

    durable, disk, source = tmp_path / "durable", tmp_path / "disk", tmp_path / "source"
    copies = DiskCopies(disk)
    copies.open_copies()
    before = everything(disk)
    for number in range(200):
        job = JobId(f"{number:032x}")
        store = DirectoryState(durable / job, Hasty())
        slots = [AllocationId(f"{number:031x}{slot}") for slot in range(2)]
        for batch in range(4):
            for partition, slot in enumerate(slots):
                name = f"state/0/{partition}/{batch}.delta"
                temporary = f"state/0/{partition}/.{batch}.delta.0815.tmp"
                staged = copies.stage()
                staged.write(b"x" * 50)
                staged.finish()
                status = store.create(temporary, staged.path, overwrite=True)
                path = StatePath(root=store.location, name=temporary)
                staged.keep(path, job, 1, slot, status.generation)
                staged.discard()
                status = store.rename(temporary, name, overwrite=True)
                record = copies.find(path)
                assert record is not None
                copies.move(record, StatePath(root=store.location, name=name), status.generation)
                if batch >= 2:  # Spark keeps the last versions
                    purged = name.replace(f"/{batch}.", f"/{batch - 2}.")
                    assert store.delete(purged, recursive=False)
                    copies.drop(StatePath(root=store.location, name=purged))
        assert len(copies.records()) == 4
        if number % 20 == 0:
            copies.stage().write(b"cut off")
            copies = DiskCopies(disk)
            assert len(copies.open_copies()) == 4
        copies.drop_allocation(job, slots[0])
        copies.drop_job(job)
        assert {path.name for path in everything(durable / job) if path.is_file()} == {"2.delta", "3.delta"}
        assert store.delete("", recursive=True)
        store.close()
    assert everything(disk) == before
    assert everything(durable) == set()
    assert copies.used() == 0
    source.unlink(missing_ok=True)
