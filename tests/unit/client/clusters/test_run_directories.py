"""What runs without a cluster leave behind, and when it goes."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from emberkeep.base.cluster_identity import IDENTITY_FILE
from emberkeep.base.configuration.options.blobs import BLOB_HA_STORAGE
from emberkeep.base.configuration.options.directories import STORAGE_DIRECTORY
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.files.ownership import OwnedPlaceKind, Owner, adopt
from emberkeep.client.clusters.private_storage import PrivateStorage
from emberkeep.client.clusters.run_directories import (
    LOGS_KEPT,
    STORAGE_AWAITED,
    clear_dead_runs,
    keep_logs,
    make_run_directory,
    remove_run,
    savepoints_of,
)

pytestmark = pytest.mark.req("SAFE-7")

NOW = 1_800_000_000.0
MINE, ANOTHERS = "embedded-0123456789abcdef", "embedded-fedcba9876543210"
NO_STORAGE = PrivateStorage(Configuration())


class Run:
    """A run that has used everything, and whose command holds no lock any more."""

    def __init__(self, parent: Path) -> None:
        self.directory, lock = make_run_directory(parent)
        os.close(lock)
        for name in (
            "token",
            IDENTITY_FILE,
            "local.err",
            "jobmanager/logs/jobmanager.log",
            "jobmanager/jobs.sqlite",
            "taskmanagers/tm-1/logs/jobs/1/driver.log",
            "taskmanagers/tm-1/blobs/content",
            "storage/checkpoints/1/offsets",
        ):
            self.write(name)
        (self.directory / IDENTITY_FILE).write_text(f"{MINE}\n")

    def write(self, name: str) -> None:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)

    def files(self) -> set[str]:
        return files_below(self.directory)


def files_below(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


LOGS = {"local.err", "jobmanager/logs/jobmanager.log", "taskmanagers/tm-1/logs/jobs/1/driver.log"}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "state" / "runs"


@pytest.fixture
def run(runs: Path) -> Run:
    return Run(runs)


@pytest.fixture
def storage(tmp_path: Path, run: Run) -> Path:
    """The root of a shared storage that the run has used."""
    root = tmp_path / "storage"
    place = root / "runs" / run.directory.name
    place.mkdir(parents=True)
    adopt(place, Owner(cluster_id=MINE, kind=OwnedPlaceKind.STORAGE, created_at_ms=0))
    (place / "checkpoints").mkdir()
    (place / "checkpoints" / "offsets").touch()
    return root


def shared(root: Path) -> PrivateStorage:
    return PrivateStorage(Configuration().with_texts({STORAGE_DIRECTORY.key: str(root)}, "test"))


def test_of_a_run_whose_command_was_killed_the_logs_are_kept_for_a_day(runs: Path, run: Run) -> None:
    assert clear_dead_runs(runs, NO_STORAGE, NOW) == [run.directory]
    assert run.files() == LOGS | {"lock", "ended"}
    assert clear_dead_runs(runs, NO_STORAGE, NOW + LOGS_KEPT - 1) == [], "told of once"
    assert run.files() >= LOGS
    clear_dead_runs(runs, NO_STORAGE, NOW + LOGS_KEPT)
    assert list(runs.iterdir()) == []


def test_savepoints_stay_for_good(runs: Path, run: Run) -> None:
    run.write("storage/savepoints/savepoint-1/manifest")
    assert savepoints_of(run.directory) == run.directory / "storage" / "savepoints"
    for now in (NOW, NOW + LOGS_KEPT, NOW + 9 * LOGS_KEPT):
        clear_dead_runs(runs, NO_STORAGE, now)
    assert run.files() == {"storage/savepoints/savepoint-1/manifest"}


def test_logs_that_were_asked_for_are_not_removed_by_later_runs(runs: Path, run: Run) -> None:
    logs = keep_logs(run.directory)
    remove_run(run.directory, NO_STORAGE, NOW)
    for now in (NOW, NOW + LOGS_KEPT, NOW + 9 * LOGS_KEPT):
        clear_dead_runs(runs, NO_STORAGE, now)
    assert list(runs.iterdir()) == [logs]
    assert files_below(logs) == LOGS


def test_a_run_in_use_is_left_alone(runs: Path, run: Run) -> None:
    before = run.files()
    with (run.directory / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert clear_dead_runs(runs, NO_STORAGE, NOW + LOGS_KEPT) == []
    assert run.files() == before


def test_a_directory_whose_command_was_killed_before_it_had_the_lock_goes(runs: Path) -> None:
    (runs / "run-0").mkdir(parents=True)
    clear_dead_runs(runs, NO_STORAGE, NOW)
    assert list(runs.iterdir()) == []


def test_what_is_in_a_shared_storage_goes_with_it(runs: Path, run: Run, storage: Path) -> None:
    clear_dead_runs(runs, shared(storage), NOW)
    assert list(storage.iterdir()) == []
    assert run.files() == LOGS | {"lock", "ended"}
    clear_dead_runs(runs, shared(storage), NOW + LOGS_KEPT)
    assert not run.directory.exists()


@pytest.mark.parametrize("mount_point", [False, True])
@pytest.mark.parametrize("killed", [False, True])
def test_a_shared_storage_that_is_away_is_cleared_once_it_is_back(
    runs: Path, run: Run, storage: Path, tmp_path: Path, killed: bool, mount_point: bool
) -> None:
    storage.rename(tmp_path / "unmounted")
    if mount_point:
        storage.mkdir()
    if killed:
        clear_dead_runs(runs, shared(storage), NOW)
        clear_dead_runs(runs, shared(storage), NOW + LOGS_KEPT)
    else:
        remove_run(run.directory, shared(storage), NOW)
    assert run.files() == {"lock", "ended", IDENTITY_FILE}
    if mount_point:
        storage.rmdir()
    (tmp_path / "unmounted").rename(storage)
    clear_dead_runs(runs, shared(storage), NOW + LOGS_KEPT)
    assert list(storage.iterdir()) == []
    assert list(runs.iterdir()) == []


def test_a_shared_storage_that_never_comes_back_is_given_up(runs: Path, run: Run, storage: Path) -> None:
    storage.rename(storage.with_name("unmounted"))
    for now in (NOW, NOW + STORAGE_AWAITED):
        assert run.directory.exists()
        clear_dead_runs(runs, shared(storage), now)
    assert list(runs.iterdir()) == []


def test_blobs_in_a_place_of_their_own_go_as_well(runs: Path, run: Run, storage: Path) -> None:
    configuration = Configuration().with_texts({BLOB_HA_STORAGE.key: str(storage)}, "test")
    clear_dead_runs(runs, PrivateStorage(configuration), NOW)
    assert list(storage.iterdir()) == []


def test_what_another_owns_in_a_shared_storage_stays(runs: Path, run: Run, storage: Path) -> None:
    (run.directory / IDENTITY_FILE).write_text(f"{ANOTHERS}\n")
    before = files_below(storage)
    clear_dead_runs(runs, shared(storage), NOW)
    clear_dead_runs(runs, shared(storage), NOW + LOGS_KEPT)
    assert files_below(storage) == before
    assert list(runs.iterdir()) == []
