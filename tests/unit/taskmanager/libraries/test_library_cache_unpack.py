"""Unpacking archives of others: what is in them arrives, and nothing of them leaves its directory."""

from __future__ import annotations

import os
import stat
import tarfile
from pathlib import Path

import pytest

from emberkeep.base.errors import Fatal
from emberkeep.base.files.hostile import remove_tree
from emberkeep.jobs.archives import is_unpacked
from emberkeep.taskmanager.libraries.unpacking import UnpackLimits, unpack
from tests.unit.taskmanager.libraries.archives import regular, special, tar, zipped

SMALL = UnpackLimits(members=10, size=10_000_000, ratio=10, free=20_000)


def unpacked(directory: Path, content: bytes, name: str = "a.tar.gz", limits: UnpackLimits = SMALL) -> Path:
    archive = directory / "archive"
    archive.write_bytes(content)
    target = directory / "content"
    unpack(archive, name, target, limits, lambda: False)
    return target


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.mark.parametrize(("suffix", "how"), [("tar", "w"), ("tar.gz", "w:gz"), ("tgz", "w:gz")])
def test_tar_files_keep_content_links_and_who_may_execute(tmp_path: Path, suffix: str, how: str) -> None:
    content = tar(
        special("./", tarfile.DIRTYPE),
        regular("./bin/tool", b"#!/bin/sh\n", 0o755),
        regular("./plain.txt", b"plain", 0o666),
        special("./bin/same", tarfile.SYMTYPE, "tool"),
        special("./up.txt", tarfile.SYMTYPE, "bin/../plain.txt"),
        special("./again.txt", tarfile.LNKTYPE, "./plain.txt"),
        mode=how,
    )
    root = unpacked(tmp_path, content, f"A.{suffix.upper()}")
    assert (root / "bin/tool").read_bytes() == b"#!/bin/sh\n"
    assert (mode(root / "bin/tool"), mode(root / "plain.txt")) == (0o555, 0o444)
    assert mode(root) == mode(root / "bin") == 0o555
    assert (root / "bin/same").readlink() == Path("tool")
    assert (root / "up.txt").read_bytes() == (root / "again.txt").read_bytes() == b"plain"
    remove_tree(root)
    assert not root.exists()


@pytest.mark.parametrize("suffix", ["zip", "jar", "whl"])
def test_zip_files_keep_content_links_and_who_may_execute(tmp_path: Path, suffix: str) -> None:
    content = zipped(
        ("bin/", b"", stat.S_IFDIR | 0o755),
        ("bin/tool", b"#!/bin/sh\n", 0o755),
        ("plain.txt", b"plain", 0o600),
        ("bin/same", b"tool", stat.S_IFLNK | 0o777),
    )
    root = unpacked(tmp_path, content, f"a.{suffix}")
    assert (root / "bin/same").read_bytes() == b"#!/bin/sh\n"
    assert (mode(root / "bin/tool"), mode(root / "plain.txt")) == (0o555, 0o444)


def test_what_spark_does_not_unpack_is_left_as_it_is() -> None:
    assert [name for name in ("a.ZIP", "a.jar", "a.tar", "a.tar.gz", "a.tgz") if not is_unpacked(name)] == []
    assert [name for name in ("a.txt", "a.gz", "a.tar.bz2", "a.whl", "zip") if is_unpacked(name)] == []


ESCAPES = {
    "name goes up": tar(regular("../evil", b"x")),
    "name goes up from below": tar(regular("a/../../evil", b"x")),
    "link out, then a file through it": tar(special("d", tarfile.SYMTYPE, ".."), regular("d/evil", b"x")),
    "absolute link": tar(special("passwd", tarfile.SYMTYPE, "/etc/passwd")),
    "link that goes up": tar(special("a/b", tarfile.SYMTYPE, "../../evil")),
    "link that goes up through a link": tar(
        regular("y"), special("p/q/d", tarfile.SYMTYPE, "../.."), special("p/q/x", tarfile.SYMTYPE, "d/../y")
    ),
    "hard link to what is not there": tar(special("a", tarfile.LNKTYPE, "/etc/passwd")),
    "hard link that goes up": tar(special("a", tarfile.LNKTYPE, "../archive")),
    "device": tar(special("null", tarfile.CHRTYPE)),
    "pipe": tar(special("pipe", tarfile.FIFOTYPE)),
    "file in the place of the root": tar(regular("./", b"x")),
    "directory in the place of a file": tar(regular("a", b"x"), regular("a/b", b"x")),
    "file in the place of a directory": tar(regular("a/b", b"x"), regular("a", b"x")),
}


