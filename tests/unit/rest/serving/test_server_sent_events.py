"""Streams of events whose clients go away, or that fail in the middle."""

from __future__ import annotations

import asyncio
import socket
import struct

import aiohttp
import pytest
from aiohttp import web

from emberkeep.base.errors import RetryLater, Unavailable
from emberkeep.rest.serving.server_sent_events import event_stream
from tests.unit.rest.one_handler import one_handler
from tests.unit.rest.server import Site, eventually

EVENT = b": alive\n\n" * 10_000
RESET_AT_CLOSE = struct.pack("ii", 1, 0)


async def test_a_client_that_neither_reads_nor_closes_in_order_ends_its_stream(site: Site) -> None:
    requests: list[web.Request] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        requests.append(request)
        async with event_stream(site.api, request) as response:
            for _ in range(1_000_000):
                await response.write(EVENT)
        return response

    def is_waiting() -> bool:
        transport = requests[0].transport if requests else None
        return isinstance(transport, asyncio.WriteTransport) and transport.get_write_buffer_size() >= len(EVENT)

    async with one_handler(handle) as served:
        with socket.create_connection(("127.0.0.1", served.port)) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await eventually(is_waiting)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
        await eventually(lambda: bool(served.ends))

    assert served.ends == [None]
    assert site.api.waiting.taken == 0


@pytest.mark.parametrize("error", [RetryLater("no leader"), Unavailable("not mounted"), KeyError("a mistake")])
async def test_a_stream_that_fails_ends_in_order_without_the_text_of_an_error(site: Site, error: Exception) -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        async with event_stream(site.api, request) as response:
            await response.write(b"id: 7\n\n")
            if response.prepared:
                raise error
        return response

    async with (
        one_handler(handle) as served,
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{served.port}/") as answer,
    ):
        assert answer.status == 200
        assert await answer.read() == b"id: 7\n\n"

    assert served.ends == [None]
    assert site.api.waiting.taken == 0
