"""What clients of a history know about the outcome of a request."""

from __future__ import annotations

import asyncio

import pytest

from campaign.processes.calls import Calls, NotDone, Unknown


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
async def test_a_request_whose_server_dies_is_sent_once_and_of_unknown_outcome(method: str) -> None:
    requests: list[bytes] = []

    async def die(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readline())
        server.close()  # what connects next is refused
        writer.close()

    server = await asyncio.start_server(die, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with Calls("a token") as calls:
        with pytest.raises(Unknown):
            await calls.call(method, f"http://{host}:{port}", "/blocklist/nodes/a", {} if method == "PUT" else None)
    assert len(requests) == 1


async def test_a_request_that_nobody_accepts_has_had_no_effect() -> None:
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    server.close()
    await server.wait_closed()
    async with Calls("a token") as calls:
        with pytest.raises(NotDone):
            await calls.call("PUT", f"http://{host}:{port}", "/blocklist/nodes/a", {})
