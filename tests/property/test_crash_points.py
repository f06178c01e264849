"""Every durable step of every component, and the death of process or machine after it, or the disk's refusal."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from emberkeep.adapters.state.copies import DiskCopies
from emberkeep.base.errors import Absent, Fatal
from emberkeep.base.files.durable import make_directories, read_record, write_record
from tests.support.contracts.local_copies import ONE, OTHER, A, B, keep
from tests.support.crashes.component import KINDS, Component, NotDone, try_component
from tests.support.crashes.everything import COMPONENTS
from tests.support.crashes.observed import observed
from tests.support.crashes.places import scratch_directory
from tests.support.crashes.recorded import Crash, Loss, RecordedFiles, refusing
from tests.support.crashes.task_manager import every_file
from tests.support.durable_writers import EXCEPTIONS, durable_writers, modules_at_work


@pytest.mark.req("LOC-2", "LOC-3", "LOC-5", "LOC-7", "LOC-8", "SAFE-4", "SAFE-23", "SAFE-24", "END-7")
@pytest.mark.parametrize("component", COMPONENTS, ids=lambda component: f"{component.process}: {component.name}")
def test_after_each_step_a_restart_finds_what_was_promised(component: Component) -> None:
    with scratch_directory() as scratch:
        points = try_component(component, scratch)
    assert not points.failures, "\n".join(points.failures[:5])
    assert set(points.tried) == {*KINDS}
    assert min(points.tried.values()) >= 6


@pytest.mark.req("LOC-5")
def test_a_crash_while_a_crash_is_cleaned_up(tmp_path: Path) -> None:
    root = tmp_path / "state"
    root.mkdir()
    copies = DiskCopies(root)
    copies.open_copies()
    keep(copies, "f", b"first" * 100)
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


def test_every_module_that_writes_durably_is_tried_or_named() -> None:
    with scratch_directory() as scratch:
        tried = modules_at_work(COMPONENTS, scratch)
    writers = durable_writers()
    assert writers - tried == EXCEPTIONS.keys(), "tried modules are no exceptions, and all others are"
    assert all(EXCEPTIONS.values())
    assert len(writers & tried) > 30


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
        seen.add((crash.loss, payload))
        assert payload == b"new" or "written" not in crash.marks
    assert seen == {(loss, payload) for loss in Loss for payload in (b"old", b"new")}


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
    assert set(failures) == ({Loss.LOST} if forgotten == "directory" else {*Loss} - {Loss.CLEAN})


def test_a_name_may_overtake_another_one_and_its_bytes(tmp_path: Path) -> None:
    (disk := tmp_path / "disk").mkdir()
    files = RecordedFiles(disk)
    with observed(files):
        for name in ("a", "b"):
            descriptor = os.open(disk / name, os.O_WRONLY | os.O_CREAT, 0o600)
            os.write(descriptor, b"bytes")
            os.close(descriptor)
        os.rename(disk / "b", disk / "c")  # noqa: PTH104
    files.build(tmp_path / "after", Loss.REORDERED)
    assert {path.name: path.read_bytes() for path in (tmp_path / "after").iterdir()} == {"c": b""}


def test_a_refused_write_leaves_half_of_its_bytes(tmp_path: Path) -> None:
    (disk := tmp_path / "disk").mkdir()
    files = RecordedFiles(disk, refusing(1))
    with (
        observed(files),
        (disk / "a").open("wb", buffering=0) as file,
        pytest.raises(OSError, match="No space") as error,
    ):
        file.write(b"12345678")
    assert error.value.errno == errno.ENOSPC
    assert (disk / "a").read_bytes() == b"1234"


def test_what_is_written_around_the_record_is_noticed(tmp_path: Path) -> None:
    def live(root: Path, _: RecordedFiles) -> None:
        os.system(f"touch '{root}/unseen'")

    def check(_: Crash) -> None:
        raise NotDone

    with scratch_directory() as scratch, pytest.raises(NotDone):
        try_component(Component("a", "b", live, check), scratch)
    with scratch_directory() as scratch:
        points = try_component(Component("a", "b", live, lambda _: None), scratch)
    assert points.failures == ["a: not seen by the record: unseen"]


def test_the_names_of_new_directories_are_durable(tmp_path: Path) -> None:
    files = RecordedFiles(tmp_path)
    (tmp_path / "from-before").mkdir()
    files = RecordedFiles(tmp_path)
    make_directories(tmp_path / "a" / "b", files=files)
    files.build(tmp_path.with_name("after"), Loss.LOST)
    assert (tmp_path.with_name("after") / "a" / "b").is_dir()
