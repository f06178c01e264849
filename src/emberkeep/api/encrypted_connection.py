"""TLS for the connections between instances in Python workers and the driver.

A thread reads from a connection while others write to it, which OpenSSL does not permit for one TLS session. So the
session works in memory, behind a lock that is never held during a transfer.

The worker knows the driver's certificate by its fingerprint, which travels with the function, like the attempt's
secret. No CA is involved.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
import ssl
import threading
import time
from collections.abc import Callable

from emberkeep.base.errors import Conflict, RetryLater

_PIECE = 2**16  # bytes that are received at a time


class Encryption:
    """One TLS session over a connection, from its handshake on. One thread at a time may read, and one may write."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        is_server = context.protocol is ssl.PROTOCOL_TLS_SERVER
        self._session = context.wrap_bio(self._incoming, self._outgoing, server_side=is_server)
        self._lock = threading.Lock()

    def begin(self, connection: socket.socket, seconds: float) -> None:
        """Complete the handshake within ``seconds``. Raises RetryLater."""
        until = time.monotonic() + seconds
        try:
            while not self._is_complete(connection):
                left = until - time.monotonic()
                if left <= 0:
                    raise RetryLater("the TLS handshake took too long")
                connection.settimeout(left)
                data = connection.recv(_PIECE)
                if not data:
                    raise RetryLater("the other side closed the connection during the TLS handshake")
                self._incoming.write(data)
        except OSError as error:
            raise RetryLater(f"the TLS handshake failed: {error}") from error
        connection.settimeout(seconds)

    def _is_complete(self, connection: socket.socket) -> bool:
        try:
            self._session.do_handshake()
            is_complete = True
        except ssl.SSLWantReadError:
            is_complete = False
        if self._outgoing.pending:
            connection.sendall(self._outgoing.read())
        return is_complete

    def check(self, fingerprint: str) -> None:
        """Check the other side's certificate. ``fingerprint``: its SHA-256 in hex. Raises Conflict."""
        certificate = self._session.getpeercert(binary_form=True) or b""
        if not hmac.compare_digest(hashlib.sha256(certificate).hexdigest(), fingerprint):
            raise Conflict("it shows another certificate")

    def encrypted(self, data: bytes) -> bytes:
        """Return the bytes to send for ``data``, in the order of the calls."""
        with self._lock:
            self._session.write(data)
            return self._outgoing.read()

    def read(self, size: int, receive: Callable[[int], bytes]) -> bytes:
        """Return 1 to ``size`` decrypted bytes; b"" if the connection has ended. Raises OSError.

        ``receive``: returns up to as many bytes from the connection as it is asked for; b"" at its end.
        """
        while True:
            with self._lock:
                try:
                    return self._session.read(size)
                except ssl.SSLWantReadError:
                    pass  # a record is not complete
            data = receive(_PIECE)
            if not data:
                return b""
            with self._lock:
                self._incoming.write(data)


def worker_context() -> ssl.SSLContext:
    """Return the context of workers, which check the driver's certificate themselves after the handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
