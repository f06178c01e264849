"""Registers each JobManager's address, so that a second JobManager configured with the same address is refused.

Registrations are ephemeral. A JobManager takes over what an earlier process left once that process is proven gone or
its session has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from pathlib import Path
from typing import NoReturn

import structlog

from emberkeep import __version__
from emberkeep.adapters.zookeeper.access.signatures import NotAuthentic
from emberkeep.adapters.zookeeper.layout import RegisteredAddress, ZooKeeperLayout, decode_node, encode_node
from emberkeep.adapters.zookeeper.session import Znode, ZooKeeperSession
from emberkeep.base.configuration.options.job_managers import REST_ADDRESS
from emberkeep.base.errors import Absent, Fatal, RetryLater
from emberkeep.base.processes.process_identity import is_alive, own_identity

PATIENCE = 1.5  # session timeouts after which a registration that remains must belong to a live process

log = structlog.get_logger(__name__)


def own_registration(address: str, name: str) -> RegisteredAddress:
    """Return the registration of this process. ``name`` distinguishes JobManagers; may be empty."""
    return RegisteredAddress(
        address=address,
        name=name,
        host=socket.gethostname(),
        process=own_identity(),
        processes=_process_namespace(),
        release=__version__,
    )


class AddressTaken(RetryLater):
    """Another process has registered the address. It is not known yet whether that process is alive."""


class AddressRegistration:
    """The registration of this JobManager's address, ``own``. ``session_timeout``: seconds."""

    def __init__(
        self, session: ZooKeeperSession, layout: ZooKeeperLayout, own: RegisteredAddress, session_timeout: float
    ) -> None:
        self._session = session
        self._folder = layout.addresses
        self._prefix = layout.address(own.address)
        self._own = own
        self._patience = PATIENCE * session_timeout
        self._waiting: tuple[str, float] | None = None  # registration whose session must end first, and since when

    async def claim(self) -> None:
        """Register the address unless this session has done so.

        Raises AddressTaken, RetryLater, UnknownOutcome, and Fatal if another live process has the same address.
        """
        registered = await self._registered()
        if all(node.owner != self._session.id for _, node in registered):
            await self._session.create(self._prefix, encode_node(self._own), ephemeral=True, sequence=True)
            registered = await self._registered()
        for path, node in registered:
            if node.owner == self._session.id:
                break
            await self._take_over(path, node)
        self._waiting = None

    async def _registered(self) -> list[tuple[str, Znode]]:
        """Return the registrations of the address in order of arrival. The first one owns the address."""
        found = []
        for name in await self._session.children(self._folder):
            path = f"{self._folder}/{name}"
            if path.startswith(self._prefix) and (node := await self._session.find(path)) is not None:
                found.append((path, node))
        return found

    async def _take_over(self, path: str, node: Znode) -> None:
        """Delete the registration of a process that is gone, or of an earlier session of this process.

        Raises Fatal if another process is alive, AddressTaken if that is not known yet.
        """
        other = _read(node, path)
        if other is None or not self._can_see(other):
            self._wait_for_its_session(path, other)
        elif other.process != self._own.process and await asyncio.to_thread(is_alive, other.process):
            raise self._refusal(other)
        log.info("removing the address that an earlier process registered", address=self._own.address)
        with contextlib.suppress(Absent):
            await self._session.delete(path)

    def _can_see(self, other: RegisteredAddress) -> bool:
        """True if the other process's pid is valid here: same boot of the same machine, same pid namespace."""
        own = self._own
        return other.process.boot_id == own.process.boot_id and other.processes == own.processes

    def _wait_for_its_session(self, path: str, other: RegisteredAddress | None) -> NoReturn:
        now = asyncio.get_running_loop().time()
        if self._waiting is None or self._waiting[0] != path:
            self._waiting = (path, now)
        if now - self._waiting[1] > self._patience:
            raise self._refusal(other)
        raise AddressTaken(
            f"{self._own.address} is registered by {_described(other)}", hint="waiting for that session to end"
        )

    def _refusal(self, other: RegisteredAddress | None) -> Fatal:
        return Fatal(
            f"{REST_ADDRESS.key}: {self._own.address} is the address of another JobManager: {_described(other)}",
            hint=f"give each JobManager a {REST_ADDRESS.key} of its own, at which the others reach it",
        )


def _described(other: RegisteredAddress | None) -> str:
    if other is None:
        return "its record cannot be read"
    name = f"{other.name}, " if other.name else ""
    return f"{name}process {other.process.pid} on {other.host}"


def _read(node: Znode, path: str) -> RegisteredAddress | None:
    try:
        return decode_node(node.data, RegisteredAddress, where=f"ZooKeeper, {path}")
    except (Fatal, NotAuthentic) as error:
        log.warning("cannot read a registered address", reason=str(error))
        return None


def _process_namespace() -> str:
    """Return the pid namespace: containers on one machine share its boot id, but not their pids."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return socket.gethostname()
