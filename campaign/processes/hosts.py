"""Hosts for the members of a cluster: network namespaces that a switch joins, on which a network can fail.

Processes on them share all but the network with this machine: its files, its process ids, its clock. So what strikes
and judges processes on the loopback interface works here as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from tests.integration.hosts.host import Host
from tests.integration.hosts.namespaces import Namespaces
from tests.integration.hosts.network import Fault, Network

_CLIENTS = "clients"
_SLOW = "16mbit"  # in each direction: a file of some MiB is on its way for seconds, so that a fault can hit it
_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


class NetworkHost(Host):
    """A host of which only the network is its own. Others know it by its address."""

    def boot(self, boot_id: str) -> None:
        self._namespaces = Namespaces(("net",), ("sh", "-c", "echo ready; exec sleep infinity"), {})

    def know_names(self, lines: Iterable[str]) -> None:
        """Names are those of this machine."""


class Hosts:
    """A host for each member, and one for the clients. Use as context: the thread of the context is on the latter."""

    def __init__(self, directory: Path, names: Sequence[str], *, slow: Collection[str] = ()) -> None:
        """``directory``: an empty one for the hosts. ``names``: of the members. ``slow``: those with a slow link."""
        self._directory = directory
        self._names = names
        self._slow = slow
        self._changing = asyncio.Lock()

    def __enter__(self) -> Hosts:
        self._directory.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            self._network = Network(self._directory, kind=NetworkHost)
            stack.callback(self._network.close)
            self._hosts = {name: self._network.add(name, families=(4,)) for name in (*self._names, _CLIENTS)}
            self._slow_down()
            stack.enter_context(_network_of(self._hosts[_CLIENTS].pid))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def address(self, name: str) -> str:
        return self._hosts[name].address

    def inside(self, name: str) -> AbstractContextManager[None]:
        return _network_of(self._hosts[name].pid)

    def others(self, name: str) -> list[str]:
        """Return the names of all other hosts, also that of the clients."""
        return [each for each in self._hosts if each != name]

    # --- faults -------------------------------------------------------------------------------------------------------

    async def lose(self, pairs: Iterable[tuple[str, str]], percent: int) -> None:
        """Lose so many packets from the first host of each pair to the second one; 0 ends that."""
        named = [(self._hosts[source], self._hosts[destination]) for source, destination in pairs]
        async with self._changing:
            await asyncio.to_thread(self._network.trouble, named, Fault(lost=percent))

    async def delay(self, name: str, seconds: float) -> None:
        """Let packets from and to a host come so much later; 0 ends that."""
        async with self._changing:
            await asyncio.to_thread(self._network.end_delay, self._hosts[name])
            if seconds:
                await asyncio.to_thread(self._network.delay, self._hosts[name], seconds)

    async def heal(self) -> None:
        """End all faults."""
        async with self._changing:
            await asyncio.to_thread(self._network.heal)
            await asyncio.to_thread(self._slow_down)

    def _slow_down(self) -> None:
        for name in self._slow:
            self._network.slow(self._hosts[name], _SLOW)


@contextlib.contextmanager
def _network_of(pid: int) -> Iterator[None]:
    """Let this thread, and what it starts, be in the network of a process."""
    with Path("/proc/thread-self/ns/net").open("rb") as before, Path(f"/proc/{pid}/ns/net").open("rb") as there:
        _enter(there.fileno())
        try:
            yield
        finally:
            _enter(before.fileno())


def _enter(namespace: int) -> None:
    if _libc.setns(namespace, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot enter a network namespace: {os.strerror(number)}")
