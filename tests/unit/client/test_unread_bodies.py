"""Bodies of requests whose reply comes before they are read to their end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from emberkeep.client.endpoint import Endpoint
from emberkeep.client.http_calls import HttpCalls, Request

_REFUSAL = b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\nContent-Type: application/json\r\n\r\n{}"


async def test_what_a_refusal_leaves_unread_is_closed() -> None:
    over = asyncio.Event()

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(_REFUSAL)
        await over.wait()  # and never reads what follows
        writer.close()

    closed: list[bool] = []
    kept: list[AsyncIterator[bytes]] = []  # so that the garbage collector closes nothing

    async def endless() -> AsyncIterator[bytes]:
        closed.append(False)
        try:
            while True:
                yield bytes(1_000_000)
        finally:
            closed[0] = True

    def body() -> AsyncIterator[bytes]:
        kept.append(endless())
        return kept[-1]

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        calls = HttpCalls(Endpoint(f"http://{host}:{port}", "a token"), patience=0.0)
        calls.open()
        try:
            await asyncio.gather(calls.call(Request("PUT", "/blobs/a", body=body)), return_exceptions=True)
            assert closed == [True]
        finally:
            over.set()
            await calls.close()
