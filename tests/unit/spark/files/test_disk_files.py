"""Files on this node's own disks."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import stat
from pathlib import Path

import pytest

from emberkeep.base.errors import Fatal
from emberkeep.lifecycle.manifest import described
from emberkeep.spark.files import disk
from emberkeep.spark.files.disk import (
    check_on_disk,
    copy_on_disk,
    make_private_directory,
    path_on_disk,
    paths_to_sync,
    sync_each,
    sync_file_system,
)


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("file:/a/b c", "/a/b c"),
        ("file:///a/b%20c", "/a/b%20c"),
        ("file://host/a", None),
        ("hdfs://name/a", None),
        ("webhdfs://localhost/a", None),
        ("a/b", None),
    ],
)
def test_what_is_on_the_disk(location: str, path: str | None) -> None:
    assert path_on_disk(location, paths_are_local=True) == path


def test_a_path_belongs_to_the_default_file_system() -> None:
    assert path_on_disk("/a", paths_are_local=True) == "/a"
    assert path_on_disk("/a", paths_are_local=False) is None


@pytest.mark.parametrize("size", [0, 1, 3 * 1024**2 + 1])
def test_a_copy_is_what_was_read(tmp_path: Path, size: int) -> None:
    content = bytes(range(256)) * (size // 256 + 1)
    source, target = tmp_path / "source", tmp_path / "new" / "target"
    source.write_bytes(content[:size])
    for _ in range(2):
        assert copy_on_disk(str(source), str(target)) == described(str(target), content[:size])
        assert check_on_disk(str(target)) == described(str(target), content[:size])
        source.write_bytes(content[: size // 2])  # a shorter one replaces it
        size //= 2


def test_what_cannot_be_read_or_written_is_named(tmp_path: Path) -> None:
    source = tmp_path / "source"
    with pytest.raises(FileNotFoundError):
        copy_on_disk(str(source), str(tmp_path / "target"))
    assert not (tmp_path / "target").exists()
    source.write_bytes(bytes(10_000))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, before[1]))
    try:
        with pytest.raises(Fatal, match=f"{tmp_path}/target: File too large"):
            copy_on_disk(str(source), str(tmp_path / "target"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    with pytest.raises(Fatal, match="/proc/no-such-place"):
        copy_on_disk(str(source), "/proc/no-such-place/target")


def test_a_source_that_cannot_be_read_is_named_and_not_the_target(tmp_path: Path) -> None:
    unreadable = "/proc/self/mem"  # it can be opened, and reading its first byte fails
    with pytest.raises(Fatal, match=f"{unreadable}: Input/output error"):
        copy_on_disk(unreadable, str(tmp_path / "target"))


def test_a_directory_belongs_to_its_owner_alone(tmp_path: Path) -> None:
    directory = tmp_path / "parent" / "private"
    for _ in range(2):
        make_private_directory(str(directory))
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FileExistsError):
        make_private_directory(str(tmp_path / "file"))


def test_small_files_are_durable_after_the_file_system_is_synced(tmp_path: Path) -> None:
    assert sync_file_system(str(tmp_path))
    with pytest.raises(FileNotFoundError):
        sync_file_system(str(tmp_path / "missing"))


def test_a_failed_sync_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Library:
        def syncfs(self, _: int) -> int:
            ctypes.set_errno(errno.EIO)
            return -1

    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: Library())
    with pytest.raises(OSError, match="Input/output error") as caught:
        sync_file_system(str(tmp_path))
    assert caught.value.filename == str(tmp_path)


@pytest.mark.parametrize(
    ("system", "release", "reports"),
    [
        ("Linux", "5.8.0-1-amd64", True),
        ("Linux", "6.1.0", True),
        ("Linux", "5.7.19", False),
        ("Linux", "4.18.0-553.el8", False),
        ("Darwin", "23.1.0", False),
        ("Linux", "unknown", False),
    ],
)
def test_which_kernels_report_errors_of_earlier_writes(system: str, release: str, reports: bool) -> None:
    assert disk._kernel_reports_errors(system, release) is reports


def test_where_the_kernel_reports_no_errors_every_file_and_directory_is_synced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(disk, "_REPORTS_ERRORS", False)
    assert not sync_file_system(str(tmp_path))
    file = tmp_path / "inner" / "file"
    file.parent.mkdir()
    file.write_bytes(b"1")
    synced: list[str] = []
    sync = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    sync_each(paths_to_sync(str(tmp_path), [str(file)]))
    assert synced == [str(file), str(file.parent), str(tmp_path), str(tmp_path.parent)]


def test_a_large_copy_is_synced_before_it_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_size))
    for size in (10, 1 << 20):
        (tmp_path / "source").write_bytes(bytes(size))
        copy_on_disk(str(tmp_path / "source"), str(tmp_path / "target"))
    assert synced == [1 << 20]
