"""What the leader knows about the election of leaders, for the console."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class ZooKeeperConnection(StrEnum):
    """The leader's session with ZooKeeper."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"  # the connection broke; the session may still exist
    LOST = "lost"


class ElectionView(msgspec.Struct, frozen=True, kw_only=True):
    """The election in ZooKeeper, as the leader last saw it.

    ``queue``: addresses of the JobManagers that lead or are ready to. ``queue_changed_ms``: when it was last seen to
    change; 0 if unknown. ``known``: those that were ever heard of, most recently reported first.
    """

    servers: str
    connection: ZooKeeperConnection
    queue: tuple[str, ...] = ()
    queue_changed_ms: int = 0
    known: tuple[str, ...] = ()
