"""Our HTTP ports. A port is bound first, so that its address can be published, and served once everything is ready."""

from __future__ import annotations

import errno
import socket
import ssl
from dataclasses import dataclass, field

from aiohttp import web

from emberkeep.adapters.http.listener import Listener
from emberkeep.adapters.http.served_connection import LOGIN_SECONDS, close_unproven, without_expectations
from emberkeep.base.configuration.hosts import join_host_port
from emberkeep.base.connections import ConnectionLimits, Connections, process_limits
from emberkeep.base.errors import Fatal

SHUTDOWN_SECONDS = 2.0  # granted to running requests when the server closes


@dataclass(frozen=True)
class BoundPort:
    """A port that this process has bound. Connections are refused until it is served.

    ``address`` is "host:port" as other processes reach it. It may differ from what was bound.
    """

    host: str  # as it is announced
    bind_host: str
    port: int  # as it is announced
    bound: int
    option: str  # the key that sets the port, for errors
    socket: socket.socket = field(repr=False)
    connections: Connections = field(repr=False)

    @property
    def address(self) -> str:
        return join_host_port(self.host, self.port)

    def close(self) -> None:
        """Release the port. Idempotent; unnecessary once the port was served."""
        self.socket.close()


@dataclass(frozen=True)
class ServedPort:
    """A served port. ``address`` is "host:port" as other processes reach it."""

    address: str
    _listener: Listener
    _runner: web.AppRunner

    async def close(self) -> None:
        """Stop listening, give running requests SHUTDOWN_SECONDS, close all connections. Idempotent."""
        self._listener.close()
        await self._runner.cleanup()


def bind_port(
    host: str,
    port: int,
    *,
    announced: str = "",
    announced_port: int = 0,
    port_option: str = "rest.port",
    limits: ConnectionLimits | None = None,
) -> BoundPort:
    """Bind ``host`` and ``port`` (0: any free one). Raises Fatal: port in use, unknown address, no permission.

    ``announced`` and ``announced_port``: where other processes reach it, by default what is bound. ``limits``: limits
    on the port's connections, by default derived from this process's limit on open files.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
        try:
            # Connections of the previous process in TIME_WAIT must not prevent us from binding a fixed port. If the
            # system chooses the port, the option could give two processes the same one.
            if port != 0:
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.setblocking(False)
        except BaseException:
            bound.close()
            raise
    except (OSError, UnicodeError) as error:
        raise bind_error(error, host, port, port_option) from None
    connections = Connections(limits or process_limits())
    number = bound.getsockname()[1]
    return BoundPort(announced or host, host, announced_port or number, number, port_option, bound, connections)


async def serve_http(
    app: web.Application,
    port: BoundPort,
    tls: ssl.SSLContext | None = None,
    *,
    login_seconds: float = LOGIN_SECONDS,
) -> ServedPort:
    """Serve ``app`` at ``port`` until the ServedPort is closed. Raises Fatal if another process took the port.

    ``tls`` encrypts all connections. ``login_seconds``: a connection without a valid login is closed after this time.
    """
    runner = await set_up(app)
    listener = Listener(port.socket, port.connections, lambda: runner.server, tls, login_seconds)
    try:
        listener.open()
    except OSError as error:
        port.close()
        await runner.cleanup()
        raise bind_error(error, port.bind_host, port.bound, port.option) from None
    return ServedPort(port.address, listener, runner)


async def set_up(app: web.Application) -> web.AppRunner:
    """Return a runner whose server is ready for connections."""
    app.on_response_prepare.append(close_unproven)
    runner = web.AppRunner(app, shutdown_timeout=SHUTDOWN_SECONDS)
    await runner.setup()
    if runner.server is not None:
        runner.server.request_handler = without_expectations(runner.server.request_handler)
    return runner


def bind_error(error: OSError | UnicodeError, host: str, port: int, port_option: str) -> Fatal:
    if isinstance(error, (socket.gaierror, UnicodeError)):
        return Fatal(f"cannot bind {host}: this machine cannot resolve the name", hint="use an address of this machine")
    if error.errno == errno.EADDRINUSE:
        return Fatal(
            f"port {port} on {host} is in use by another process",
            hint=f"stop that process, or set {port_option} to another port (0: any free one)",
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return Fatal(f"{host} is not an address of this machine", hint="check the bind address")
    if error.errno in (errno.EACCES, errno.EPERM):
        return Fatal(f"no permission to bind port {port} on {host}", hint=f"set {port_option} to 1024 or above")
    return Fatal(f"cannot bind port {port} on {host}: {error.strerror or error}", hint=f"check {port_option}")
