"""A job's files go up as one group: only what is missing, several at once, again after a failure, and unchanged."""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from emberkeep.base.errors import Absent, Fatal, InvalidInput, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.blobs.model import BlobContent, permanent
from emberkeep.client.rest_client import RestClient
from emberkeep.client.submission.blob_upload import UploadItem, upload_group
from tests.unit.client.fake_job_manager import FakeJobManager

JOB = JobId("c0ffee" + "0" * 26)


class Recorded:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.begun: list[tuple[int, int]] = []
        self.names: list[str] = []
        self.bytes = 0
        self.ends = 0

    def begin(self, files: int, size: int) -> None:
        self.begun.append((files, size))
        self.bytes = 0

    def file(self, name: str) -> None:
        self.names.append(name)

    def sent(self, count: int) -> None:
        self.bytes += count

    def end(self) -> None:
        self.ends += 1


@pytest.fixture
def fake() -> Iterator[FakeJobManager]:
    with FakeJobManager().serving() as server:
        yield server


def item(path: Path, data: bytes) -> UploadItem:
    """A file that was hashed."""
    path.write_bytes(data)
    return UploadItem(path.name, BlobContent(sha256=hashlib.sha256(data).hexdigest(), size=len(data)), path)


@pytest.mark.req("BLOB-6")
async def test_only_what_is_missing_is_sent_and_all_of_it_is_one_group(fake: FakeJobManager, tmp_path: Path) -> None:
    items = [item(tmp_path / f"f{number}", bytes([number]) * 3_000_000) for number in range(9)]
    fake.blobs[JOB, str(items[4].key)] = b"\4" * 3_000_000
    progress = Recorded()

    async with RestClient(fake.endpoint) as client:
        await upload_group(client, JOB, items, progress)

    assert {key for _, key in fake.blobs} == {str(entry.key) for entry in items}
    assert [group.blobs for group in fake.groups] == [[entry.content for entry in items]]
    assert sorted(progress.names) == sorted(f"f{number}" for number in range(9) if number != 4)
    assert (progress.begun, progress.bytes, progress.ends) == ([(8, 24_000_000)], 24_000_000, 1)


async def test_nothing_is_sent_when_all_is_there(fake: FakeJobManager, tmp_path: Path) -> None:
    only = item(tmp_path / "f", b"x")
    progress = Recorded()

    async with RestClient(fake.endpoint) as client:
        await upload_group(client, JOB, [only], progress)
        await upload_group(client, JOB, [only], progress)

    assert progress.begun == [(1, 1)]
    assert sum(request.startswith("PUT") for request in fake.requests) == 1


async def test_a_failed_round_is_taken_up_with_the_same_group(fake: FakeJobManager, tmp_path: Path) -> None:
    items = [item(tmp_path / "a", b"a" * 100), item(tmp_path / "b", b"")]
    progress = Recorded()

    async with RestClient(fake.endpoint, patience=0) as client:
        open_group = client.blobs.open_group
        failing = iter([[503], []])

        async def opened(job_id: JobId, contents: list[BlobContent]) -> list[str]:
            missing = await open_group(job_id, contents)
            fake.failures = next(failing)
            return missing

        client.blobs.open_group = opened  # type: ignore[method-assign, assignment]
        await upload_group(client, JOB, items, progress)

    assert len(fake.groups) == 2
    assert fake.groups[0] == fake.groups[1]
    assert {key for _, key in fake.blobs} == {str(entry.key) for entry in items}


async def test_a_job_manager_that_stays_away_ends_it(fake: FakeJobManager, tmp_path: Path) -> None:
    progress = Recorded()
    async with RestClient(fake.endpoint, patience=0) as client:
        fake.failures = [503] * 10
        with pytest.raises(RetryLater):
            await upload_group(client, JOB, [item(tmp_path / "a", b"a")], progress)
    assert progress.ends == 1


@pytest.mark.parametrize("now", [b"y" * 3_000_000, b"x" * 2_999_999, b"x" * 3_000_001, b"", None])
async def test_a_file_that_changed_is_named(fake: FakeJobManager, tmp_path: Path, now: bytes | None) -> None:
    path = tmp_path / "data.csv"
    entry = item(path, b"x" * 3_000_000)
    if now is None:
        path.unlink()
    else:
        path.write_bytes(now)

    async with RestClient(fake.endpoint) as client:
        with pytest.raises(InvalidInput, match=r"data\.csv changed while it was uploaded"):
            await upload_group(client, JOB, [entry], Recorded())

    assert fake.blobs == {}


