"""Calls of functions on executors are encrypted: who reads or redirects a connection gets no state and no secret."""

from __future__ import annotations

import os
import pickle
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from emberkeep.api import function_link
from emberkeep.api.encrypted_connection import Encryption, worker_context
from emberkeep.api.function_channel import LARGEST, Channel
from emberkeep.api.function_link import EncryptedLink, FunctionCall, Link, Reply, State, join_driver
from emberkeep.base.errors import Conflict, RetryLater
from emberkeep.spark.functions.executor_functions import ExecutorFunctions
from emberkeep.spark.functions.worker_port import WorkerPort
from tests.unit.spark.functions.encrypted_links import encryption_in

pytestmark = pytest.mark.req("SEC-9")

_DEADLINE_SECONDS = 240.0
STATE = b'j"a state that nobody else may read"'


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[ExecutorFunctions]:
    encryption = encryption_in(tmp_path)
    port = WorkerPort("127.0.0.1", 3, encryption)
    driver = ExecutorFunctions(port, lambda: {"counter@0": STATE}, silent_seconds=0.5)
    yield driver
    driver.close()


class Wire:
    """Passes bytes on between a worker and the driver, and keeps them."""

    def __init__(self, link: Link) -> None:
        self.seen = bytearray()
        self._open: list[socket.socket] = []
        self._target = (link.host, link.port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.link: Link = msgspec.structs.replace(link, port=self._listening.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                worker, _ = self._listening.accept()
                driver = socket.create_connection(self._target)
                self._open += [worker, driver]
                for source, target in ((worker, driver), (driver, worker)):
                    threading.Thread(target=self._pump, args=(source, target), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(2**16):
                self.seen += data
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listening.close()
        for connection in self._open:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()


@pytest.fixture
def wire(driver: ExecutorFunctions) -> Iterator[Wire]:
    wire = Wire(driver.link())
    yield wire
    wire.close()


class Impostor:
    """Listens where a driver was. ``heard``: what a worker has sent after the handshake."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self.heard = b""
        self._context = context
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                with connection, suppress(OSError, RetryLater):
                    connection.settimeout(5.0)
                    self._talk(connection)

    def _talk(self, connection: socket.socket) -> None:
        if self._context is None:
            connection.sendall(b'\0\0\0\x11{"nonce":"v2.00"}')
            connection.recv(2**16)  # a worker's greeting of TLS has nothing secret
            return
        encryption = Encryption(self._context)
        encryption.begin(connection, 5.0)
        connection.sendall(encryption.encrypted(b'\0\0\0\x11{"nonce":"v2.00"}'))
        self.heard += encryption.read(2**16, connection.recv)

    def close(self) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(_DEADLINE_SECONDS)


def test_who_reads_the_wire_sees_neither_states_nor_names(driver: ExecutorFunctions, wire: Wire) -> None:
    joined = join_driver(wire.link, "counter", "a" * 32)
    assert joined.states == [STATE]
    joined.channel.send(Reply(number=0, state=STATE))
    assert joined.channel.receive(FunctionCall).number == 0  # the acknowledgement
    joined.channel.close()
    assert len(wire.seen) > 1_000
    assert not [word for word in (b"nobody", b"counter", b"nonce", b"proof") if word in wire.seen]


@pytest.mark.parametrize("kind", ["another certificate", "no encryption"])
def test_who_takes_the_drivers_port_is_sent_nothing(driver: ExecutorFunctions, tmp_path: Path, kind: str) -> None:
    other = encryption_in(tmp_path, b"2" * 32).context if kind == "another certificate" else None
    impostor = Impostor(other)
    link = msgspec.structs.replace(driver.link(), port=impostor.port)
    expected = Conflict if other else RetryLater
    with pytest.raises(expected, match="shows another certificate" if other else "TLS handshake failed"):
        join_driver(link, "counter", "a" * 32)
    impostor.close()
    assert impostor.heard == b""


def test_a_worker_that_does_not_encrypt_is_not_let_in(
    driver: ExecutorFunctions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(function_link, "_UNPROVEN_SECONDS", 0.3)
    monkeypatch.setattr(function_link, "_SECONDS", 5.0)
    link = driver.link()
    with pytest.raises(RetryLater):
        join_driver(Link(link.host, link.port, link.attempt, link.secret), "counter", "a" * 32)
    assert driver.instances() == []


def test_older_versions_of_tls_are_refused(driver: ExecutorFunctions) -> None:
    link = driver.link()
    context = worker_context()
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
    connection = socket.create_connection((link.host, link.port), _DEADLINE_SECONDS)
    with connection, pytest.raises(ssl.SSLError):
        context.wrap_socket(connection)


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01"])
def test_a_handshake_that_does_not_proceed_is_cut_off(
    driver: ExecutorFunctions, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(function_link, "_UNPROVEN_SECONDS", 0.3)
    link = driver.link()
    with socket.create_connection((link.host, link.port), _DEADLINE_SECONDS) as connection:
        connection.sendall(sent)
        with suppress(ConnectionResetError):
            assert connection.recv(1) == b""


def test_garbage_in_place_of_a_handshake_harms_nobody(driver: ExecutorFunctions) -> None:
    link = driver.link()
    for _ in range(20):
        connection = socket.create_connection((link.host, link.port), _DEADLINE_SECONDS)
        with connection, suppress(ConnectionError):
            connection.sendall(os.urandom(4_000))
            while connection.recv(1_000):
                pass
    joined = join_driver(link, "counter", "a" * 32)
    assert joined.states == [STATE]
    joined.channel.close()


def test_a_link_names_its_certificate_and_survives_pickling(driver: ExecutorFunctions) -> None:
    link = driver.link()
    assert isinstance(link, EncryptedLink)
    assert pickle.loads(pickle.dumps(link)) == link


# --- the session ------------------------------------------------------------------------------------------------------


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[tuple[Channel, Channel]]:
    """Both ends of an encrypted connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        other = socket.create_connection(listening.getsockname()[:2])
        one, _ = listening.accept()
    server, client = Encryption(encryption_in(tmp_path).context), Encryption(worker_context())
    greeting = threading.Thread(target=server.begin, args=(one, _DEADLINE_SECONDS))
    greeting.start()
    client.begin(other, _DEADLINE_SECONDS)
    greeting.join()
    channels = Channel(one, server), Channel(other, client)
    for channel in channels:
        channel.settle()
    yield channels
    one.close()
    other.close()


def test_large_messages_pass_both_ways_at_once(ends: tuple[Channel, Channel]) -> None:
    """OpenSSL does not permit that two threads use one session."""
    states = [os.urandom(2**20 * (1 + number % 3)) for number in range(12)]

    def send(channel: Channel) -> None:
        for state in states:
            channel.send(State(state=state))

    threads = [threading.Thread(target=send, args=(channel,)) for channel in ends for _ in range(2)]
    received: dict[int, list[bytes]] = {0: [], 1: []}

    def receive(number: int) -> None:
        received[number] = [ends[number].receive(State).state for _ in range(2 * len(states))]

    threads += [threading.Thread(target=receive, args=(number,)) for number in received]
    _run_all(threads)
    assert {number: sorted(found) for number, found in received.items()} == dict.fromkeys((0, 1), sorted(2 * states))


def test_the_largest_message_passes(ends: tuple[Channel, Channel]) -> None:
    state = b"x" * (LARGEST // 4 * 3 - 1_000)  # Base64 makes a third more of it
    found: list[bytes] = []
    _run_all(
        [
            threading.Thread(target=lambda: ends[0].send(State(state=state))),
            threading.Thread(target=lambda: found.append(ends[1].receive(State).state)),
        ]
    )
    assert found == [state]


def test_the_end_of_a_connection_is_noticed(ends: tuple[Channel, Channel]) -> None:
    one, other = ends
    assert not one.has_ended()
    other.close()
    assert one.has_ended()
    with pytest.raises(RetryLater):
        one.receive(State)


def test_changed_bytes_are_refused(driver: ExecutorFunctions, wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    joined = join_driver(wire.link, "counter", "a" * 32)
    encryption = joined.channel._encryption
    assert encryption is not None
    encrypted: Callable[[bytes], bytes] = encryption.encrypted

    def changed(data: bytes) -> bytes:
        sent = encrypted(data)
        return sent[:-1] + bytes([sent[-1] ^ 1])

    monkeypatch.setattr(encryption, "encrypted", changed)
    joined.channel.send(Reply(number=0, state=b"j1"))
    with pytest.raises(RetryLater):
        joined.channel.receive(Reply)
    joined.channel.close()


def _run_all(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_DEADLINE_SECONDS)
    assert not [thread for thread in threads if thread.is_alive()]
