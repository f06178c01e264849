"""A job's files in the directory of a task: under their names, safe from the task, held as long as it lives."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from emberkeep.base.errors import Fatal
from emberkeep.base.ids import JobId
from emberkeep.jobs.model import Artefact, ArtefactRole
from emberkeep.taskmanager.libraries.archives import UnpackedArchives
from emberkeep.taskmanager.libraries.cache import LibraryCache
from tests.unit.taskmanager.blobs.directory_blobs import DirectoryBlobs
from tests.unit.taskmanager.libraries.archives import regular, special, tar, zipped

pytestmark = [pytest.mark.anyio, pytest.mark.req("BLOB-13")]

JOB = JobId("a" * 32)
OTHER = JobId("b" * 32)


class Node:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.blobs = DirectoryBlobs(directory / "blobs")
        self.archives = UnpackedArchives(directory / "unpacked")
        self.libraries = LibraryCache(self.blobs, self.archives, retention=3600.0)

    async def bind(self, holder: str, *artefacts: Artefact, job: JobId = JOB, python: str = "") -> dict[str, Path]:
        bound = await self.libraries.bind(job, holder, artefacts, self.directory / holder, python=python)
        assert [file.role for file in bound] == [artefact.role for artefact in artefacts]
        assert {Path(file.path).parent for file in bound} == {self.directory / holder}
        return {file.name: Path(file.path) for file in bound}


@pytest.fixture
async def node(tmp_path: Path) -> Node:
    node = Node(tmp_path)
    await node.libraries.start()
    return node


async def test_every_kind_lies_under_its_name(node: Node) -> None:
    files = await node.bind(
        "task",
        node.blobs.add(b"print()", "app.py", ArtefactRole.SCRIPT),
        node.blobs.add(b"A = 1", "module.py", ArtefactRole.PY_FILE),
        node.blobs.add(zipped(("package/__init__.py", b"B = 2", 0o644)), "package.zip", ArtefactRole.PY_FILE),
        node.blobs.add(zipped(("wheeled/__init__.py", b"C = 3", 0o644)), "w-1-py3-none-any.whl", ArtefactRole.PY_FILE),
        node.blobs.add(b"looked up", "lookup.txt", ArtefactRole.FILE),
        node.blobs.add(b"a jar", "udf.jar", ArtefactRole.JAR),
        node.blobs.add(tar(regular("inside.txt", b"inside")), "data.tar.gz", ArtefactRole.ARCHIVE, "data"),
        node.blobs.add(zipped(("zipped.txt", b"zipped", 0o644)), "more.zip", ArtefactRole.ARCHIVE),
        node.blobs.add(b"not unpacked", "other.bin", ArtefactRole.ARCHIVE),
    )
    assert files["module.py"].read_bytes() == b"A = 1"
    assert (files["w-1-py3-none-any.whl"] / "wheeled/__init__.py").read_bytes() == b"C = 3"
    assert (files["data"] / "inside.txt").read_bytes() == b"inside"
    assert (files["more.zip"] / "zipped.txt").read_bytes() == b"zipped"
    assert files["other.bin"].read_bytes() == b"not unpacked"
    links = {name for name, path in files.items() if path.is_symlink()}
    assert links == {"package.zip", "w-1-py3-none-any.whl", "udf.jar", "data", "more.zip"}
    assert os.access(files["lookup.txt"], os.X_OK), "as Spark makes files"
    assert not any(path.stat().st_mode & 0o222 for name, path in files.items() if name in links), "they are shared"
    assert node.blobs.held_by("task") == 9


@pytest.mark.parametrize("name", ["a\0b.txt", "\ud800.txt", "../a.txt", ".."])
async def test_a_name_that_no_file_can_have_is_refused(node: Node, name: str) -> None:
    """It may come from the job's own code, and must not end the task manager."""
    with pytest.raises(Fatal, match="is not the name of a file"):
        await node.bind("task", node.blobs.add(b"looked up", name, ArtefactRole.FILE))


