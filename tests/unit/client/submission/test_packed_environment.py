"""Packed environments that could not work are told before they are sent."""

from __future__ import annotations

import io
import random
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from emberkeep.base.errors import InvalidInput
from emberkeep.client.submission.job_files import JobFile
from emberkeep.client.submission.packed_environment import check_environment
from emberkeep.jobs.model import ArtefactRole

PYTHON = {"spark.pyspark.python": "./environment/bin/python"}


def pack(path: Path, members: dict[str, str | int]) -> list[JobFile]:
    """Links by where they lead to, files by their mode."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, member in members.items():
                info = zipfile.ZipInfo(name)
                mode = stat.S_IFLNK | 0o777 if isinstance(member, str) else stat.S_IFREG | member
                info.external_attr = mode << 16
                archive.writestr(info, member if isinstance(member, str) else "")
    else:
        with tarfile.open(path, "w:gz") as tar:
            for name, member in members.items():
                entry = tarfile.TarInfo(name)
                if isinstance(member, str):
                    entry.type, entry.linkname = tarfile.SYMTYPE, member
                else:
                    entry.mode = member
                tar.addfile(entry)
    return [JobFile(ArtefactRole.ARCHIVE, path, "environment")]


@pytest.mark.parametrize("name", ["env.tar.gz", "env.zip"])
class TestArchives:
    def test_that_bring_their_interpreter_pass(self, tmp_path: Path, name: str) -> None:
        members: dict[str, str | int] = {"./bin/python": "python3", "./bin/python3": "../real/python"}
        files = pack(tmp_path / name, {**members, "real/python": 0o755, "linked": "bin"})
        for path in ("./environment/bin/python", "environment/real/python", "./environment/linked/python"):
            assert check_environment({"spark.pyspark.python": path}, files) is None

    def test_with_a_link_to_the_packers_interpreter_are_noticed(self, tmp_path: Path, name: str) -> None:
        files = pack(tmp_path / name, {"bin/python": "python3", "bin/python3": "/opt/packer/bin/python3.11"})
        notice = check_environment(PYTHON, files)
        assert notice is not None
        assert f"{name}: bin/python is a link to /opt/packer/bin/python3.11, which is not in the archive" in notice
        assert "conda-pack" in notice

    def test_without_the_interpreter_are_refused(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(InvalidInput, match=f"there is no bin/python in {name}"):
            check_environment(PYTHON, pack(tmp_path / name, {"env/bin/python": 0o755}))
        with pytest.raises(InvalidInput, match=f"there is no bin/python3 in {name}, the target of its bin/python"):
            check_environment(PYTHON, pack(tmp_path / name, {"bin/python": "python3"}))
        with pytest.raises(InvalidInput, match="a link to itself"):
            check_environment(PYTHON, pack(tmp_path / name, {"bin/python": "python"}))

    def test_with_one_that_cannot_be_executed_are_refused(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(InvalidInput, match=f"bin/python in {name} may not be executed"):
            check_environment(PYTHON, pack(tmp_path / name, {"bin/python": 0o644}))

    def test_that_are_damaged_are_refused(self, tmp_path: Path, name: str) -> None:
        files = pack(tmp_path / name, {"bin/python": 0o755})
        files[0].path.write_bytes(b"no archive")
        with pytest.raises(InvalidInput, match=f"{name} cannot be read as an archive"):
            check_environment(PYTHON, files)


@pytest.mark.parametrize("compression", ["gz", "xz", "bz2"])
def test_an_archive_that_is_damaged_inside_is_refused(tmp_path: Path, compression: str) -> None:
    path = tmp_path / "env.tar.gz"  # what compressed it is found in its content
    with tarfile.open(path, f"w:{compression}") as tar:  # type: ignore[call-overload]  # known at run time only
        for number in range(3):
            entry = tarfile.TarInfo(f"bin/python{number}")
            entry.size = 10_000
            tar.addfile(entry, io.BytesIO(random.Random(number).randbytes(entry.size)))
    content = path.read_bytes()
    for place in range(30, 20_000, 499):
        path.write_bytes(content[:place] + b"\xff" * 99 + content[place + 99 :])
        with pytest.raises(InvalidInput, match=r"env\.tar\.gz"):
            check_environment(PYTHON, [JobFile(ArtefactRole.ARCHIVE, path, "environment")])


def test_other_interpreters_are_not_looked_for(tmp_path: Path) -> None:
    files = [JobFile(ArtefactRole.ARCHIVE, tmp_path / "absent.tar.gz", "environment")]
    for python in ("", "/usr/bin/python3", "python3", "./python3"):
        assert check_environment({"spark.pyspark.python": python}, files) is None


def test_an_interpreter_in_an_archive_that_is_not_there(tmp_path: Path) -> None:
    files = [
        JobFile(ArtefactRole.FILE, tmp_path / "environment"),
        JobFile(ArtefactRole.ARCHIVE, tmp_path / "other.zip"),
    ]
    notice = check_environment(PYTHON, files)
    assert notice is not None
    assert "no archive of the job is called environment" in notice
    assert check_environment({**PYTHON, "spark.archives": "hdfs:/env.tar.gz#environment"}, files) is None


def test_an_archive_that_is_not_unpacked(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"env\.tar\.bz2 is not unpacked.+archives end in \.zip"):
        check_environment(PYTHON, [JobFile(ArtefactRole.ARCHIVE, tmp_path / "env.tar.bz2", "environment")])
