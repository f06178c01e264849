"""A server that is silent, as with its machine off, does not cost the session while another one is well."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from emberkeep.adapters.zookeeper.access import connections
from emberkeep.adapters.zookeeper.access.connections import PromptHandler
from emberkeep.adapters.zookeeper.access.encrypted_connections import EncryptedHandler
from emberkeep.adapters.zookeeper.access.settings import EncryptionFiles, SessionSettings
from emberkeep.adapters.zookeeper.access.signatures import RecordSigner, signing_key
from emberkeep.adapters.zookeeper.session import SessionState, ZooKeeperSession
from emberkeep.base.errors import EmberkeepError
from tests.support.certificates import cluster_tls, files_in
from tests.unit.rest.server import eventually

TIMEOUT = 4.0  # of the sessions: the default
PING, CLOSE = 11, -11


@pytest.fixture
def off() -> Iterator[tuple[str, int]]:
    """The address of a machine that is off: the kernel drops the packets of whoever connects to a full backlog."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield listener.getsockname()


@pytest.fixture
def frozen() -> Iterator[tuple[str, int]]:
    """The address of a server whose process stands still: the kernel takes connections, and nobody reads them."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()


def handlers(directory: Path) -> list[PromptHandler]:
    cluster_tls(directory)
    encrypted = EncryptedHandler(EncryptionFiles(files_in(directory).ca, None, None), TIMEOUT, 3)
    return [PromptHandler(TIMEOUT, 3), encrypted]


def seconds_until_given_up(handler: PromptHandler, address: tuple[str, int]) -> float:
    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        handler.create_connection(address=address, hostname="127.0.0.1", timeout=TIMEOUT)
    return time.monotonic() - begun


def test_an_attempt_to_connect_takes_a_share_of_the_session_timeout(tmp_path: Path, off: tuple[str, int]) -> None:
    for handler in handlers(tmp_path):
        assert handler.patience == pytest.approx(1.2)
        assert 1.0 < seconds_until_given_up(handler, off) < TIMEOUT


def test_an_attempt_includes_the_handshake(tmp_path: Path, frozen: tuple[str, int]) -> None:
    _, encrypted = handlers(tmp_path)
    assert 1.0 < seconds_until_given_up(encrypted, frozen) < TIMEOUT


def test_an_attempt_includes_the_first_reply(frozen: tuple[str, int]) -> None:
    handler = PromptHandler(TIMEOUT, 3)
    begun = time.monotonic()
    with handler.create_connection(frozen) as made:
        handler.select([], [made], [], TIMEOUT)
        with pytest.raises(TimeoutError, match="the server does not reply"):
            handler.select([made], [], [], TIMEOUT)
    assert 1.0 < time.monotonic() - begun < TIMEOUT


@pytest.mark.parametrize(
    ("servers", "timeout", "first"), [(1, 36.0, 4.0), (3, 36.0, 4.0), (5, 36.0, 2.4), (5, 1.0, 1.0)]
)
def test_attempts_to_connect_to_slow_servers_may_take_longer(
    off: tuple[str, int], monkeypatch: pytest.MonkeyPatch, servers: int, timeout: float, first: float
) -> None:
    def late(*_: object) -> socket.socket:
        raise TimeoutError

    handler = PromptHandler(timeout, servers)
    assert handler.patience == pytest.approx(first)
    with monkeypatch.context() as patched:
        patched.setattr(socket, "create_connection", late)
        for _ in range(max(servers, 3)):
            with pytest.raises(TimeoutError):
                handler.create_connection(off)
        assert handler.patience == pytest.approx(min(2 * first, timeout))
        for _ in range(10_000):
            with pytest.raises(TimeoutError):
                handler.create_connection(off)
        assert handler.patience == timeout
    with socket.create_server(("127.0.0.1", 0)) as server, handler.create_connection(server.getsockname()) as made:
        assert handler.patience == timeout, "nobody has replied yet"
        with server.accept()[0] as accepted:
            accepted.sendall(b"reply")
            assert handler.select([made], [], [], 60.0)[0] == [made]
    assert handler.patience == pytest.approx(first)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("asked", "noticed"),
    [([0.0], 24.0), ([7.0, 14.0, 20.0], 24.0), ([12.0, 20.0], 24.0), ([30.0], 42.0)],
    ids=["at once", "again and again", "by a ping", "after a pause of this process"],
)
def test_silence_counts_from_the_last_reply(
    monkeypatch: pytest.MonkeyPatch, asked: list[float], noticed: float
) -> None:
    clock, ours = Clock(), object()
    monkeypatch.setattr(connections, "time", clock)

    class Handler(PromptHandler):
        """Connected. Nothing more can be read."""

        replies = 1

        def ready(self, *sockets: Any) -> tuple[Any, Any, Any]:
            reading, writing, _, timeout = sockets
            if self.replies and reading:
                self.replies -= 1
                return reading, [], []
            clock.now += 0.0 if writing else timeout
            return [], writing, []

    handler = Handler(36.0, 3)
    handler.select([ours], [], [], 60.0)
    for moment in asked:
        clock.now = max(clock.now, 1000.0 + moment)
        handler.select([], [ours], [], 60.0)
    with pytest.raises(TimeoutError, match="the server does not reply"):
        handler.select([ours], [], [], 60.0)
    assert clock.now - 1000.0 == pytest.approx(noticed)


class Server:
    """A ZooKeeper without nodes. It ends sessions as a real one does, and falls silent when told to."""

    def __init__(self) -> None:
        self.sessions: dict[int, float] = {}  # when each was last heard of
        self.silent = False
        self.writers: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.add(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            session = await self._connected(reader, writer)
            while True:
                number, kind = struct.unpack(">ii", (await self._message(reader))[:8])
                if self.silent:
                    continue
                self.sessions[session] = time.monotonic()
                self._answer(writer, struct.pack(">iqi", number, 1, 0 if kind in (PING, CLOSE) else -101))
        writer.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
        _, _, timeout, session = struct.unpack(">iqiq", (await self._message(reader))[:24])
        now = time.monotonic()
        session = session or len(self.sessions) + 1
        lives = now - self.sessions.get(session, now) < timeout / 1000
        self.sessions[session] = now
        self._answer(writer, struct.pack(">iiqi16s?", 0, timeout if lives else 0, session, 16, bytes(16), False))
        return session

    async def _message(self, reader: asyncio.StreamReader) -> bytes:
        (length,) = struct.unpack(">i", await reader.readexactly(4))
        return await reader.readexactly(length)

    def _answer(self, writer: asyncio.StreamWriter, message: bytes) -> None:
        writer.write(struct.pack(">i", len(message)) + message)

    def drop_connections(self) -> None:
        for each in self.writers:
            each.transport.abort()
        self.writers.clear()


@contextlib.asynccontextmanager
async def session_with(
    server: Server, *others: tuple[str, int]
) -> AsyncIterator[tuple[ZooKeeperSession, list[SessionState]]]:
    """A session at ``server`` that looks for a connection at the others first, and the states that it goes through."""
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    addresses = [*others, listening.sockets[0].getsockname()]
    hosts = ",".join(f"{host}:{port}" for host, port in addresses)
    session = ZooKeeperSession(SessionSettings(hosts, TIMEOUT, 0.5, RecordSigner(signing_key("token"))))
    states: list[SessionState] = []
    session.listen(states.append)
    session.start()
    try:
        async with asyncio.timeout(60.0):
            await session.connected()
        yield session, states
    finally:
        server.silent = False
        await session.close()
        listening.close()


@pytest.mark.parametrize("bad", ["off", "frozen"])
@pytest.mark.anyio
async def test_a_session_outlives_a_connection_although_another_server_is_silent(
    bad: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random, "shuffle", lambda _: None)
    server = Server()
    async with session_with(server, request.getfixturevalue(bad)) as (session, states):
        begun = session.id
        server.drop_connections()
        await eventually(lambda: len(states) == 3)
        assert states == [SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.CONNECTED]
        assert session.id == begun


@pytest.mark.anyio
async def test_silence_is_noticed_although_there_is_always_another_request() -> None:
    server = Server()
    async with session_with(server) as (session, _):
        server.silent, silent_since = True, time.monotonic()
        while session.state is SessionState.CONNECTED and time.monotonic() - silent_since < 10 * TIMEOUT:
            with contextlib.suppress(EmberkeepError):
                await session.exists("/node")
        assert session.state is not SessionState.CONNECTED