async def test_what_a_task_changes_it_changes_for_itself_only(node: Node) -> None:
    artefact = node.blobs.add(b"as it was", "notes.txt", ArtefactRole.FILE)
    first = await node.bind("first", artefact)
    first["notes.txt"].write_bytes(b"changed")
    second = await node.bind("second", artefact)
    assert second["notes.txt"].read_bytes() == b"as it was"
    assert (await node.bind("first", artefact))["notes.txt"].read_bytes() == b"as it was", "a second try starts anew"


async def test_an_archive_is_unpacked_once_for_all_jobs(node: Node) -> None:
    artefact = node.blobs.add(tar(regular("inside.txt", b"inside")), "data.tgz", ArtefactRole.ARCHIVE)
    one = await node.bind("one", artefact)
    two = await node.bind("two", artefact, job=OTHER)
    assert one["data.tgz"].readlink() == two["data.tgz"].readlink()
    node.libraries.release(JOB, "one")
    assert node.archives.users(artefact.sha256) == 1
    assert [await node.archives.collect() for _ in range(3)] == [[], [], []]
    node.libraries.release(OTHER, "two")
    assert [await node.archives.collect() for _ in range(3)] == [[], [artefact.sha256], []]


async def test_a_release_ends_everything_that_one_task_held(node: Node) -> None:
    artefacts = [node.blobs.add(bytes([n]), f"{n}.txt", ArtefactRole.FILE) for n in range(5)]
    await node.bind("one", *artefacts)
    await node.bind("two", *artefacts)
    node.libraries.release(JOB, "one")
    node.libraries.release(JOB, "one")
    assert (node.blobs.held_by("one"), node.blobs.held_by("two")) == (0, 5)


async def test_nothing_is_held_after_a_failure(node: Node) -> None:
    there = node.blobs.add(b"there", "there.txt", ArtefactRole.FILE)
    damaged = node.blobs.add(b"no archive", "data.zip", ArtefactRole.ARCHIVE)
    absent = Artefact(role=ArtefactRole.JAR, name="absent.jar", sha256="0" * 64, size=1)
    with pytest.raises(Fatal, match="cannot fetch a file of the job: nobody has BLOB"):
        await node.bind("task", there, absent)
    with pytest.raises(Fatal, match=r"cannot unpack data\.zip"):
        await node.bind("task", there, damaged)
    node.directory.joinpath("task").touch()
    with pytest.raises(Fatal, match="cannot put the job's files into"):
        await node.bind("task", there)
    binding = asyncio.create_task(node.bind("cancelled", there))
    await asyncio.sleep(0)
    binding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await binding
    assert node.blobs.held_by("task") == node.blobs.held_by("cancelled") == 0


async def test_one_content_may_come_in_two_roles_but_not_as_file_and_directory(node: Node) -> None:
    jar = node.blobs.add(zipped(("a", b"a", 0o644)), "both.jar", ArtefactRole.JAR)
    file = node.blobs.add(zipped(("a", b"a", 0o644)), "both.jar", ArtefactRole.FILE)
    files = await node.bind("task", jar, file)
    assert not files["both.jar"].is_symlink()
    archive = node.blobs.add(zipped(("a", b"a", 0o644)), "both.jar", ArtefactRole.ARCHIVE)
    with pytest.raises(Fatal, match=r"two artefacts of the job have the name both\.jar"):
        await node.bind("task", jar, archive)


async def test_a_packed_interpreter_is_tried_out_where_the_job_uses_it(node: Node) -> None:
    good = node.blobs.add(tar(special("bin/python", b"2", sys.executable)), "good.tgz", ArtefactRole.ARCHIVE, "good")
    bad = node.blobs.add(tar(special("bin/python", b"2", "/not/here/python")), "bad.tgz", ArtefactRole.ARCHIVE, "bad")
    await node.bind("task", good, bad, python="./good/bin/python")
    await node.bind("task", good, bad, python="/usr/bin/python3")
    await node.bind("task", good, bad)
    with pytest.raises(Fatal, match=r"bin/python in bad\.tgz is a link to /not/here/python, which is not on this node"):
        await node.bind("task", good, bad, python="./bad/bin/python")
    assert node.blobs.held_by("task") == 0
    with pytest.raises(Fatal, match=r"good\.tgz has no bin/python3"):
        await node.bind("task", good, python="good/bin/python3")
