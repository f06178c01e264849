"""Reading and following files."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from emberkeep.base.errors import Absent
from emberkeep.rest.ports import LogEntry, LogKind, LogQuery
from emberkeep.rest.serving.log_reader import LogReader
from tests.unit.rest.server import ListedLogs, eventually


class OneLog(ListedLogs):
    """A catalogue of one file, looked at anew each time."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.complete = False
        self.looks = 0

    def find(self, log_id: str) -> LogEntry:
        self.looks += 1
        size = self.path.lstat().st_size
        return LogEntry(
            id=log_id, kind=LogKind.JOB_MANAGER, path=self.path, size=size, mtime_ms=0, complete=self.complete
        )


@pytest.fixture
def log(tmp_path: Path) -> OneLog:
    path = tmp_path / "log"
    path.write_bytes(b"0123456789")
    return OneLog(path)


def reader(log: OneLog) -> LogReader:
    return LogReader(log, time.monotonic, poll_interval=0.005)


def query(offset: int = 0, limit: int = 100, wait: float = 0.0) -> LogQuery:
    return LogQuery(offset=offset, limit=limit, wait=wait)


@pytest.mark.parametrize(
    ("offset", "limit", "data", "start"),
    [(0, 100, b"0123456789", 0), (4, 3, b"456", 4), (10, 5, b"", 10), (-4, 100, b"6789", 6), (-99, 2, b"01", 0)],
)
async def test_ranges(log: OneLog, offset: int, limit: int, data: bytes, start: int) -> None:
    chunk = await reader(log).read("log", query(offset, limit))

    assert (chunk.data, chunk.offset, chunk.size) == (data, start, 10)


async def test_a_rotated_log_starts_over(log: OneLog) -> None:
    log.path.write_bytes(b"new")

    chunk = await reader(log).read("log", query(offset=10, wait=60))

    assert (chunk.data, chunk.offset) == (b"new", 0)


async def test_complete_is_said_with_the_last_bytes_only(log: OneLog) -> None:
    log.complete = True

    first = await reader(log).read("log", query(limit=5))
    last = await reader(log).read("log", query(offset=5, wait=60))
    beyond = await reader(log).read("log", query(offset=10, wait=60))

    assert (first.complete, last.complete, beyond.complete) == (False, True, True)


async def test_waiting_ends_when_the_log_is_complete(log: OneLog) -> None:
    waiting = asyncio.create_task(reader(log).read("log", query(offset=10, wait=60)))
    await eventually(lambda: log.looks >= 2)

    log.complete = True

    async with asyncio.timeout(120):
        assert await waiting == await reader(log).read("log", query(offset=10))


async def test_waiting_ends_when_the_process_stops(log: OneLog) -> None:
    stopping = reader(log)
    waiting = asyncio.create_task(stopping.read("log", query(offset=10, wait=60)))
    await eventually(lambda: log.looks >= 1)

    stopping.close()

    async with asyncio.timeout(120):
        assert (await waiting).data == b""


async def test_links_and_pipes_in_place_of_a_log_are_not_followed(log: OneLog, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    log.path.unlink()
    log.path.symlink_to(tmp_path / "secret")
    with pytest.raises(Absent, match="cannot be read"):
        await reader(log).read("log", query())

    log.path.unlink()
    os.mkfifo(log.path)
    with pytest.raises(Absent, match="not a regular file"):
        await reader(log).read("log", query())
