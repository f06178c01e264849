"""Small files cross to a thread once; whatever the size, all bytes arrive and every iterator is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast
from unittest.mock import Mock

import pytest
from aiohttp import StreamReader, web

from emberkeep.adapters.webhdfs import bodies
from emberkeep.adapters.webhdfs.bodies import PIECE_BYTES, Gathered, body, gathered
from emberkeep.adapters.webhdfs.request import WebHdfsRequest
from emberkeep.adapters.webhdfs.uploads import store_body
from emberkeep.adapters.webhdfs.work import GatewayWork
from emberkeep.base.errors import EmberkeepError, Fatal, RetryLater
from emberkeep.local_state.gateway_ports import IncomingFile, StateFiles
from emberkeep.local_state.model import StatePath
from tests.unit.taskmanager.state_gateway.state_gateways import EXECUTOR

PATH = StatePath(root="/place", name="d/f")


class Incoming:
    """A file being received; ``error`` is raised at a ``step``."""

    def __init__(self, step: str = "", error: EmberkeepError | None = None) -> None:
        self.step, self.error = step, error
        self.done: list[str] = []
        self.data = b""

    def _do(self, step: str) -> None:
        self.done.append(step)
        if step == self.step and self.error is not None:
            raise self.error

    def write(self, data: bytes) -> None:
        self.data += data
        self._do("write")

    def commit(self) -> None:
        self._do("commit")

    def abandon(self) -> None:
        self._do("abandon")


class Work(GatewayWork):
    """Counts how often work goes to a thread."""

    def __init__(self) -> None:
        super().__init__("test")
        self.hops = 0

    async def in_thread(self, work):  # type: ignore[no-untyped-def]
        self.hops += 1
        return await super().in_thread(work)


def content(*pieces: bytes, end: bool = True) -> StreamReader:
    reader = StreamReader(Mock(_reading_paused=False), 2**20, loop=asyncio.get_running_loop())
    for piece in pieces:
        reader.feed_data(piece)
    if end:
        reader.feed_eof()
    return reader


def request(reader: StreamReader) -> web.Request:
    return cast("web.Request", SimpleNamespace(content=reader))


async def stored(reader: StreamReader, incoming: Incoming) -> int:
    """Return the number of times that work went to a thread."""
    files = cast("StateFiles", SimpleNamespace(receive=lambda *_, **__: cast("IncomingFile", incoming)))
    work = Work()
    try:
        await store_body(
            files, work, WebHdfsRequest("PUT CREATE", EXECUTOR, "/x", request(reader)), PATH, overwrite=True
        )
    finally:
        work.close()
    return work.hops


@pytest.mark.parametrize("pieces", [(), (b"abc",), (b"abc", b"d" * 10_000)])
async def test_a_small_file_is_stored_in_one_step(pieces: tuple[bytes, ...]) -> None:
    incoming = Incoming()
    assert await stored(content(*pieces), incoming) == 1
    assert incoming.data == b"".join(pieces)
    assert incoming.done == ["write", "commit", "abandon"]


@pytest.mark.parametrize("size", [PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES + 5])
async def test_a_large_file_is_written_while_it_arrives(size: int) -> None:
    incoming = Incoming()
    await stored(content(b"x" * size), incoming)
    assert len(incoming.data) == size
    assert incoming.done[-2:] == ["commit", "abandon"]


@pytest.mark.parametrize("size", [3, 2 * PIECE_BYTES])
@pytest.mark.parametrize("step", ["write", "commit"])
async def test_a_file_that_cannot_be_stored_is_abandoned(size: int, step: str) -> None:
    incoming = Incoming(step, Fatal("the disk is full"))
    with pytest.raises(Fatal, match="is full"):
        await stored(content(b"x" * size), incoming)
    assert incoming.done[-1] == "abandon"


async def test_a_file_that_cannot_be_abandoned_is_stored_all_the_same() -> None:
    incoming = Incoming("abandon", Fatal("the disk fails"))
    await stored(content(b"abc"), incoming)
    assert incoming.done == ["write", "commit", "abandon"]


@pytest.mark.parametrize("received", [b"", b"abc", b"x" * PIECE_BYTES])
async def test_a_body_that_breaks_off_stores_nothing(received: bytes) -> None:
    reader, incoming = content(received, end=False), Incoming()
    asyncio.get_running_loop().call_later(0.01, reader.set_exception, ConnectionResetError("gone"))
    with pytest.raises(RetryLater, match="not received in full: gone"):
        await stored(reader, incoming)
    assert "commit" not in incoming.done


async def test_a_body_that_broke_off_earlier_stores_nothing_either() -> None:
    reader, incoming = content(b"abc"), Incoming()
    reader.set_exception(web.RequestPayloadError("cut"))
    with pytest.raises(RetryLater, match="not received in full: cut"):
        await stored(reader, incoming)
    assert incoming.done == []


async def test_a_body_that_stops_arriving_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "IDLE_SECONDS", 0.01)
    with pytest.raises(RetryLater, match="not received in full"):
        await stored(content(b"abc", end=False), Incoming())


async def test_only_the_last_piece_of_a_body_is_short() -> None:
    reader = content(b"a" * (PIECE_BYTES - 1), end=False)
    loop = asyncio.get_running_loop()
    loop.call_later(0.01, reader.feed_data, b"b" * PIECE_BYTES)
    loop.call_later(0.02, reader.feed_data, b"c")
    loop.call_later(0.03, reader.feed_eof)
    pieces = [piece async for piece in body(request(reader))]
    assert b"".join(pieces) == b"a" * (PIECE_BYTES - 1) + b"b" * PIECE_BYTES + b"c"
    assert all(len(piece) >= PIECE_BYTES for piece in pieces[:-1])


def test_pieces_are_joined_until_they_are_worth_sending() -> None:
    ended = []

    def pieces() -> Iterator[bytes]:
        for _ in range(3):
            yield b"x" * (PIECE_BYTES // 2)
        ended.append(True)

    waiting = pieces()
    assert gathered(waiting) == Gathered(b"x" * PIECE_BYTES, is_last=False)
    assert gathered(waiting) == Gathered(b"x" * (PIECE_BYTES // 2), is_last=True)
    assert ended
    assert gathered(iter(())) == Gathered(b"", is_last=True)
