"""The port of a driver to which workers with functions connect.

A connection is handed over once it has proven that it comes from a worker of the attempt. Unproven connections are
limited, so that strangers cannot keep workers out.
"""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Callable
from functools import partial

import structlog

from emberkeep.api.function_channel import Channel
from emberkeep.api.function_link import Hello, Link, recognise
from emberkeep.base.connections import Connections
from emberkeep.base.errors import EmberkeepError, Unavailable
from emberkeep.base.processes.threads import start_thread
from emberkeep.spark.functions.encryption import LinkEncryption
from emberkeep.spark.functions.handshakes import LIMITS, Handshake

log = structlog.get_logger(__name__)

_ACCEPT_PAUSE = 0.2  # seconds before the next connection is accepted after an error

# Serves one worker until it leaves. An EmberkeepError refuses the worker: the port closes its connection.
Serve = Callable[[Channel, Hello, Link], None]


class WorkerPort:
    """Listens from the first call of ``open`` on. Each connection has a thread of its own.

    ``host``: address at which executors reach this process. ``encryption``: None if connections are not encrypted.
    ``bind_host``: the address that the port binds; empty: ``host``.
    """

    def __init__(self, host: str, attempt: int, encryption: LinkEncryption | None = None, bind_host: str = "") -> None:
        self._host = host
        self._bind_host = bind_host or host
        self._attempt = attempt
        self._encryption = encryption
        self._opening = threading.RLock()  # a signal handler of the script may interrupt its holder
        self._link: Link | None = None
        self._handshakes = Connections(LIMITS)

    def open(self, serve: Serve) -> Link:
        """Return the address to which workers connect; the first call starts listening. Raises OSError."""
        with self._opening:
            if self._link is None:
                listening = _bound(self._bind_host)
                port = int(listening.getsockname()[1])
                plain = Link(self._host, port, self._attempt, secrets.token_hex(32))
                self._link = plain if self._encryption is None else self._encryption.link(plain)
                arguments = (listening, self._link, serve)
                name = "emberkeep-executor-functions"
                threading.Thread(target=self._accept, args=arguments, name=name, daemon=True).start()
            return self._link

    def _accept(self, listening: socket.socket, link: Link, serve: Serve) -> None:
        while True:
            try:
                connection, (address, *_) = listening.accept()
            except OSError as error:  # no descriptor is free, or the peer has gone already
                log.warning("cannot accept the connection of a worker", reason=str(error))
                self._handshakes.displace_one()
                time.sleep(_ACCEPT_PAUSE)
                continue
            handshake = Handshake(connection, address)
            self._handshakes.admit(handshake)
            try:
                start_thread(partial(self._serve, handshake, link, serve), "emberkeep-executor-function")
            except Unavailable as error:
                log.warning("cannot serve the connection of a worker", reason=str(error))
                self._handshakes.end(handshake)
                connection.close()
                time.sleep(_ACCEPT_PAUSE)

    def _serve(self, handshake: Handshake, link: Link, serve: Serve) -> None:
        try:
            channel, hello = self._recognise(handshake, link)
            serve(channel, hello, link)
        except EmberkeepError as error:
            log.warning("refused the connection of a worker", reason=str(error))
            handshake.connection.close()

    def _recognise(self, handshake: Handshake, link: Link) -> tuple[Channel, Hello]:
        """Return the channel and the greeting of a connection that proves to come from a worker of this attempt.

        Raises Conflict (it comes from another process), RetryLater.
        """
        try:
            context = None if self._encryption is None else self._encryption.context
            return recognise(handshake.connection, link, context)
        finally:
            self._handshakes.end(handshake)


def _bound(host: str) -> socket.socket:
    """Listen at any free port of an address of this machine, in IPv4 or IPv6. Raises OSError."""
    (family, *_, address), *_ = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return socket.create_server(address, family=family, backlog=256)