async def test_a_refusal_is_told_as_it_is(fake: FakeJobManager, tmp_path: Path) -> None:
    async with RestClient(fake.endpoint, patience=0) as client:
        missing = await client.blobs.open_group(JOB, [])
        assert missing == []
        entry = item(tmp_path / "a", b"a")
        fake.failures = [413]
        with pytest.raises(InvalidInput, match="told to fail"):
            await upload_group(client, JOB, [entry], Recorded())


# --- downloads --------------------------------------------------------------------------------------------------------


@pytest.mark.req("BLOB-2")
async def test_a_download_is_verified_and_leaves_nothing_half(fake: FakeJobManager, tmp_path: Path) -> None:
    data = bytes(range(256)) * 20_000
    key = permanent(hashlib.sha256(data).hexdigest())
    target = tmp_path / "out" / "file"
    target.parent.mkdir()
    fake.blobs[JOB, str(key)] = data

    async with RestClient(fake.endpoint) as client:
        fake.failures = [503]
        assert await client.blobs.download(JOB, key, target) == len(data)
        assert target.read_bytes() == data
        target.write_bytes(b"mine")
        fake.blobs[JOB, str(key)] = b"x" + data[1:]
        with pytest.raises(Fatal, match="damaged") as caught:
            await client.blobs.download(JOB, key, target)
        assert str(key) in caught.value.message
        assert hashlib.sha256(b"x" + data[1:]).hexdigest() in caught.value.message
        with pytest.raises(Absent):
            await client.blobs.download(JobId("0" * 32), key, target)
        with pytest.raises(Fatal, match="cannot write"):
            await client.blobs.download(JOB, key, tmp_path / "none" / "file")

    assert target.read_bytes() == b"mine"
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("name", ["a" * 255, "é" * 127, "文" * 85], ids=["ascii", "two bytes", "three bytes"])
async def test_a_download_may_have_the_longest_name_of_a_file_system(
    fake: FakeJobManager, tmp_path: Path, name: str
) -> None:
    key = permanent(hashlib.sha256(b"data").hexdigest())
    fake.blobs[JOB, str(key)] = b"data"
    async with RestClient(fake.endpoint) as client:
        await client.blobs.download(JOB, key, tmp_path / name)

    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [(name, b"data")]


async def test_a_download_replaces_nothing_but_files(fake: FakeJobManager, tmp_path: Path) -> None:
    key = permanent(hashlib.sha256(b"data").hexdigest())
    fake.blobs[JOB, str(key)] = b"data"
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"mine")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    there = sorted(tmp_path.iterdir())
    async with RestClient(fake.endpoint) as client:
        for target in (tmp_path / "folder", tmp_path / "pipe", tmp_path / "link", Path("/")):
            with pytest.raises(Fatal, match="not a regular file"):
                await client.blobs.download(JOB, key, target)
        with pytest.raises(Fatal, match=r"cannot write .*Not a directory"):
            await client.blobs.download(JOB, key, tmp_path / "file" / "more")

    assert sorted(tmp_path.iterdir()) == there


async def test_a_file_that_is_being_opened_as_the_upload_ends_is_closed(
    fake: FakeJobManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, begun, go_on, opened = item(tmp_path / "f", b"bytes"), threading.Event(), threading.Event(), list[BinaryIO]()

    def slow_open(_: UploadItem) -> BinaryIO:
        begun.set()
        assert go_on.wait(60)
        opened.append((tmp_path / "f").open("rb"))
        return opened[0]

    monkeypatch.setattr(UploadItem, "open", slow_open)
    async with RestClient(fake.endpoint, patience=0.0) as client, asyncio.timeout(60):
        upload = asyncio.create_task(upload_group(client, JOB, [one], Recorded()))
        await asyncio.to_thread(begun.wait, 60)
        upload.cancel()
        await asyncio.gather(upload, return_exceptions=True)
        go_on.set()
        while not (opened and opened[0].closed):  # noqa: ASYNC110 - nothing tells that a file is closed
            await asyncio.sleep(0.01)
