"""A driver that hangs: its system accepts connections, and nothing is answered."""

from __future__ import annotations

import asyncio

import pytest

from emberkeep.adapters.tunnels import leader_side
from emberkeep.adapters.tunnels.leader_side import DriverTunnels
from emberkeep.base.errors import RetryLater
from emberkeep.base.ids import JobId


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 101 Switching"])
async def test_a_tunnel_does_not_wait_for_a_driver_that_hangs(monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    monkeypatch.setattr(leader_side, "_OPEN_SECONDS", 0.2)
    accepted: list[asyncio.StreamWriter] = []

    async def accept(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        accepted.append(writer)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    tunnels = DriverTunnels("t" * 32, tls=None, drivers=None)
    try:
        async with asyncio.timeout(20):
            with pytest.raises(RetryLater, match="the job's driver cannot be reached now: "):
                await tunnels.open(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", JobId("0" * 31 + "1"), 1)
        assert accepted
    finally:
        await tunnels.close()
        for writer in accepted:
            writer.close()
        server.close()
