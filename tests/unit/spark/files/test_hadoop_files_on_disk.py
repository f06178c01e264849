"""Files on this node's disks, for which HadoopFiles does not call the JVM: this session has none."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from emberkeep.base.errors import Absent, Fatal
from emberkeep.lifecycle.manifest import described
from emberkeep.spark.files.hadoop import FoundFile, HadoopFiles

FILES = HadoopFiles(object())
TOO_LONG = "n" * 300  # a name that no file system accepts


def at(path: Path) -> str:
    return f"file:{path}"


def test_all_files_below_a_directory_are_listed(tmp_path: Path) -> None:
    for name in ("metadata", "state/0/1/2.delta", "state/0/1/.2.delta.crc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * len(name))
    (tmp_path / "empty").mkdir()
    (tmp_path / "lost").symlink_to(tmp_path / "nowhere")
    names = ["metadata", "state/0/1/.2.delta.crc", "state/0/1/2.delta"]
    found = sorted(FILES.below(at(tmp_path)), key=lambda file: file.name)
    assert found == [FoundFile(name, len(name)) for name in names]
    assert FILES.below(at(tmp_path / "nowhere")) == []


def test_numbered_names_are_those_of_a_log(tmp_path: Path) -> None:
    for name in ("10", "9", ".9.crc", "8.compact", "9.tmp"):
        (tmp_path / name).touch()
    assert FILES.numbered(at(tmp_path)) == [9, 10]
    assert FILES.numbered(at(tmp_path / "nowhere")) == []


def test_what_cannot_be_seen_is_not_absent(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert [FILES.exists(at(path)) for path in (file, tmp_path, file / "below", tmp_path / "other")] == [
        True,
        True,
        False,
        False,
    ]
    assert [FILES.is_directory(at(path)) for path in (file, tmp_path, tmp_path / "other")] == [False, True, False]
    with pytest.raises(Fatal, match="File name too long"):
        FILES.exists(at(tmp_path / TOO_LONG))


def test_a_file_is_replaced_in_a_directory_for_its_owner(tmp_path: Path) -> None:
    target = tmp_path / "new" / "file"
    for data in (b"longer", "ä".encode()):
        assert FILES.write(at(target), data) == described(at(target), data)
    assert (FILES.read_bytes(at(target)), FILES.read_text(at(target))) == ("ä".encode(), "ä")
    assert [path.name for path in target.parent.iterdir()] == ["file"]
    assert stat.S_IMODE(target.parent.stat().st_mode) == 0o700
    with pytest.raises(Absent):
        FILES.read_text(at(tmp_path / "other"))


def test_a_place_that_cannot_be_written_is_an_error_and_not_a_missing_file() -> None:
    with pytest.raises(Fatal, match="/proc/no-such-place"):
        FILES.write("file:/proc/no-such-place/file", b"")


def test_deletion_takes_a_directory_with_its_content_and_only_the_link_to_another(tmp_path: Path) -> None:
    kept, deleted = tmp_path / "kept", tmp_path / "deleted"
    for directory in (kept, deleted):
        directory.mkdir()
        (directory / "file").touch()
    (deleted / "link").symlink_to(kept)
    link = tmp_path / "link"
    link.symlink_to(kept)
    for path in (deleted, link, tmp_path / "nowhere"):
        FILES.delete(at(path))
    assert sorted(tmp_path.rglob("*")) == [kept, kept / "file"]
