"""A load generator that costs little beside what it loads: HTTP/1.1 over bare asyncio connections that stay open."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

ANSWER_SECONDS = 60.0
_HEAD_END = b"\r\n\r\n"


class LoadFailed(Exception):
    """The server closed a connection, answered with an error, or not at all."""


class Connection(asyncio.Protocol):
    """One request at a time: ``post`` returns the body of a 200 answer. Raises LoadFailed."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._answer: asyncio.Future[bytes] | None = None
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def open(cls, address: str) -> Connection:
        host, _, port = address.rpartition(":")
        _, connection = await asyncio.get_running_loop().create_connection(cls, host, int(port))
        return connection

    async def post(self, request: bytes) -> bytes:
        if self._transport is None or self._transport.is_closing():
            raise LoadFailed("the server has closed the connection")
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(f"the server closed the connection: {exc}")

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        head_end = received.find(_HEAD_END)
        if head_end < 0:
            return
        body = head_end + len(_HEAD_END)
        head = bytes(received[:head_end]).lower()
        length = int(head.partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0])
        if len(received) < body + length:
            return
        answer = bytes(received[body : body + length])
        received.clear()
        if not head.startswith(b"http/1.1 200"):
            status = head.partition(b"\r\n")[0].decode()
            self._fail(f"{status}: {answer[:200]!r}")
        elif self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    def _fail(self, reason: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(LoadFailed(reason))


def post_request(address: str, path: str, headers: dict[str, str], body: bytes) -> bytes:
    """The bytes of a POST."""
    lines = [f"POST {path} HTTP/1.1", f"Host: {address}", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + _HEAD_END + body


@dataclass
class Load:
    """What came of it: requests per second, and the seconds each answer took (from when it was due)."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return len(self.latencies) / self.seconds


async def as_fast_as_it_goes(
    connections: list[Connection], request: Callable[[int, int], bytes], check: Callable[[bytes], None], seconds: float
) -> Load:
    """Every connection sends its next request when the last one is answered. ``request(connection, turn)``."""
    load = Load()
    begin = time.perf_counter()
    end = begin + seconds

    async def go_on(number: int, connection: Connection) -> None:
        turn = 0
        while (due := time.perf_counter()) < end:
            turn += 1
            check(await connection.post(request(number, turn)))
            load.latencies.append(time.perf_counter() - due)

    await _all(go_on, connections, seconds)
    load.seconds = time.perf_counter() - begin
    return load


async def at_intervals(
    connections: list[Connection],
    request: Callable[[int, int], bytes],
    check: Callable[[bytes], None],
    *,
    interval: float,
    turns: int,
) -> Load:
    """Every connection has a request due each ``interval`` seconds, evenly spread; late ones count from when they
    were due, so that a server that stalls does not hide it by being asked less."""
    load = Load()
    begin = time.perf_counter() + 0.1

    async def go_on(number: int, connection: Connection) -> None:
        due = begin + interval * number / len(connections)
        for turn in range(1, turns + 1):
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            check(await connection.post(request(number, turn)))
            load.latencies.append(time.perf_counter() - due)
            due += interval

    await _all(go_on, connections, interval * turns)
    load.seconds = time.perf_counter() - begin
    return load


async def _all(
    go_on: Callable[[int, Connection], Coroutine[Any, Any, None]], connections: list[Connection], seconds: float
) -> None:
    async with asyncio.timeout(seconds + ANSWER_SECONDS), asyncio.TaskGroup() as group:
        for number, connection in enumerate(connections):
            group.create_task(go_on(number, connection))


async def open_connections(address: str, count: int) -> list[Connection]:
    """Open them a few at a time: a listen queue is short."""
    connections: list[Connection] = []
    while len(connections) < count:
        batch = min(50, count - len(connections))
        connections += await asyncio.gather(*(Connection.open(address) for _ in range(batch)))
    return connections
