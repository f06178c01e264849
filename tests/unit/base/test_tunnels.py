"""Connections that are joined, and ends that do not wait for a peer that hangs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from emberkeep.base import tunnels
from emberkeep.base.tunnels import CHUNK, StreamPipe, join


class EndlessPipe:
    """Sends for ever."""

    def __init__(self) -> None:
        self.closed = False

    async def read(self) -> bytes:
        await asyncio.sleep(0)
        return bytes(CHUNK)

    async def write(self, data: bytes) -> None:
        """Take everything."""

    async def close(self) -> None:
        self.closed = True


async def test_the_end_of_a_connection_does_not_wait_for_a_peer_that_reads_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tunnels, "_CLOSE_SECONDS", 0.2)
    accepted = asyncio.Queue[StreamPipe]()
    path = str(tmp_path / "socket")
    server = await asyncio.start_unix_server(lambda *streams: accepted.put_nowait(StreamPipe(*streams)), path)
    async with server:
        _, hanging = await asyncio.open_unix_connection(path, limit=1)
        endless = EndlessPipe()
        joined = asyncio.create_task(join(await accepted.get(), endless))
        await asyncio.sleep(0.2)  # until the peer's buffers are full
        joined.cancel()
        done, _ = await asyncio.wait({joined}, timeout=5)
        hanging.transport.abort()
    assert done
    assert endless.closed
