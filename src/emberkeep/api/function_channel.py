"""Frames of JSON over one connection between an instance in a Python worker and the driver."""

from __future__ import annotations

import socket
import struct
import threading
import time
from contextlib import suppress
from typing import TypeVar

import msgspec

from emberkeep.api.encrypted_connection import Encryption
from emberkeep.base.decoding import from_json
from emberkeep.base.errors import Fatal, RetryLater

_LENGTH = struct.Struct(">I")
LARGEST = 64 * 2**20  # bytes of one frame
# TCP limits for a peer that vanished without closing, such as a node without power. Spark may report the loss earlier.
_IDLE_SECONDS, _PROBE_SECONDS, _PROBES = 15, 5, 3
_UNANSWERED_MS = 30_000

T = TypeVar("T", bound=msgspec.Struct)


class Channel:
    """Sends and receives whole frames; several threads may send. Raises RetryLater when the connection is broken."""

    def __init__(self, connection: socket.socket, encryption: Encryption | None = None) -> None:
        """``encryption``: its handshake is complete. None: the frames are not encrypted."""
        self._connection = connection
        self._encryption = encryption
        self._sending = threading.Lock()

    def send(self, message: msgspec.Struct) -> None:
        """Send one message. Raises Fatal, and sends nothing, if it is too large."""
        data = msgspec.json.encode(message)
        if len(data) > LARGEST:
            raise Fatal(
                f"a message of {len(data)} bytes is larger than the limit of {LARGEST}",
                hint="a state grows by a third when it is sent: keep large data in Spark's own state",
            )
        try:
            with self._sending:
                frame = _LENGTH.pack(len(data)) + data
                self._connection.sendall(frame if self._encryption is None else self._encryption.encrypted(frame))
        except OSError as error:
            raise RetryLater(f"the connection to the other side is broken: {error}") from error

    def receive(self, kind: type[T], *, largest: int = LARGEST, seconds: float | None = None) -> T:
        """Receive one message of at most ``largest`` bytes.

        ``seconds``: time limit for the whole message, however its bytes arrive. None: the connection's own timeout, for
        each piece. Raises RetryLater.
        """
        before = self._connection.gettimeout()
        until = None if seconds is None else time.monotonic() + seconds
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size, until))
        if length > largest:
            raise RetryLater(f"a message of {length} bytes is larger than the limit of {largest}")
        data = self._read(length, until)
        self._connection.settimeout(before)
        try:
            return from_json(data, kind)
        except msgspec.MsgspecError as error:
            raise RetryLater(f"the message is not valid: {error}") from error

    def settle(self) -> None:
        """Allow any time between messages from now on, and use TCP keep-alive to detect a vanished peer."""
        connection = self._connection
        try:
            connection.settimeout(None)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE_SECONDS)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_SECONDS)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNANSWERED_MS)
        except OSError as error:
            raise RetryLater(f"the connection to the other side is broken: {error}") from error

    def has_ended(self) -> bool:
        """True if the peer is known to be gone and nothing from it is left to receive.

        An encrypted connection ends without a last TLS record, so nothing but messages is ever left.
        """
        try:
            return not self._connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        with suppress(OSError):  # it was already broken
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def _read(self, size: int, until: float | None) -> bytes:
        data = bytearray()
        try:
            while len(data) < size:
                if until is not None:
                    left = until - time.monotonic()
                    if left <= 0:
                        raise RetryLater("the message did not arrive in time")
                    self._connection.settimeout(left)
                piece = self._receive(min(size - len(data), 2**20))
                if not piece:
                    raise RetryLater("the other side closed the connection")
                data += piece
        except OSError as error:
            raise RetryLater(f"the connection to the other side is broken: {error}") from error
        return bytes(data)

    def _receive(self, size: int) -> bytes:
        """Return 1 to ``size`` bytes; b"" at the end of the connection."""
        if self._encryption is None:
            return self._connection.recv(size)
        return self._encryption.read(size, self._connection.recv)
