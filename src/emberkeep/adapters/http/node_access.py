"""Requests that only daemons may send: their connections show the certificate of a node.

The cluster's token does not make its holder a daemon: people and commands on the cluster's machines use it, too.
Drivers have credentials of their own, and need no certificate of a node.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from aiohttp import web

RPC_ROUTE: Final = "/rpc/v1/{kind}"


class NoNode(NamedTuple):
    """Why a request does not count as a daemon's, and what to do about it."""

    detail: str
    hint: str


def no_node(request: web.Request, daemons: AbstractSet[str]) -> NoNode | None:
    """Return why the caller of one of the routes ``daemons`` is not a daemon; None if it is one, or for other routes.

    ``daemons``: declared patterns. A daemon is a caller whose certificate was verified when it connected.
    """
    resource, transport = request.match_info.route.resource, request.transport
    if resource is None or resource.canonical not in daemons:
        return None
    # TLS leaves this empty unless the caller has shown a certificate of the cluster's CA.
    if transport is not None and transport.get_extra_info("peercert"):
        return None
    return NoNode(
        f"{request.method} {request.path[:200]} is for the daemons of the cluster, and the caller shows no certificate "
        "of a node",
        "daemons of this release show theirs (security.tls.certificate) besides the token; people and programs use the "
        "REST API or the command line",
    )
