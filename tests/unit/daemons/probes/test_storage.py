"""The steps that are tried in a storage, on file systems that do not do one of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from emberkeep.base.files.operations import SystemFiles
from emberkeep.daemons.probes.storage import read_disk, try_storage
from emberkeep.diagnosis.storage import Step, StorageFacts


class NoDirectorySync(SystemFiles):
    def sync(self, descriptor: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):  # noqa: PTH112
            raise OSError(22, "Invalid argument")
        super().sync(descriptor)


class NoFileSync(SystemFiles):
    def sync(self, descriptor: int) -> None:
        raise OSError(5, "Input/output error")


class NoReplace(SystemFiles):
    def rename(self, source: str, target: str, **_: int | None) -> None:
        raise FileExistsError(17, "File exists")


class CopiesInsteadOfRenaming(SystemFiles):
    def rename(self, source: str, target: str, **_: int | None) -> None:
        Path(target).write_bytes(Path(source).read_bytes())


class OldContent(SystemFiles):
    def rename(self, source: str, target: str, **_: int | None) -> None:
        Path(source).unlink()


class CreatesTwice(SystemFiles):
    def create(self, path: str, mode: int = 0o600, *, directory: int | None = None) -> int:
        return os.open(path, os.O_WRONLY | os.O_CREAT, mode)


class KeepsDeleted(SystemFiles):
    def unlink(self, path: str, *, directory: int | None = None) -> None:
        pass


class ReadOnly(SystemFiles):
    def create(self, path: str, mode: int = 0o600, *, directory: int | None = None) -> int:
        raise OSError(30, "Read-only file system")


@pytest.mark.parametrize(
    ("files", "step"),
    [
        (SystemFiles(), None),
        (ReadOnly(), Step.CREATE),
        (NoFileSync(), Step.SYNC),
        (NoReplace(), Step.REPLACE),
        (NoDirectorySync(), Step.SYNC_DIRECTORY),
        (OldContent(), Step.READ_BACK),
        (CopiesInsteadOfRenaming(), Step.LIST),
        (CreatesTwice(), Step.CREATE_ONCE),
        (KeepsDeleted(), Step.DELETE),
    ],
)
def test_the_step_that_does_not_work_is_found_and_nothing_stays(
    tmp_path: Path, files: SystemFiles, step: Step | None
) -> None:
    facts = try_storage(tmp_path, "storage", files)
    assert facts.failed is step
    assert bool(facts.reason) == (step is not None)
    assert list(tmp_path.iterdir()) == []


def test_a_storage_that_is_missing_is_not_created(tmp_path: Path) -> None:
    missing = tmp_path / "a" / "b"
    assert try_storage(missing, "storage") == StorageFacts(path=str(missing), purpose="storage", missing=True)
    assert not missing.parent.exists()


def test_the_free_space_is_that_of_the_nearest_directory(tmp_path: Path) -> None:
    assert (read_disk(tmp_path / "a" / "b", "storage").free or 0) > 0
