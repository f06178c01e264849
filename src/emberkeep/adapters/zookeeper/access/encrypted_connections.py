"""Encrypted connections to ZooKeeper, for kazoo.

kazoo's own connections trust the system's CAs besides those that are configured, and do not notice a second reply that
has arrived in one TLS record with the first.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

from emberkeep.adapters.zookeeper.access.settings import EncryptionFiles


def encrypted_context(encryption: EncryptionFiles) -> ssl.SSLContext:
    """Return a context for connections to ZooKeeper, with the client certificate if there is one. Raises OSError."""
    context = ssl.create_default_context(cafile=encryption.ca_file)
    if encryption.certificate_file and encryption.key_file:
        context.load_cert_chain(encryption.certificate_file, encryption.key_file)
    return context


class EncryptedHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """Connects with TLS to servers that prove their host name by a configured CA, or by one of the system."""

    def __init__(self, encryption: EncryptionFiles) -> None:
        super().__init__()
        self.encryption = encryption

    def create_connection(
        self, address: tuple[str, int], hostname: str | None = None, timeout: float | None = None, **_: Any
    ) -> ssl.SSLSocket:
        """Connect. The files are read each time: a renewed certificate needs no restart. Raises OSError."""
        context = encrypted_context(self.encryption)
        connected = socket.create_connection(address, timeout)
        try:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return context.wrap_socket(connected, server_hostname=hostname or address[0])
        except BaseException:
            connected.close()
            raise

    def select(self, reading: Sequence[Any], *others: Any) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
        """Wait as ``select.select`` does, but return at once any socket with decrypted data that was not read."""
        ready = [each for each in reading if isinstance(each, ssl.SSLSocket) and each.pending()]
        return (ready, [], []) if ready else super().select(reading, *others)
