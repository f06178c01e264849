"""What single ZooKeeper servers grant, seen through their protocol."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator

import pytest

from emberkeep.adapters.zookeeper.access.settings import SessionSettings
from emberkeep.adapters.zookeeper.access.signatures import RecordSigner, UnsignedRecords, signing_key
from emberkeep.daemons.probes.zookeeper import look_at_server
from emberkeep.diagnosis.zookeeper import ServerFacts


def settings(hosts: str) -> SessionSettings:
    signer = RecordSigner(signing_key("t" * 40), UnsignedRecords.REFUSE)
    return SessionSettings(hosts=hosts, session_timeout=6.0, operation_timeout=1.0, signer=signer)


@contextlib.asynccontextmanager
async def zookeeper(granted: int | None, requests: list[bytes], configuration: bytes = b"") -> AsyncIterator[str]:
    """A server that grants ``granted`` ms; None: it closes the connection, as one without a leader does.

    ``configuration``: what it answers to `conf`.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            start = await reader.readexactly(4)
            if start == b"conf":
                writer.write(configuration)
                await writer.drain()
                writer.close()
                return
            (length,) = struct.unpack(">i", start)
            requests.append(await reader.readexactly(length))
            if granted is not None:
                body = struct.pack(">iiqi16s?", 0, granted, 17, 16, bytes(16), False)
                writer.write(struct.pack(">i", len(body)) + body)
                requests.append(await reader.readexactly(12))
        writer.close()

    serving = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with serving:
        yield f"127.0.0.1:{serving.sockets[0].getsockname()[1]}"


async def test_a_server_tells_how_long_it_keeps_sessions_and_the_session_is_closed() -> None:
    requests: list[bytes] = []
    async with zookeeper(4000, requests) as address:
        assert await look_at_server(settings(address), address) == ServerFacts(where=address, granted_ms=4000)
        async with asyncio.timeout(10.0):
            while len(requests) < 2:  # noqa: ASYNC110 - set by the server
                await asyncio.sleep(0.01)
    version, seen, wanted, session, length, password, read_only = struct.unpack(">iqiqi16s?", requests[0])
    assert (version, seen, wanted, session, length, password, read_only) == (0, 0, 6000, 0, 16, bytes(16), False)
    assert requests[1] == struct.pack(">iii", 8, 1, -11)


@pytest.mark.parametrize(
    ("answer", "most"),
    [
        (b"clientPort=2181\nmaxClientCnxns=60\nserverId=1\n", 60),
        (b"maxClientCnxns=0\n", 0),
        (b"conf is not executed because it is not in the whitelist.\n", None),
        (b"maxClientCnxns=many\n", None),
        (b"", None),
        (b"x" * 100_000, None),
    ],
)
async def test_a_server_tells_how_many_connections_it_takes(answer: bytes, most: int | None) -> None:
    async with zookeeper(4000, [], answer) as address:
        assert (await look_at_server(settings(address), address)).connections == most


async def test_servers_that_give_no_session() -> None:
    async with zookeeper(None, []) as address:
        facts = await look_at_server(settings(address), address)
    assert "it closes the connection" in facts.problem
    assert (await look_at_server(settings(address), address)).problem
    assert (await look_at_server(settings("127.0.0.1:x"), "127.0.0.1:x")).problem
