"""Whether other processes can reach a daemon at the address that it announces.

A wrong address is no error: behind a proxy or a network that translates addresses, a daemon does not bind what it
announces.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import structlog

log = structlog.get_logger(__name__)

_RESOLVING_SECONDS = 5.0
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True)
class AnnouncedAddress:
    """The address at which others connect to a daemon, the address that it binds, and the options that set them.

    ``peer``: a host that connects to it; "" if none is known.
    """

    announced_by: str
    announced: str
    bound_by: str
    bound: str
    peer: str = ""


async def warn_of_announced_address(announcement: AnnouncedAddress) -> None:
    """Log a warning if others may not reach the announced address. Look names up for 5 s at most."""
    try:
        async with asyncio.timeout(_RESOLVING_SECONDS):
            names = (announcement.announced, announcement.bound, announcement.peer)
            reason = why_unreachable(announcement, *[await _resolved(name) for name in names])
    except TimeoutError:
        reason = f"the addresses of {announcement.announced} are not known after {_RESOLVING_SECONDS:g} s"
    if reason:
        log.warning(
            "other processes may not reach this one at the address that it announces",
            reason=reason,
            hint=f"{announcement.announced_by} is the address that others use, and {announcement.bound_by} must accept "
            "their connections, unless a proxy or the network forwards them",
        )


def why_unreachable(
    announcement: AnnouncedAddress,
    announced_at: AbstractSet[_Address],
    bound_at: AbstractSet[_Address],
    peer_at: AbstractSet[_Address],
) -> str:
    """Return why others may not reach the announced address; "" if they can. The names come with their addresses."""
    announced = f"{announcement.announced_by} is {announcement.announced or 'empty'}"
    if not announced_at:
        return f"{announced}, which this machine cannot resolve"
    if any(address.is_unspecified for address in announced_at):
        return f"{announced}, which stands for all addresses of a machine: others cannot connect to it"
    if not bound_at:
        return ""  # binding it fails, too
    is_local = all(address.is_loopback for address in announced_at)
    if is_local and announcement.peer and any(not address.is_loopback for address in peer_at):
        # Debian resolves a machine's own name to 127.0.1.1 on that machine.
        resolved = ", ".join(sorted(map(str, announced_at)))
        return f"{announced} ({resolved} here), which only this machine reaches, and {announcement.peer} connects to it"
    if any(address.is_unspecified for address in bound_at):
        if is_local:
            return (
                f"{announced}, which only this machine reaches, though {announcement.bound_by} is "
                f"{announcement.bound or 'all addresses'}"
            )
        return ""
    if announced_at & bound_at:
        return ""
    only_here = ", which only this machine reaches" if all(address.is_loopback for address in bound_at) else ""
    return f"{announced}, but {announcement.bound_by} is {announcement.bound}{only_here}"


async def _resolved(name: str) -> frozenset[_Address]:
    """Return the addresses of a name or an address; "" for all addresses. Empty if it cannot be resolved."""
    if not name:
        return frozenset({ipaddress.IPv4Address(0)})
    try:
        found = await asyncio.get_running_loop().getaddrinfo(name.strip("[]"), None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return frozenset()
    return frozenset(_plain(ipaddress.ip_address(entry[4][0])) for entry in found)


def _plain(address: _Address) -> _Address:
    """Return the IPv4 address within an IPv6 one, if it has one."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
