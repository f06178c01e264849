"""Real ZooKeeper servers for tests, and clients that look behind the stores' backs."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

from kazoo.client import KazooClient

from emberkeep.adapters.zookeeper.access.settings import SessionSettings
from emberkeep.adapters.zookeeper.access.signatures import RecordSigner, signing_key
from emberkeep.adapters.zookeeper.session import SessionState, ZooKeeperSession
from emberkeep.base.configuration.layout import TlsFiles
from emberkeep.base.files.log_tail import last_lines
from emberkeep.client.clusters.daemon_process import Daemon
from emberkeep.client.clusters.zookeeper_ensemble import plan_ensemble, quorum_of, start_server, wait_until_serving
from tests.integration.conditions import DEADLINE, wait_until_stopped
from tests.support.kernel.taken_ports import taken_port


class Ensemble:
    """Servers that can be killed, frozen and started again over their data."""

    def __init__(self, directory: Path, count: int = 1, tls: TlsFiles | None = None) -> None:
        self.servers = plan_ensemble(directory, count, tls)
        self._daemons: dict[int, Daemon] = {}
        self._ports: dict[int, socket.socket] = {}  # of servers that were killed: no other server may get them

    @property
    def hosts(self) -> str:
        return quorum_of(self.servers)

    async def start(self) -> None:
        for index in range(len(self.servers)):
            self.launch(index)
        await self.serving()

    async def serving(self) -> None:
        for index, daemon in self._daemons.items():
            await wait_until_serving(self.servers[index], daemon)

    def launch(self, index: int = 0) -> None:
        self._daemons[index] = start_server(self.servers[index], self.servers)

    def kill(self, index: int = 0) -> None:
        daemon = self._daemons.pop(index)
        self.signal(signal.SIGCONT, daemon)
        daemon.kill()
        if index not in self._ports:
            self._ports[index] = taken_port(self.servers[index].address, self.servers[index].client_port)

    def freeze(self, index: int = 0) -> None:
        daemon = self._daemons[index]
        self.signal(signal.SIGSTOP, daemon)
        wait_until_stopped(daemon.process.pid)

    def thaw(self, index: int = 0) -> None:
        self.signal(signal.SIGCONT, self._daemons[index])

    def signal(self, number: signal.Signals, daemon: Daemon) -> None:
        os.kill(daemon.process.pid, number)

    def said(self, index: int = 0) -> str:
        """The last lines of a server that runs."""
        command = self._daemons[index].command
        return "\n".join(map(last_lines, (command.out, command.err)))

    def stop(self) -> None:
        for index in list(self._daemons):
            self.kill(index)
        for port in self._ports.values():
            port.close()


TOKEN = "a-token-of-all-processes-in-a-test"


def signer() -> RecordSigner:
    return RecordSigner(signing_key(TOKEN))


def settings(hosts: str, *, session_timeout: float = 10.0, operation_timeout: float = 15.0) -> SessionSettings:
    return SessionSettings(
        hosts=hosts, session_timeout=session_timeout, operation_timeout=operation_timeout, signer=signer()
    )


async def eventually(condition: Callable[[], bool], what: str) -> None:
    """Wait on the loop until it holds."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {DEADLINE:g} s: {what}")
        await asyncio.sleep(0.02)


async def connected(session: ZooKeeperSession) -> ZooKeeperSession:
    await eventually(lambda: session.state is SessionState.CONNECTED, f"a session with {session.hosts}")
    return session


async def expire(session: ZooKeeperSession, hosts: str) -> None:
    """End a session from outside, as ZooKeeper does when it has heard nothing for too long: its owner hears of it."""
    client_id = session._kazoo.client_id

    def end() -> None:
        twin = KazooClient(hosts=hosts, client_id=client_id)
        twin.start(timeout=DEADLINE)
        twin.stop()
        twin.close()

    await asyncio.to_thread(end)
