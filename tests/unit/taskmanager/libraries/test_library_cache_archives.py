"""Unpacked once per node, kept as long as somebody uses it, whole or not there."""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path

import pytest

from emberkeep.base.errors import Fatal
from emberkeep.base.files.durable import write_record
from emberkeep.taskmanager.libraries.archives import (
    RECORD_FILE,
    RECORD_KIND,
    RECORD_VERSION,
    UnpackedArchives,
)
from tests.unit.taskmanager.libraries.archives import regular, tar

pytestmark = pytest.mark.anyio

CONTENT = tar(regular("inside.txt", b"inside"))
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "archive"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
async def archives(tmp_path: Path) -> UnpackedArchives:
    return await started(tmp_path)


async def started(tmp_path: Path) -> UnpackedArchives:
    archives = UnpackedArchives(tmp_path / "unpacked")
    await archives.start()
    return archives


def entries(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "unpacked").iterdir())


def record_of(tmp_path: Path) -> os.stat_result:
    return (tmp_path / "unpacked" / SHA256 / RECORD_FILE).stat()


@pytest.mark.req("BLOB-8")
async def test_many_at_once_unpack_once(archives: UnpackedArchives, archive: Path, tmp_path: Path) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(archives.use(SHA256, archive, "a.tgz", f"task-{n}")) for n in range(8)]
    assert {task.result() for task in tasks} == {tmp_path / "unpacked" / SHA256 / "content"}
    assert (tasks[0].result() / "inside.txt").read_bytes() == b"inside"
    before = record_of(tmp_path)
    await archives.use(SHA256, archive, "a.tgz", "later")
    assert (record_of(tmp_path).st_ino, record_of(tmp_path).st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert archives.users(SHA256) == 9


async def test_a_user_that_gives_up_does_not_stop_it_for_the_others(archives: UnpackedArchives, archive: Path) -> None:
    first = asyncio.create_task(archives.use(SHA256, archive, "a.tgz", "first"))
    second = asyncio.create_task(archives.use(SHA256, archive, "a.tgz", "second"))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second / "inside.txt").exists()
    assert archives.users(SHA256) == 1


@pytest.mark.req("BLOB-10")
async def test_it_lives_for_one_to_two_intervals_after_its_last_use(
    archives: UnpackedArchives, archive: Path, tmp_path: Path
) -> None:
    for holder in ("one", "two"):
        await archives.use(SHA256, archive, "a.tgz", holder)
    archives.release("one")
    for _ in range(3):
        assert await archives.collect() == []
    archives.release("two")
    archives.release("two")
    archives.release("never heard of")
    assert await archives.collect() == []
    await archives.use(SHA256, archive, "a.tgz", "three")
    for _ in range(3):
        assert await archives.collect() == []
    archives.release("three")
    assert await archives.collect() == []
    assert await archives.collect() == [SHA256]
    assert entries(tmp_path) == []
    assert (await archives.use(SHA256, archive, "a.tgz", "four") / "inside.txt").exists()


@pytest.mark.req("BLOB-8")
async def test_a_failure_reaches_all_who_wait_and_leaves_nothing(
    archives: UnpackedArchives, archive: Path, tmp_path: Path
) -> None:
    archive.write_bytes(b"no archive")
    results = await asyncio.gather(
        *(archives.use(SHA256, archive, "a.tgz", f"task-{n}") for n in range(3)), return_exceptions=True
    )
    assert [type(result) for result in results] == [Fatal] * 3
    assert entries(tmp_path) == []
    assert archives.users(SHA256) == 0
    archive.write_bytes(CONTENT)
    assert (await archives.use(SHA256, archive, "a.tgz", "again") / "inside.txt").exists()


@pytest.mark.req("BLOB-3")
async def test_after_a_crash_only_what_is_whole_is_left(
    archives: UnpackedArchives, archive: Path, tmp_path: Path
) -> None:
    await archives.use(SHA256, archive, "a.tgz", "lost in the crash")
    before = record_of(tmp_path).st_ino
    unpacked = tmp_path / "unpacked"
    for name in (".incoming-0123", ".removed-4567", "0" * 64, "1" * 64, "2" * 64):
        (unpacked / name / "content").mkdir(parents=True)
        (unpacked / name / "content" / "file").touch()
        (unpacked / name / "content").chmod(0o555)
    (unpacked / ("1" * 64) / RECORD_FILE).write_bytes(b"torn")
    # Written before the machine went down: its files may not have reached the disk.
    write_record(unpacked / ("2" * 64) / RECORD_FILE, RECORD_KIND, RECORD_VERSION, b"another boot")
    again = await started(tmp_path)
    assert entries(tmp_path) == [SHA256]
    await again.use(SHA256, archive, "a.tgz", "new")
    assert record_of(tmp_path).st_ino == before
    again.release("new")
    assert [await again.collect(), await again.collect()] == [[], [SHA256]]


async def test_what_an_earlier_life_unpacked_and_nobody_uses_any_more_goes(
    archives: UnpackedArchives, archive: Path, tmp_path: Path
) -> None:
    await archives.use(SHA256, archive, "a.tgz", "lost in the crash")
    again = await started(tmp_path)
    assert [await again.collect(), await again.collect()] == [[], [SHA256]]
    assert entries(tmp_path) == []


async def test_what_somebody_has_deleted_by_hand_is_unpacked_again(
    archives: UnpackedArchives, archive: Path, tmp_path: Path
) -> None:
    content = await archives.use(SHA256, archive, "a.tgz", "one")
    content.rename(tmp_path / "elsewhere")
    assert (await archives.use(SHA256, archive, "a.tgz", "two") / "inside.txt").exists()


@pytest.mark.req("BLOB-16")
async def test_an_orderly_end_leaves_nothing(archives: UnpackedArchives, archive: Path, tmp_path: Path) -> None:
    flight = asyncio.create_task(archives.use(SHA256, archive, "a.tgz", "one"))
    await asyncio.sleep(0)
    await archives.close()
    await asyncio.gather(flight, return_exceptions=True)
    assert not (tmp_path / "unpacked").exists()
