"""The connection between an instance in a Python worker and the driver: frames of JSON, both sides known by a secret.

The worker connects. Each side proves that it has the attempt's secret by a keyed hash over what the other one chose.
"""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import struct
import threading
from contextlib import suppress
from typing import TypeVar

import msgspec

from emberkeep.base.compatible import Compatible
from emberkeep.base.errors import Conflict, RetryLater

_LENGTH = struct.Struct(">I")
_LARGEST = 64 * 2**20  # bytes of one frame
_SECONDS = 30.0  # for connecting and being recognised
VERSION = 1

T = TypeVar("T", bound=msgspec.Struct)


class Link(msgspec.Struct, frozen=True):
    """Where the driver of an attempt listens. ``secret``: 64 hex digits."""

    host: str
    port: int
    attempt: int
    secret: str


class Challenge(Compatible, frozen=True):
    nonce: str


class Hello(Compatible, frozen=True, kw_only=True):
    """Of a worker. ``proof``: of the driver's nonce."""

    version: int
    attempt: int
    proof: str
    nonce: str
    name: str
    host: str
    pid: int


class Welcome(Compatible, frozen=True, kw_only=True):
    """``proof``: of the worker's nonce. ``states``: what the instance begins with."""

    proof: str
    states: list[bytes]


class Call(Compatible, frozen=True, kw_only=True):
    number: int
    method: str
    arguments: list[int] = msgspec.field(default_factory=list)


class Reply(Compatible, frozen=True, kw_only=True):
    """``number``: of the call; 0: nobody has asked, the worker ends and leaves its state."""

    number: int
    error: str = ""
    state: bytes | None = None


class Channel:
    """Sends and receives whole frames. Sending from several threads is fine. Raises RetryLater when it is broken."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._sending = threading.Lock()

    def send(self, message: msgspec.Struct) -> None:
        data = msgspec.json.encode(message)
        try:
            with self._sending:
                self._connection.sendall(_LENGTH.pack(len(data)) + data)
        except OSError as error:
            raise RetryLater(f"the other side is gone: {error}") from error

    def receive(self, kind: type[T]) -> T:
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size))
        if length > _LARGEST:
            raise RetryLater(f"a message of {length} bytes is too large", hint=f"states may have {_LARGEST} bytes")
        try:
            return msgspec.json.decode(self._read(length), type=kind)
        except msgspec.MsgspecError as error:
            raise RetryLater(f"not a message of ours: {error}") from error

    def settle(self) -> None:
        """From here on messages may be far apart."""
        self._connection.settimeout(None)

    def is_gone(self) -> bool:
        """Whether the other side has ended and nothing of it is left to be read."""
        try:
            return not self._connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        with suppress(OSError):  # it was broken already
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def _read(self, size: int) -> bytes:
        data = bytearray()
        try:
            while len(data) < size:
                piece = self._connection.recv(min(size - len(data), 2**20))
                if not piece:
                    raise RetryLater("the other side has ended")
                data += piece
        except OSError as error:
            raise RetryLater(f"the other side is gone: {error}") from error
        return bytes(data)


def join_driver(link: Link, name: str) -> tuple[Channel, list[bytes]]:
    """Of a worker: the channel to the driver, and the states that the instance begins with. Raises RetryLater, Conflict
    (it is not the driver of this attempt)."""
    try:
        connection = socket.create_connection((link.host, link.port), _SECONDS)
    except OSError as error:
        raise RetryLater(f"the driver at {link.host}:{link.port} is not reached: {error}") from error
    channel = Channel(connection)
    try:
        challenge, nonce = channel.receive(Challenge), secrets.token_hex(16)
        channel.send(
            Hello(
                version=VERSION,
                attempt=link.attempt,
                proof=_proof(link.secret, "worker", challenge.nonce),
                nonce=nonce,
                name=name,
                host=socket.gethostname(),
                pid=os.getpid(),
            )
        )
        answer = channel.receive(Welcome)
    except BaseException:
        channel.close()
        raise
    if not hmac.compare_digest(answer.proof, _proof(link.secret, "driver", nonce)):
        channel.close()
        raise Conflict(f"{link.host}:{link.port} is not the driver of this attempt")
    channel.settle()
    return channel, answer.states


def recognise(connection: socket.socket, link: Link) -> tuple[Channel, Hello]:
    """Of the driver: who has connected; it waits for ``welcome``. Raises RetryLater, Conflict (not of this attempt)."""
    connection.settimeout(_SECONDS)
    channel, nonce = Channel(connection), secrets.token_hex(16)
    channel.send(Challenge(nonce))
    hello = channel.receive(Hello)
    expected = _proof(link.secret, "worker", nonce)
    if hello.version != VERSION or hello.attempt != link.attempt or not hmac.compare_digest(hello.proof, expected):
        raise Conflict(f"process {hello.pid} on {hello.host} is no worker of attempt {link.attempt}")
    return channel, hello


def welcome(channel: Channel, hello: Hello, link: Link, states: list[bytes]) -> None:
    """Raises RetryLater."""
    channel.send(Welcome(proof=_proof(link.secret, "driver", hello.nonce), states=states))
    channel.settle()


def _proof(secret: str, side: str, nonce: str) -> str:
    return hmac.new(bytes.fromhex(secret), f"{side} {nonce}".encode(), "sha256").hexdigest()
