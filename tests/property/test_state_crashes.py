"""State files and the death of process or machine after each single step: right bytes or none, no orphans (LOC-7)."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from emberkeep.adapters.state.copies import DiskCopies
from emberkeep.adapters.state.directories.store import DirectoryState
from emberkeep.adapters.state.names import INCOMING
from emberkeep.base.errors import Absent, Fatal
from emberkeep.base.files.durable import read_record, write_record
from emberkeep.local_state.errors import DamagedCopy, Exists
from tests.support.contracts.durable_state import read
from tests.support.contracts.local_copies import ONE, OTHER, A, B, at, content_of, keep
from tests.support.crash_files import Crash, Loss, RecordedFiles

_LEFTOVER_AGE = 2 * 3600


def every_file(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}


# --- the recorder itself ----------------------------------------------------------------------------------------------


def test_a_record_is_the_old_one_or_the_new_one(tmp_path: Path) -> None:
    (disk := tmp_path / "disk").mkdir()
    write_record(disk / "r", "kind", 1, b"old")
    files = RecordedFiles(disk)
    write_record(disk / "r", "kind", 1, b"new", files=files)
    files.mark("written")
    seen = set()
    for crash in files.crashes(tmp_path / "after"):
        payload = read_record(crash.directory / "r", "kind", 1)
        seen.add(payload)
        assert payload == b"new" or "written" not in crash.marks
    assert seen == {b"old", b"new"}


@pytest.mark.parametrize("forgotten", ["file", "directory"])
def test_a_forgotten_sync_is_noticed(tmp_path: Path, forgotten: str) -> None:
    (disk := tmp_path / "disk").mkdir()

    class Forgetful(RecordedFiles):
        def sync(self, descriptor: int) -> None:
            if os.path.isdir(f"/proc/self/fd/{descriptor}") != (forgotten == "directory"):  # noqa: PTH112
                super().sync(descriptor)

    files = Forgetful(disk)
    write_record(disk / "r", "kind", 1, b"new", files=files)
    files.mark("written")
    failures = []
    for crash in files.crashes(tmp_path / "after"):
        try:
            read_record(crash.directory / "r", "kind", 1)
        except (Absent, Fatal):
            if "written" in crash.marks:
                failures.append(crash.loss)
    assert set(failures) == ({Loss.LOST} if forgotten == "directory" else {Loss.LOST, Loss.TORN, Loss.CUT})


# --- local copies -----------------------------------------------------------------------------------------------------

CONTENTS = {
    ("f", "g1"): b"first" * 100,
    ("f", "g2"): b"second" * 100,
    ("moved", "g3"): b"moved" * 100_000,
    ("moving", "g1"): b"moved" * 100_000,
    ("dropped", "g1"): b"dropped",
    ("of another job", "g1"): b"",
    ("handed over", "g1"): b"handed over",
}


def life_of_copies(root: Path, files: RecordedFiles) -> None:
    """All that changes the disk."""
    copies = DiskCopies(root, files)
    copies.open_copies()
    keep(copies, "f", CONTENTS["f", "g1"])
    keep(copies, "f", CONTENTS["f", "g2"], generation="g2", allocation=B)
    moving = keep(copies, "moving", CONTENTS["moving", "g1"])
    copies.move(moving, at("moved"), "g3")
    keep(copies, "dropped", b"dropped")
    copies.drop(at("dropped"))
    keep(copies, "of another job", b"", job=OTHER)
    copies.drop_job(OTHER)
    keep(copies, "handed over", b"handed over")
    copies.hand_over(ONE, A, B)
    keep(copies, "handed over", b"handed over")
    copies.hand_over(ONE, A, B)
    files.mark("handed over")
    unfinished = copies.stage()
    unfinished.write(b"x")
    copies.drop_allocation(ONE, B)
    keep(copies, "handed over", b"handed over")
    unfinished.discard()


@pytest.mark.req("LOC-7")
@pytest.mark.req("LOC-5")
def test_local_copies_verify_or_are_removed(tmp_path: Path) -> None:
    root = tmp_path / "state"
    root.mkdir()
    files = RecordedFiles(root)
    life_of_copies(root, files)
    served: set[tuple[str, str]] = set()
    crashes = 0
    for crash in files.crashes(tmp_path / "after"):
        crashes += 1
        check_copies(crash, served)
    assert crashes > 200
    assert served == set(CONTENTS)


def check_copies(crash: Crash, served: set[tuple[str, str]]) -> None:
    copies = DiskCopies(crash.directory)
    records = copies.open_copies()
    assert len(every_file(crash.directory)) == len(records), crash  # nothing that nobody knows of
    for record in records:
        known = (record.path.name, record.generation)
        try:
            assert content_of(copies, record) == CONTENTS[known], crash
            served.add(known)
        except DamagedCopy:
            assert crash.loss in (Loss.TORN, Loss.CUT), crash
            assert copies.find(record.path) is None
        if crash.last == "promise: handed over":
            assert record.allocation_id == B, crash
    assert copies.records() == DiskCopies(crash.directory).open_copies(), crash
    for job in (ONE, OTHER):
        copies.drop_job(job)
    assert every_file(crash.directory) == set(), crash


@pytest.mark.req("LOC-5")
def test_a_crash_while_a_crash_is_cleaned_up(tmp_path: Path) -> None:
    root = tmp_path / "state"
    root.mkdir()
    copies = DiskCopies(root)
    copies.open_copies()
    keep(copies, "f", CONTENTS["f", "g1"])
    left = copies.stage()
    left.write(b"x")
    torn = root / "copies" / ONE / A / "torn"
    torn.write_bytes(b"x" * 1000)
    (root / "copies" / OTHER / B).mkdir(parents=True)
    files = RecordedFiles(root)
    DiskCopies(root, files).open_copies()
    for crash in files.crashes(tmp_path / "after"):
        (record,) = DiskCopies(crash.directory).open_copies()
        assert record.path.name == "f"
        assert len(every_file(crash.directory)) == 1, crash
    left.discard()


# --- the durable store ------------------------------------------------------------------------------------------------


def refuse(*_: object, **__: object) -> None:
    raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


def life_of_directory(root: Path, source: Path, files: RecordedFiles) -> list[dict[str, bytes]]:
    """All that changes the store; what must be visible after each step, the first one being "nothing"."""
    store = DirectoryState(root, files)
    states: list[dict[str, bytes]] = [{}]

    def expect(changes: dict[str, bytes | None]) -> None:
        state = {**states[-1], **changes}
        states.append({name: content for name, content in state.items() if content is not None})
        files.mark("done")

    def put(name: str, content: bytes, *, overwrite: bool = False) -> None:
        source.write_bytes(content)
        store.create(name, source, overwrite=overwrite)
        expect({name: content})

    def move(old: str, new: str, *, overwrite: bool = False) -> None:
        store.rename(old, new, overwrite=overwrite)
        expect({old: None, new: states[-1][old]})

    put("offsets/0", b"zero")
    source.write_bytes(b"another")
    with pytest.raises(Exists):
        store.create("offsets/0", source, overwrite=False)
    put("offsets/0", b"replaced", overwrite=True)
    put("state/0/0/1.delta", b"one")
    put("state/0/0/.2.uuid.tmp", b"two", overwrite=True)
    move("state/0/0/.2.uuid.tmp", "state/0/0/2.delta")
    put("state/0/0/.1.uuid.tmp", b"one again", overwrite=True)
    move("state/0/0/.1.uuid.tmp", "state/0/0/1.delta", overwrite=True)
    move("state/0/0/2.delta", "offsets/2")
    store.rename("state", "moved", overwrite=False)
    expect({"state/0/0/1.delta": None, "moved/0/0/1.delta": b"one again"})
    store.delete("offsets/2", recursive=False)
    expect({"offsets/2": None})
    store.delete("moved", recursive=True)
    expect({"moved/0/0/1.delta": None})
    store.close()
    return states


@pytest.mark.req("LOC-7")
@pytest.mark.parametrize("exclusive", [True, False], ids=["exclusive rename", "links"])
def test_the_durable_store_keeps_its_promises(tmp_path: Path, exclusive: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    (root := tmp_path / "state").mkdir()
    files = RecordedFiles(root)
    if not exclusive:
        monkeypatch.setattr(files, "rename_new", refuse)
    states = life_of_directory(root, tmp_path / "source", files)
    assert every_file(root) == {"offsets/0"}
    crashes = list(files.crashes(tmp_path / "after"))
    assert len(crashes) > 200
    for crash in crashes:
        check_directory(crash, states)


def check_directory(crash: Crash, states: list[dict[str, bytes]]) -> None:
    before = states[len(crash.marks)]
    after = states[min(len(crash.marks) + 1, len(states) - 1)]
    files = {name for name in every_file(crash.directory) if not name.startswith(INCOMING)}
    store = DirectoryState(crash.directory)
    found = {name: read(store, name) for name in files}
    for name in {*found, *before, *after}:
        allowed = {before.get(name), after.get(name)}
        if name.endswith(".tmp") or name == "offsets/2":
            # A temporary name lasts from its rename on; a file that was deleted may be there again.
            allowed |= {None} | {state[name] for state in states if name in state}
        assert found.get(name) in allowed, (name, crash)
    for name, content in before.items():
        # A rename that has begun: under the old name or the new one, or both.
        if content in after.values() and not name.endswith(".tmp"):
            assert content in found.values(), (name, crash)
    if "offsets/0" in before:
        source = crash.directory.with_suffix(".source")
        source.write_bytes(b"a second winner")
        with pytest.raises(Exists):
            store.create("offsets/0", source, overwrite=False)
    check_swept(crash)


def check_swept(crash: Crash) -> None:
    """What was cut off goes with the next write, once it is old enough."""
    incoming = crash.directory / INCOMING
    if not incoming.exists():
        return
    for path in incoming.rglob("*"):
        os.utime(path, (0, path.stat().st_mtime - _LEFTOVER_AGE))
    before = every_file(crash.directory)
    store = DirectoryState(crash.directory)
    source = crash.directory.with_suffix(".source")
    source.write_bytes(b"")
    store.create("probe", source, overwrite=True)
    store.delete("probe", recursive=False)
    store.close()
    assert not incoming.exists(), crash
    assert every_file(crash.directory) == {name for name in before if not name.startswith(INCOMING)}
