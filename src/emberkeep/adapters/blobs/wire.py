"""HTTP/1.1 over blocking sockets, for transfers that run in threads: just enough to move large bodies fast.

aiohttp parses bodies on the event loop, in small pieces; here a thread fills a large buffer at once. Both ends are
ours, so a small subset of HTTP is enough. A body has a Content-Length, and a connection is reused only after the whole
response was read. Anything else is a BrokenAnswer. Each wait is bounded, as is the sum of many short ones.
"""

from __future__ import annotations

import contextlib
import re
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

from emberkeep.base.errors import RetryLater
from emberkeep.base.tls.contexts import UNPROVEN_HINT, handshake_failure
from emberkeep.protocol.encoding.wire import check_address

CONNECT_SECONDS = 10.0
SILENCE_SECONDS = 30.0  # without a byte, after which an exchange fails
SLOWEST_PACE = 16 * 1024  # bytes per second that a body must reach on average, once SILENCE_SECONDS have passed
_HEAD_BYTES = 32 * 1024
_BUFFER_BYTES = 1024**2
_IDLE_SECONDS = 15.0  # a kept connection is reused only within this time: the server closes idle ones later
_IDLE_PER_ADDRESS = 16
_STATUS_LINE = re.compile(rb"HTTP/1\.1 ([1-5][0-9]{2})(?: [^\r\n]*)?")
_DIGITS = re.compile(r"[0-9]{1,18}")
_STATUS_WITHOUT_BODY = (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)

Write = Callable[[memoryview], None]


class Aborted(RetryLater):
    """The transfer was aborted: its caller was cancelled, or the process is ending."""


class BrokenAnswer(RetryLater):
    """The connection broke, or the response on it is unusable. The connection cannot be read any further."""


class TransferAbort:
    """Aborts a transfer from another thread, even while the transfer waits for bytes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._set = False

    def set(self) -> None:
        """Abort the transfer. Idempotent."""
        with self._lock:
            self._set = True
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    # SSLSocket.shutdown would first remove the encryption, and another thread may be about to send.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    @property
    def is_set(self) -> bool:
        return self._set

    def watch(self, used: socket.socket | None) -> None:
        """Record the socket that the transfer uses now; None if it uses none. Raises Aborted after ``set``."""
        with self._lock:
            self._socket = used
            if self._set:
                raise Aborted("the transfer was abandoned")


@dataclass(frozen=True)
class TransferRequest:
    """A request. ``target``: path and query. ``body``: None for a request without one."""

    method: str
    target: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None

    def encode(self, address: str, authorization: str) -> bytes:
        """Return the bytes to send. ``authorization``: header lines that all requests have."""
        lines = [f"{self.method} {self.target} HTTP/1.1\r\nHost: {address}\r\n{authorization}"]
        lines += [f"{name}: {value}\r\n" for name, value in self.headers.items()]
        if self.body is not None:
            lines.append(f"Content-Type: application/octet-stream\r\nContent-Length: {len(self.body)}\r\n")
        return ("".join(lines) + "\r\n").encode() + (self.body or b"")


@dataclass(frozen=True)
class ResponseHead:
    """The head of a response. Header names are in lower case. ``length``: of the body, in bytes."""

    status: int
    headers: Mapping[str, str]
    length: int


class ConnectionPool:
    """A pool of connections to any number of servers. Any thread may use it."""

    def __init__(self, token: str, *, tls: ssl.SSLContext | None = None, silence: float = SILENCE_SECONDS) -> None:
        """``tls`` verifies each server before anything is sent; None: the servers do not encrypt.

        ``silence``: seconds without a byte after which an exchange fails.
        """
        self.scheme = "http" if tls is None else "https"
        self._tls = tls
        self._authorization = f"Authorization: Bearer {token}\r\nAccept-Encoding: identity\r\n"
        self._silence = silence
        self._lock = threading.Lock()
        self._idle: dict[str, list[tuple[float, socket.socket]]] = {}
        self._closed = False

    @contextlib.contextmanager
    def exchange(
        self, abort: TransferAbort, address: str, request: TransferRequest
    ) -> Iterator[tuple[ResponseHead, Callable[[Write], None]]]:
        """Send a request. Yield the response's head and a function that reads the body; call it at most once.

        Raises RetryLater, BrokenAnswer (also from reading the body), Aborted, InvalidInput (malformed address).
        """
        line, answer = self._ask(abort, address, request)
        keep = False
        try:
            yield answer, lambda write: line.read_body(answer.length, write)
            keep = line.is_clean and answer.headers.get("connection", "").lower() != "close"
        finally:
            with contextlib.suppress(Aborted):
                abort.watch(None)
            self._give_back(address, line.socket, keep)

    def close(self) -> None:
        """Close idle connections. A connection in use is closed when its exchange ends. Idempotent."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, {}
        for kept in idle.values():
            for _, connection in kept:
                connection.close()

    def _ask(self, abort: TransferAbort, address: str, request: TransferRequest) -> tuple[_Line, ResponseHead]:
        """Send a request on a kept connection, or on a new one if the server has closed the kept one."""
        sent = request.encode(address, self._authorization)
        while True:
            kept = self._take(address)
            line = _Line(kept or _connect(address, self._tls), address, self._silence)
            try:
                abort.watch(line.socket)
                return line, line.ask(sent)
            except BrokenAnswer:
                line.socket.close()
                if abort.is_set:
                    raise Aborted("the transfer was abandoned") from None
                if kept is None or line.heard:
                    raise
            except BaseException:
                line.socket.close()
                raise

    def _take(self, address: str) -> socket.socket | None:
        with self._lock:
            kept = self._idle.get(address, [])
            while kept:
                since, connection = kept.pop()
                if time.monotonic() - since < _IDLE_SECONDS and not _has_input(connection):
                    return connection
                connection.close()
        return None

    def _give_back(self, address: str, connection: socket.socket, keep: bool) -> None:
        with self._lock:
            self._drop_old()
            kept = self._idle.get(address, [])
            if keep and not self._closed and len(kept) < _IDLE_PER_ADDRESS:
                self._idle[address] = [*kept, (time.monotonic(), connection)]
                return
        connection.close()

    def _drop_old(self) -> None:
        """Close what has been idle for too long: peers come and go, and many are asked only once."""
        now = time.monotonic()
        for address, kept in list(self._idle.items()):
            young = [each for each in kept if now - each[0] < _IDLE_SECONDS]
            for _, connection in kept[: len(kept) - len(young)]:  # the oldest come first
                connection.close()
            if young:
                self._idle[address] = young
            else:
                del self._idle[address]


