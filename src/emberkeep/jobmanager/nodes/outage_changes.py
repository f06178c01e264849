"""Decide which nodes to block because the platform has taken them out of service, and when to unblock them. Pure.

The entries that this module has made are known by their causes, so the next leader continues with them, and entries of
operators and of the detection are left as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from emberkeep.blocklist.model import (
    CAUSE_LENGTH,
    PLATFORM_CAUSE,
    BlockAction,
    BlockedNode,
    Blocklist,
    Place,
    PlaceKind,
    is_of_platform,
)
from emberkeep.slots.resource_driver import NodeOutage


@dataclass(frozen=True)
class OutageChanges:
    """Changes to the blocklist."""

    block: tuple[BlockedNode, ...] = ()
    unblock: tuple[Place, ...] = ()


def outage_changes(
    outages: Iterable[NodeOutage],
    hosting: Collection[str],
    blocklist: Blocklist,
    *,
    action: BlockAction,
    now_ms: int,
) -> OutageChanges:
    """Return what to change now. ``hosting``: the nodes with a task manager that the platform has started.

    Nodes without one are not blocked: the platform starts nothing there. A node that an operator has unblocked since
    the outage began is left as it is.
    """
    out = {outage.node_id: outage for outage in outages}
    listed = {entry.id: entry for entry in blocklist.entries if entry.place.kind is PlaceKind.NODE}
    removed = {
        removal.place.id: removal.at_ms
        for removal in blocklist.removals
        if removal.by_hand and removal.place.kind is PlaceKind.NODE
    }
    block = [
        BlockedNode(id=node_id, action=action, start_ms=now_ms, causes=(_cause(outage),))
        for node_id, outage in out.items()
        if node_id in hosting
        and node_id not in listed
        and not (node_id in removed and removed[node_id] >= outage.since_ms)
    ]
    unblock = [entry.place for entry in listed.values() if is_of_platform(entry) and entry.id not in out]
    return OutageChanges(tuple(block), tuple(unblock))


def _cause(outage: NodeOutage) -> str:
    return f"{PLATFORM_CAUSE}{' '.join(outage.reason.split()) or 'no reason given'}"[:CAUSE_LENGTH]
