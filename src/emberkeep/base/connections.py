"""The table of a port's connections: clients without a login cannot take the descriptors that the process needs.

A connection is *unproven* until a request on it presents a valid login. Unproven connections are few and short. When
there are too many, the oldest one makes room for the newest: a client with a login presents it within milliseconds, so
it gets in even while a stranger holds as many connections as it can.
"""

from __future__ import annotations

import enum
import ipaddress
import resource
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

log = structlog.get_logger(__name__)

LEAST_DESCRIPTORS: Final = 128
"""With fewer, a daemon serves a few drivers at most, and refuses others without saying why: see docs/limits.md."""
LEAST_ON_NODES: Final = 512
"""For a task manager: the JVMs of its jobs have the same limit, and Spark fails with 320, for reasons hard to read."""
_MANY_DESCRIPTORS = 2**20  # stands for "no limit"
_LEAST_RESERVE = 64
_LOG_SECONDS = 60.0  # between two warnings
_IPV6_PREFIX = 64  # a network of one site: its hosts choose the other bits


class Rejection(enum.StrEnum):
    """Why a connection was refused or closed."""

    DISPLACED = "displaced"  # too many unproven connections: a newer one took its place
    FULL = "full"  # all places are taken by connections with a login
    NO_LOGIN = "no_login"  # no valid login in time
    LARGE_HEAD = "large_head"  # the request's line and headers are too large


def allowed_descriptors() -> int:
    """Return how many files and connections this process may have open (``ulimit -n``)."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MANY_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


@dataclass(frozen=True)
class ConnectionLimits:
    """How many connections a port may have open."""

    open: int  # with or without a login
    unproven: int  # without a login
    unproven_of_address: int  # without a login, from a single address


def process_limits(descriptors: int | None = None) -> ConnectionLimits:
    """Return limits that leave descriptors for this process's own files and outgoing connections.

    ``descriptors``: how many files the process may have open; by default what the system allows (``ulimit -n``). A
    quarter is reserved. The limit of unproven connections allows for several ports in a process.
    """
    descriptors = allowed_descriptors() if descriptors is None else descriptors
    most = max(2, descriptors - max(_LEAST_RESERVE, descriptors // 4))
    unproven = min(512, max(2, most // 6))
    return ConnectionLimits(open=most, unproven=unproven, unproven_of_address=max(1, unproven // 2))


class TrackedConnection(Protocol):
    """A connection as the table uses it."""

    @property
    def address(self) -> str:
        """Return the peer's IP address."""

    def drop(self) -> None:
        """Close the connection at once, without waiting. Idempotent."""


class Connections:
    """The open connections of a port. Never more than its limits allow. Any thread may use it."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._rejected: Counter[Rejection] = Counter()
        self._proven: set[TrackedConnection] = set()
        self._unproven: dict[str, dict[TrackedConnection, None]] = {}  # by network, the oldest first
        self._warned_at: float | None = None
        self._lock = threading.RLock()

    @property
    def proven(self) -> int:
        """Number of connections with a login."""
        with self._lock:
            return len(self._proven)

    @property
    def unproven(self) -> int:
        """Number of connections without a login so far."""
        with self._lock:
            return sum(map(len, self._unproven.values()))

    def rejections(self) -> dict[str, int]:
        """Return how many connections were rejected since the process started, by reason."""
        with self._lock:
            return {reason.value: self._rejected[reason] for reason in Rejection}

    def admit(self, peer: TrackedConnection) -> bool:
        """Add a new connection, in the place of an older unproven one if there are too many.

        Return False, and add nothing, if all places are taken by connections with a login.
        """
        network, limits = network_of(peer.address), self._limits
        with self._lock:
            if len(self._unproven.get(network, ())) >= limits.unproven_of_address:
                self._displace(network)
            elif self.unproven >= limits.unproven or self.proven + self.unproven >= limits.open:
                if not self._unproven:
                    self._reject(Rejection.FULL, peer)
                    return False
                self.displace_one()
            self._unproven.setdefault(network, {})[peer] = None
            return True

    def displace_one(self) -> None:
        """Drop the oldest unproven connection of the address that has the most of them, if there is any."""
        with self._lock:
            if self._unproven:
                self._displace(max(self._unproven, key=lambda network: len(self._unproven[network])))

    def prove(self, peer: TrackedConnection) -> None:
        """Record that the connection has presented a valid login. Ignored if the connection has ended."""
        with self._lock:
            if self._forget_unproven(peer):
                self._proven.add(peer)

    def reject(self, peer: TrackedConnection, reason: Rejection) -> None:
        """End an unproven connection, and count why. The caller closes it."""
        with self._lock:
            if self._forget_unproven(peer):
                self._reject(reason, peer)

    def end(self, peer: TrackedConnection) -> None:
        """Remove a connection that has ended. Idempotent."""
        with self._lock:
            self._forget_unproven(peer)
            self._proven.discard(peer)

    def _displace(self, network: str) -> None:
        oldest = next(iter(self._unproven[network]))
        self.reject(oldest, Rejection.DISPLACED)
        oldest.drop()

    def _forget_unproven(self, peer: TrackedConnection) -> bool:
        """Return False if ``peer`` is not an unproven connection."""
        network = network_of(peer.address)
        peers = self._unproven.get(network, {})
        if peer not in peers:
            return False
        del peers[peer]
        if not peers:
            del self._unproven[network]
        return True

    def _reject(self, reason: Rejection, peer: TrackedConnection) -> None:
        self._rejected[reason] += 1
        if reason not in (Rejection.DISPLACED, Rejection.FULL):
            return  # such clients are usual: browsers open connections in advance
        now = time.monotonic()
        if self._warned_at is None or now - self._warned_at >= _LOG_SECONDS:
            self._warned_at = now
            log.warning(
                "too many connections, closing those without a login",
                address=peer.address,
                with_login=self.proven,
                without_login=self.unproven,
                rejected=self._rejected.total(),
                hint="if these are your clients, raise the limit of open files (ulimit -n) and start again",
            )


def network_of(address: str) -> str:
    """Return the network that counts as one client: an IPv4 address, or an IPv6 prefix."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, _IPV6_PREFIX), strict=False))