@pytest.mark.parametrize("content", ESCAPES.values(), ids=ESCAPES.keys())
def test_nothing_is_written_or_linked_outside(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(Fatal):
        unpacked(tmp_path, content)
    assert {path.name for path in tmp_path.iterdir()} == {"archive", "content"}


def test_names_that_go_up_and_links_out_in_zip_files(tmp_path: Path) -> None:
    with pytest.raises(Fatal, match=r"'\.\./evil', which is outside"):
        unpacked(tmp_path, zipped(("../evil", b"x", 0o644)), "a.zip")
    remove_tree(tmp_path / "content")
    with pytest.raises(Fatal, match="a link to '/etc/passwd', which is outside"):
        unpacked(tmp_path, zipped(("link", b"/etc/passwd", stat.S_IFLNK | 0o777)), "a.zip")


def test_absolute_names_count_from_the_root_of_the_archive(tmp_path: Path) -> None:
    root = unpacked(tmp_path, tar(regular("/etc/name", b"x")))
    assert (root / "etc/name").read_bytes() == b"x"


def test_the_later_of_two_members_of_one_name_counts(tmp_path: Path) -> None:
    content = tar(regular("a", b"first"), special("b", tarfile.SYMTYPE, "a"), regular("a", b"second"), regular("b"))
    root = unpacked(tmp_path, content)
    assert (root / "a").read_bytes() == b"second"
    assert not (root / "b").is_symlink()


def test_only_an_interpreter_may_lie_outside(tmp_path: Path) -> None:
    content = tar(
        special("bin/python3", tarfile.SYMTYPE, "/usr/bin/python3"), special("bin/python", tarfile.SYMTYPE, "python3")
    )
    root = unpacked(tmp_path, content)
    assert (root / "bin/python3").readlink() == Path("/usr/bin/python3")


def test_archives_that_become_too_large_are_refused_before_they_fill_the_disk(tmp_path: Path) -> None:
    bomb = tar(regular("zeros", bytes(1_000_000)))
    with pytest.raises(Fatal, match=r"unpacks to more than \d+ bytes"):
        unpacked(tmp_path, bomb)
    assert not (tmp_path / "content/zeros").exists()
    remove_tree(tmp_path / "content")
    with pytest.raises(Fatal, match=r"unpacks to more than \d+ bytes"):
        unpacked(tmp_path, zipped(("zeros", bytes(1_000_000), 0o644)), "a.zip")
    remove_tree(tmp_path / "content")
    with pytest.raises(Fatal, match="more than 10 members"):
        unpacked(tmp_path, tar(*(regular(f"{number}") for number in range(11))))


@pytest.mark.parametrize("name", ["a.tar.gz", "a.tar", "a.zip"])
@pytest.mark.parametrize("content", [b"", b"no archive at all", os.urandom(2000)])
def test_what_is_no_archive_is_said_to_be_none(tmp_path: Path, name: str, content: bytes) -> None:
    with pytest.raises(Fatal, match=f"cannot unpack {name}: .+pack it again"):
        unpacked(tmp_path, content, name)


def test_archives_that_are_cut_off_are_refused(tmp_path: Path) -> None:
    members = [regular(name, os.urandom(5000)) for name in "ab"]
    whole = {"a.tar.gz": tar(*members), "a.tar": tar(*members, mode="w"), "a.zip": zipped(("a", members[0][1], 0o644))}
    for name, content in whole.items():
        for length in {*range(1, min(len(content) - 1, 11_000), 611), min(5632, len(content) - 2)}:
            with pytest.raises(Fatal):
                unpacked(tmp_path, content[:length], name)
            remove_tree(tmp_path / "content")


def test_it_ends_early_when_it_is_told_to(tmp_path: Path) -> None:
    (tmp_path / "archive").write_bytes(tar(regular("a")))
    with pytest.raises(Fatal, match="the task manager ends"):
        unpack(tmp_path / "archive", "a.tgz", tmp_path / "content", SMALL, lambda: True)
