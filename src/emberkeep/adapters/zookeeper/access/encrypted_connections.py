"""Encrypted connections to ZooKeeper, for kazoo.

kazoo's own connections trust the system's CAs besides those that are configured, and do not notice a second reply that
has arrived in one TLS record with the first.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Sequence
from typing import Any

from kazoo.hosts import collect_hosts

from emberkeep.adapters.zookeeper.access.connections import PromptHandler
from emberkeep.adapters.zookeeper.access.settings import EncryptionFiles, SessionSettings


def encrypted_context(encryption: EncryptionFiles) -> ssl.SSLContext:
    """Return a context for connections to ZooKeeper, with the client certificate if there is one. Raises OSError."""
    context = ssl.create_default_context(cafile=encryption.ca_file)
    if encryption.certificate_file and encryption.key_file:
        context.load_cert_chain(encryption.certificate_file, encryption.key_file)
    return context


class EncryptedHandler(PromptHandler):
    """Connects with TLS to servers that prove their host name by a configured CA, or by one of the system."""

    def __init__(self, encryption: EncryptionFiles, session_timeout: float, servers: int) -> None:
        super().__init__(session_timeout, servers)
        self.encryption = encryption

    def secured(self, connected: socket.socket, hostname: str, due: float) -> ssl.SSLSocket:
        """Encrypt. The files are read each time: a renewed certificate needs no restart. Raises OSError."""
        context = encrypted_context(self.encryption)
        connected.settimeout(max(0.001, due - time.monotonic()))  # for the whole handshake
        return context.wrap_socket(connected, server_hostname=hostname)

    def ready(self, reading: Sequence[Any], *others: Any) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
        """Wait as ``select.select`` does, but return at once any socket with decrypted data that was not read."""
        pending = [each for each in reading if isinstance(each, ssl.SSLSocket) and each.pending()]
        return (pending, [], []) if pending else super().ready(reading, *others)


def handler_for(settings: SessionSettings) -> PromptHandler:
    """Return what connects as ``settings`` say."""
    servers = len(collect_hosts(settings.hosts)[0])
    if settings.tls is None:
        return PromptHandler(settings.session_timeout, servers)
    return EncryptedHandler(settings.tls, settings.session_timeout, servers)
