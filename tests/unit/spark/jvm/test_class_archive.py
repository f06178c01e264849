"""Which class archives are used: whole ones, of this Java and this Spark, that nobody else can write.

And what their builds leave: an archive, or nothing.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from emberkeep.base.processes.process_identity import read_stat
from emberkeep.spark.errors import ClassArchiveBusy, ClassArchiveFailed
from emberkeep.spark.java import JavaRuntime
from emberkeep.spark.jvm import class_archive
from emberkeep.spark.jvm.class_archive import (
    _archive_path,
    _building,
    _publish,
    build_class_archive,
    default_directory,
    discard_unfinished,
    find_class_archive,
    is_being_built,
    remove_place,
)


@pytest.fixture
def spark(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    (tmp_path / "spark" / "jars" / "core.jar").write_text("classes")
    return {"SPARK_HOME": str(tmp_path / "spark")}


@pytest.fixture
def java(tmp_path: Path) -> JavaRuntime:
    (tmp_path / "java").write_text("a java")
    return JavaRuntime(None, tmp_path / "java", 17)


@pytest.fixture
def archive(tmp_path: Path, java: JavaRuntime, spark: dict[str, str]) -> Path:
    (tmp_path / "unfinished").write_bytes(b"x" * 1000)
    path = _archive_path(java, tmp_path, spark)
    _publish(tmp_path / "unfinished", path)
    return path


def test_whole_archive_is_found(tmp_path: Path, java: JavaRuntime, spark: dict[str, str], archive: Path) -> None:
    assert find_class_archive(java, tmp_path, spark) == archive


def test_truncated_archive_is_not_used(tmp_path: Path, java: JavaRuntime, spark: dict[str, str], archive: Path) -> None:
    archive.write_bytes(b"x" * 999)
    assert find_class_archive(java, tmp_path, spark) is None


def test_archive_that_others_can_write_is_not_used(
    tmp_path: Path, java: JavaRuntime, spark: dict[str, str], archive: Path
) -> None:
    archive.chmod(0o666)
    assert find_class_archive(java, tmp_path, spark) is None


def test_archive_of_other_jars_is_not_used(
    tmp_path: Path, java: JavaRuntime, spark: dict[str, str], archive: Path
) -> None:
    (Path(spark["SPARK_HOME"]) / "jars" / "core.jar").write_text("other classes")
    assert archive.exists()
    assert find_class_archive(java, tmp_path, spark) is None


def test_damaged_record_means_no_archive(
    tmp_path: Path, java: JavaRuntime, spark: dict[str, str], archive: Path
) -> None:
    archive.with_suffix(".record").write_text("1000")
    assert find_class_archive(java, tmp_path, spark) is None


def test_archives_live_in_the_users_cache() -> None:
    assert default_directory({"XDG_CACHE_HOME": "/cache"}) == Path("/cache/emberkeep/class-archives")


def test_a_user_without_a_home_has_a_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_entry(_: int) -> pwd.struct_passwd:
        raise KeyError("uid not found")

    monkeypatch.setattr(pwd, "getpwuid", no_entry)
    assert default_directory({}) == Path("/.cache/emberkeep/class-archives")


Trained = Callable[[Callable[[Path], object]], None]


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> Trained:
    """Replaces the training run by a call with the path at which it writes the archive."""

    def replace(write: Callable[[Path], object]) -> None:
        monkeypatch.setattr(class_archive, "_train", lambda path, *_: write(path))

    return replace


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_a_build_leaves_the_archive_and_its_record_alone(
    tmp_path: Path, java: JavaRuntime, spark: dict[str, str], training: Trained
) -> None:
    directory = tmp_path / "archives"
    training(lambda path: path.write_bytes(b"classes"))
    path = build_class_archive(java, directory, spark)
    assert path == find_class_archive(java, directory, spark)
    assert names(directory) == {path.name, path.with_suffix(".record").name, ".lock"}
    assert directory.stat().st_mode & 0o777 == 0o700


def test_a_failed_build_leaves_nothing(
    tmp_path: Path, java: JavaRuntime, spark: dict[str, str], training: Trained
) -> None:
    def fail(path: Path) -> None:
        path.write_bytes(b"half")
        raise ClassArchiveFailed("no luck")

    training(fail)
    with pytest.raises(ClassArchiveFailed, match="no luck"):
        build_class_archive(java, tmp_path / "archives", spark)
    assert names(tmp_path / "archives") == {".lock"}


def test_what_killed_builds_left_goes_with_the_next_build(
    tmp_path: Path, java: JavaRuntime, spark: dict[str, str], archive: Path, training: Trained
) -> None:
    for number in range(2):
        (tmp_path / f".unfinished-{number}").mkdir()
        (tmp_path / f".unfinished-{number}" / "half").write_bytes(b"half")
    archive.unlink()
    training(lambda path: path.write_bytes(b"classes"))
    assert build_class_archive(java, tmp_path, spark) == archive
    assert not [name for name in names(tmp_path) if name.startswith(".unfinished")]


def test_what_one_killed_build_left_is_discarded_and_nothing_else(tmp_path: Path) -> None:
    for name in (".unfinished-12-a", ".unfinished-123-b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "half").write_bytes(b"half")
    discard_unfinished(tmp_path, 12)
    assert names(tmp_path) == {".unfinished-123-b"}


def test_an_archive_is_being_built_while_a_process_has_the_lock(tmp_path: Path) -> None:
    assert not is_being_built(tmp_path)
    with _building(tmp_path, waits=True):
        assert is_being_built(tmp_path)
    assert not is_being_built(tmp_path)


def test_a_build_that_must_not_wait_for_another_says_so(
    tmp_path: Path, java: JavaRuntime, spark: dict[str, str]
) -> None:
    with _building(tmp_path, waits=True), pytest.raises(ClassArchiveBusy):
        build_class_archive(java, tmp_path, spark, waits=False)


def test_nothing_is_being_built_where_there_is_no_directory(tmp_path: Path) -> None:
    assert not is_being_built(tmp_path / "none")
    discard_unfinished(tmp_path / "none", 1)
    assert names(tmp_path) == set()


def test_a_full_disk_prevents_a_build_before_it_begins(
    tmp_path: Path, java: JavaRuntime, spark: dict[str, str], training: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    training(lambda _: pytest.fail("it began"))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=511 * 1024**2))
    with pytest.raises(ClassArchiveFailed, match="needs 512 MiB of disk space: 511 MiB are free") as failed:
        build_class_archive(java, tmp_path, spark)
    assert failed.value.hint is not None
    assert "XDG_CACHE_HOME" in failed.value.hint


def test_a_cache_that_cannot_be_written_prevents_a_build(
    tmp_path: Path, java: JavaRuntime, spark: dict[str, str], training: Trained
) -> None:
    training(lambda _: pytest.fail("it began"))
    (tmp_path / "file").touch()
    with pytest.raises(ClassArchiveFailed, match=r"cannot write the class archive to .*/file/archives"):
        build_class_archive(java, tmp_path / "file" / "archives", spark)


def test_a_training_run_that_takes_too_long_is_killed_with_all_that_it_started(
    tmp_path: Path, java: JavaRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\nsleep 3600 & echo $! > {tmp_path}/pid\nwait\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))

    def patience(process: object, timeout: float) -> None:
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().endswith("\n"):
            pass
        raise subprocess.TimeoutExpired("python", timeout)

    monkeypatch.setattr(subprocess.Popen, "communicate", patience)
    with pytest.raises(ClassArchiveFailed, match="took longer than 600 s"):
        class_archive._train(tmp_path / "archive", java, {}, 600.0)
    child = int((tmp_path / "pid").read_text())
    until_gone(child)


def until_gone(pid: int) -> None:
    """Wait for the end of a killed process, which is not our child."""
    while (stat := read_stat(pid)) is not None and not stat.is_dead:
        time.sleep(0.01)
    with contextlib.suppress(ChildProcessError):  # where this process adopts orphans, it is ours to reap after all
        os.waitpid(pid, 0)


def test_the_directory_of_a_build_is_removed_although_a_killed_jvm_writes_its_last(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    # Many files are there when the removal begins, so that some come while it goes on.
    writes = "import sys\nfor n in range(1500):\n    open(f'{sys.argv[1]}/{n}', 'w').close()\n"
    writes += "    if n == 1000:\n        print('half', flush=True)\n"
    with subprocess.Popen(
        [sys.executable, "-I", "-c", writes, str(place)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline()
        remove_place(place)
    assert not place.exists()
