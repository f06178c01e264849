"""Keep the port of a server that has ended, so that nobody else gets it."""

from __future__ import annotations

import socket


def taken_port(address: str, port: int) -> socket.socket:
    """Take a port and refuse connections to it, until the result is closed. The server itself can use it again."""
    taken = socket.socket()
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of the server may linger
    taken.bind((address, port))
    return taken