def _has_input(connection: socket.socket) -> bool:
    """True if the server has closed an idle connection, or sent unexpected bytes on it."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))


def _connect(address: str, tls: ssl.SSLContext | None) -> socket.socket:
    """Return a connection. With ``tls``, the server has proven that it belongs to this cluster.

    Raises RetryLater, InvalidInput.
    """
    check_address(address)
    host, _, port = address.rpartition(":")
    try:
        connection = socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS)
    except (OSError, UnicodeError) as error:
        raise RetryLater(f"cannot connect to {address}: {getattr(error, 'strerror', None) or error}") from None
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if tls is None:
        return connection
    try:
        return tls.wrap_socket(connection, server_hostname=host.strip("[]"))
    except TimeoutError:
        connection.close()
        raise RetryLater(f"{address} did not complete the TLS handshake within {CONNECT_SECONDS:g} s") from None
    except OSError as error:
        connection.close()
        raise RetryLater(
            f"{address} has not proven to be of this cluster: {handshake_failure(error)}", hint=UNPROVEN_HINT
        ) from None


class _Line:
    """One request and its response on a connection."""

    def __init__(self, connection: socket.socket, address: str, silence: float) -> None:
        self.socket = connection
        self.heard = False
        self.is_clean = False  # the whole response was read, and nothing beyond it
        self._address = address
        self._silence = silence
        self._rest = b""  # bytes of the body that were read with the head
        connection.settimeout(silence)

    def ask(self, request: bytes) -> ResponseHead:
        """Send the request and return the head of the response. Raises BrokenAnswer."""
        try:
            self.socket.sendall(request)
        except OSError as error:
            # A server that refuses a request replies at once and reads no further. Its reply says why.
            try:
                return self._read_head()
            except BrokenAnswer:
                raise self._broken(error) from None
        return self._read_head()

    def _read_head(self) -> ResponseHead:
        started = time.monotonic()
        data = b""
        while (end := data.find(b"\r\n\r\n")) < 0:
            if len(data) > _HEAD_BYTES:
                raise BrokenAnswer(f"{self._address} sent a header that is too long")
            if time.monotonic() - started > self._silence:
                raise BrokenAnswer(f"{self._address} did not send a complete header within {self._silence:g} s")
            try:
                received = self.socket.recv(_HEAD_BYTES * 2)
            except OSError as error:
                raise self._broken(error) from None
            if not received:
                raise BrokenAnswer(f"{self._address} closed the connection without an answer")
            self.heard = True
            data += received
        self._rest = data[end + 4 :]
        answer = self._parse_head(data[:end])
        self.is_clean = answer.length == 0 and not self._rest
        return answer

    def _parse_head(self, data: bytes) -> ResponseHead:
        first, *lines = data.split(b"\r\n")
        match = _STATUS_LINE.fullmatch(first)
        if match is None:
            raise BrokenAnswer(f"the process at {self._address} does not speak HTTP/1.1")
        headers: dict[str, str] = {}
        for line in lines:
            name, colon, value = line.decode("latin-1").partition(":")
            if not colon:
                raise BrokenAnswer(f"{self._address} sent a broken header")
            headers[name.strip().lower()] = value.strip()
        status = int(match.group(1))
        length = headers.get("content-length", "0" if status in _STATUS_WITHOUT_BODY else "")
        if "transfer-encoding" in headers or not _DIGITS.fullmatch(length):
            raise BrokenAnswer(f"{self._address} sent an answer without a length (HTTP status {status})")
        return ResponseHead(status, headers, int(length))

    def read_body(self, length: int, write: Write) -> None:
        """Pass all ``length`` bytes to ``write``, in pieces. Raises BrokenAnswer, and what ``write`` raises."""
        head = self._rest[:length]
        if head:
            write(memoryview(head))
        done = len(head)
        buffer = memoryview(bytearray(min(_BUFFER_BYTES, length - done)))
        started = time.monotonic()
        while done < length:
            try:
                received = self.socket.recv_into(buffer[: length - done])
            except OSError as error:
                raise self._broken(error) from None
            if received == 0:
                raise BrokenAnswer(f"{self._address} closed the connection after {done} of {length} bytes")
            write(buffer[:received])
            done += received
            elapsed = time.monotonic() - started
            if elapsed > self._silence and done < elapsed * SLOWEST_PACE:
                raise BrokenAnswer(f"{self._address} is too slow: {done} of {length} bytes in {elapsed:.0f} s")
        self.is_clean = len(self._rest) <= length

    def _broken(self, error: Exception) -> BrokenAnswer:
        if isinstance(error, TimeoutError):
            return BrokenAnswer(f"{self._address} did not send or take a byte for {self._silence:g} s")
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return BrokenAnswer(f"the connection to {self._address} broke: {reason}")
