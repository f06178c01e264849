"""Files on this node's own disks."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from emberkeep.base.errors import Fatal
from emberkeep.lifecycle.manifest import described
from emberkeep.spark.files.disk import check_on_disk, copy_on_disk, path_on_disk


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
        assert copy_on_disk(str(source), str(target), lasting=True) == described(str(target), content[:size])
        assert check_on_disk(str(target)) == described(str(target), content[:size])
        source.write_bytes(content[: size // 2])  # a shorter one replaces it
        size //= 2


def test_what_cannot_be_read_or_written_is_named(tmp_path: Path) -> None:
    source = tmp_path / "source"
    with pytest.raises(FileNotFoundError):
        copy_on_disk(str(source), str(tmp_path / "target"), lasting=True)
    assert not (tmp_path / "target").exists()
    source.write_bytes(bytes(10_000))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, before[1]))
    try:
        with pytest.raises(Fatal, match=f"{tmp_path}/target: File too large"):
            copy_on_disk(str(source), str(tmp_path / "target"), lasting=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    with pytest.raises(Fatal, match="/proc/no-such-place"):
        copy_on_disk(str(source), "/proc/no-such-place/target", lasting=True)


def test_a_source_that_cannot_be_read_is_named_and_not_the_target(tmp_path: Path) -> None:
    unreadable = "/proc/self/mem"  # it can be opened, and reading its first byte fails
    with pytest.raises(Fatal, match=f"{unreadable}: Input/output error"):
        copy_on_disk(unreadable, str(tmp_path / "target"), lasting=True)
