"""A ZooKeeper of one or several servers on this machine, each in its own process; for local clusters and tests."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from pathlib import Path

from emberkeep.base.compatible import Compatible
from emberkeep.base.configuration.layout import TlsFiles
from emberkeep.base.errors import Fatal
from emberkeep.base.tls.contexts import client_context
from emberkeep.client.clusters.daemon_process import Daemon, DaemonCommand, start_daemon

READY_TIMEOUT = 120.0  # seconds; a JVM starts slowly on a busy machine
_PROBE_TIMEOUT = 2.0
_POLL = 0.1
_LEADING = (b"Mode: standalone", b"Mode: leader")
_SERVING = (*_LEADING, b"Mode: follower")
_MODULE = "zookeeper"
_ADDRESS = "127.0.0.1"


class ZooKeeperServer(Compatible, frozen=True, kw_only=True):
    """One server of an ensemble, with its data directory and the ports that it binds.

    ``tls``: certificate and key, in one file, and the CA that proves them; None: the server does not encrypt.
    """

    number: int
    directory: str
    address: str
    client_port: int
    quorum_port: int
    election_port: int
    tls: TlsFiles | None = None

    @property
    def connect(self) -> str:
        """The address for clients."""
        return f"{self.address}:{self.client_port}"


def plan_ensemble(directory: Path, count: int, tls: TlsFiles | None = None) -> tuple[ZooKeeperServer, ...]:
    """Return servers on ports that are free now. ``tls``: see ``ZooKeeperServer``. Raises Fatal."""
    ports = iter(_free_ports(_ADDRESS, 3 * count))
    return tuple(
        ZooKeeperServer(
            number=number,
            directory=str(directory / str(number)),
            address=_ADDRESS,
            client_port=next(ports),
            quorum_port=next(ports),
            election_port=next(ports),
            tls=tls,
        )
        for number in range(1, count + 1)
    )


def quorum_of(servers: tuple[ZooKeeperServer, ...]) -> str:
    """Return the value of ``high-availability.zookeeper.quorum``."""
    return ",".join(server.connect for server in servers)


def start_server(server: ZooKeeperServer, servers: tuple[ZooKeeperServer, ...]) -> Daemon:
    """Start one of ``servers``, on its existing data if there is any. Raises Fatal."""
    arguments = [
        *("--directory", server.directory),
        *("--address", server.address),
        *("--client-port", str(server.client_port)),
        *("--number", str(server.number)),
    ]
    if server.tls is not None:
        arguments += ["--certificate", server.tls.certificate, "--ca", server.tls.ca]
    if len(servers) > 1:
        for peer in servers:
            host = "" if peer.address == server.address else f":{peer.address}"
            arguments += ["--peer", f"{peer.number}:{peer.quorum_port}:{peer.election_port}{host}"]
    return start_daemon(DaemonCommand(_MODULE, tuple(arguments), Path(server.directory) / "logs"))


async def wait_until_serving(server: ZooKeeperServer, daemon: Daemon) -> None:
    """Wait until the server answers clients, which takes a quorum if there are several servers. Raises Fatal."""
    deadline = time.monotonic() + READY_TIMEOUT
    while not await is_serving(server):
        if daemon.process.poll() is not None:
            await daemon.ready()  # raises the daemon's announced error
        if time.monotonic() > deadline:
            raise Fatal(
                f"ZooKeeper at {server.connect} does not serve after {READY_TIMEOUT:g} s",
                hint=f"its output is in {daemon.command.err}",
            )
        await asyncio.sleep(_POLL)


async def is_serving(server: ZooKeeperServer) -> bool:
    """True if the server serves clients now. Raises Fatal if the CA that proves it cannot be read."""
    status = await _status(server)
    return any(mode in status for mode in _SERVING)


async def leads(server: ZooKeeperServer) -> bool:
    """True if the server leads its ensemble now, or is alone. Raises what ``is_serving`` raises."""
    status = await _status(server)
    return any(mode in status for mode in _LEADING)


async def _status(server: ZooKeeperServer) -> bytes:
    """Return what the server says of itself; b"" if it does not answer."""
    tls = None if server.tls is None else client_context(server.tls.ca)
    try:
        async with asyncio.timeout(_PROBE_TIMEOUT):
            reader, writer = await asyncio.open_connection(server.address, server.client_port, ssl=tls)
            try:
                writer.write(b"srvr")
                return await reader.read()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return b""


def _free_ports(address: str, count: int) -> list[int]:
    """Return different ports that are free. Another program may take one before it is used; using it then fails."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        try:
            for each in sockets:
                each.bind((address, 0))
        except OSError as error:
            raise Fatal(f"no free ports on {address}: {error.strerror}") from error
        return [each.getsockname()[1] for each in sockets]
