"""The Spark Connect server of this process that clients may use. The main thread sets it, other threads read it."""

from __future__ import annotations

from typing import Final

from emberkeep.spark.doors.connect_server import ConnectServer

PROGRAM: Final = "emberkeep.spark.doors.connect_run"  # the module of jobs that serve clients


class _Served:
    server: ConnectServer | None = None


def serve_clients(server: ConnectServer) -> None:
    """Let clients reach the server from now on."""
    _Served.server = server


def served() -> ConnectServer | None:
    """Return the server; None before its start."""
    return _Served.server
