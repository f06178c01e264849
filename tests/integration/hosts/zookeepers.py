"""ZooKeeper on one or several hosts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from emberkeep.base.configuration.hosts import join_host_port
from tests.integration.commands import Running
from tests.integration.conditions import until
from tests.integration.hosts.host import LOCAL, Host

_PORT, _QUORUM_PORT, _ELECTION_PORT = 2181, 2888, 3888
# Prints what the server on this host answers to the command "srvr".
_ASK = """
import socket

with socket.create_connection(("localhost", 2181), 5) as connection:
    connection.sendall(b"srvr")
    print(b"".join(iter(lambda: connection.recv(4096), b"")).decode())
"""


class ZooKeeperHosts:
    """Each of ``hosts`` has a server; several are an ensemble. ``called``: how others call a host."""

    def __init__(self, hosts: Sequence[Host], called: Callable[[Host], str]) -> None:
        self.hosts = tuple(hosts)
        self._called = called

    def quorum(self) -> str:
        """All servers, as clients are configured."""
        return ",".join(join_host_port(self._called(host), _PORT) for host in self.hosts)

    def start(self, host: Host, user: str, address: str) -> Running:
        """Start the server of a host over the data that its disk has. ``address``: where it waits for clients."""
        words = ["--directory", str(LOCAL / "home" / user / "zk"), "--address", address, "--client-port", str(_PORT)]
        words += ["--number", str(self.hosts.index(host) + 1)]
        for number, each in enumerate(self.hosts if len(self.hosts) > 1 else ()):
            words += ["--peer", f"{number + 1}:{_QUORUM_PORT}:{_ELECTION_PORT}:{self._called(each)}"]
        return host.start("python", "-m", "emberkeep.daemons.zookeeper", *words, user=user)

    def serving(self, mode: str) -> Host:
        """Return a host whose server is in that mode, "leader" or "follower", once there is one."""
        return until(
            lambda: next((host for host in self.hosts if mode in self._mode(host)), None),
            lambda: f"a server is {mode}: { {host.name: self._mode(host) for host in self.hosts} }",
        )

    def wait_for(self, host: Host) -> None:
        """Wait until the server of a host serves."""
        until(lambda: self._mode(host), lambda: f"ZooKeeper serves on {host.name}")

    def _mode(self, host: Host) -> str:
        """Return the mode in which the server of a host serves; "" if it does not."""
        ended = host.run("python", "-c", _ASK) if host.is_up else None
        lines = ended.out.splitlines() if ended is not None and ended.code == 0 else []
        return next((line.removeprefix("Mode: ") for line in lines if line.startswith("Mode: ")), "")
