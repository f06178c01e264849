"""Whether other processes can reach a JobManager at the address that it announces.

A wrong address is no error: behind a proxy or a container's network, a JobManager does not bind what it announces.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Set as AbstractSet

import structlog

from emberkeep.base.configuration.options import REST_ADDRESS, REST_BIND_ADDRESS
from emberkeep.base.configuration.values import Configuration

log = structlog.get_logger(__name__)

_RESOLVING_SECONDS = 5.0
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


async def warn_of_announced_address(configuration: Configuration) -> None:
    """Log a warning if rest.address is not an address that the JobManager binds. Look names up for 5 s at most."""
    announced, bound = configuration[REST_ADDRESS], configuration[REST_BIND_ADDRESS]
    try:
        async with asyncio.timeout(_RESOLVING_SECONDS):
            reason = why_unreachable(announced, bound, await _resolved(announced), await _resolved(bound))
    except TimeoutError:
        reason = f"the addresses of {announced} are not known after {_RESOLVING_SECONDS:g} s"
    if reason:
        log.warning(
            "other processes may not reach this JobManager at the address that it announces",
            reason=reason,
            hint=f"{REST_ADDRESS.key} is the address that others use, and {REST_BIND_ADDRESS.key} must accept their "
            "connections, unless a proxy forwards them",
        )


def why_unreachable(
    announced: str, bound: str, announced_at: AbstractSet[_Address], bound_at: AbstractSet[_Address]
) -> str:
    """Return why others may not reach ``announced``; "" if they can. Both names come with their addresses."""
    if not announced_at:
        return f"{REST_ADDRESS.key} is {announced}, which this machine cannot resolve"
    if not bound_at:
        return ""  # binding it fails, too
    if any(address.is_unspecified for address in bound_at):
        if all(address.is_loopback for address in announced_at):
            return (
                f"{REST_ADDRESS.key} is {announced}, which only this machine reaches, though {REST_BIND_ADDRESS.key} "
                f"is {bound or 'all addresses'}"
            )
        return ""
    if announced_at & bound_at:
        return ""
    only_here = ", which only this machine reaches" if all(address.is_loopback for address in bound_at) else ""
    return f"{REST_ADDRESS.key} is {announced}, but {REST_BIND_ADDRESS.key} is {bound}{only_here}"


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
