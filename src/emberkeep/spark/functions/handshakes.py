"""Connections whose peer has not yet proven that it is a worker of the job: how many there may be, and how one ends."""

from __future__ import annotations

import socket
from contextlib import suppress
from dataclasses import dataclass

from emberkeep.base.connections import ConnectionLimits

# A worker connects once, and its handshake takes milliseconds. A node has one worker for each core.
LIMITS = ConnectionLimits(open=512, unproven=512, unproven_of_address=128)


@dataclass(frozen=True, eq=False)
class Handshake:
    """A connection, from its acceptance until its peer has proven that it is a worker of the job, or is refused."""

    connection: socket.socket
    address: str

    def drop(self) -> None:
        """End the connection. The thread that reads from it notices and closes it."""
        with suppress(OSError):  # the peer has gone already
            self.connection.shutdown(socket.SHUT_RDWR)
