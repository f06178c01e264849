"""Decide which process serves which download (BLOB-22): the BLOB server for the first few, then caches that have it.

A cache that has fetched a BLOB serves it to others, a few at a time. So the number of sources grows like a tree, and
the server sends each BLOB a bounded number of times, however many caches ask. No decision depends on time: a peer that
failed a requester is not named again, and a requester that had to wait often enough is sent to the least busy peer,
even if that peer is at its limit.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from emberkeep.base.ids import JobId
from emberkeep.blobs.model import BlobKey

CHILDREN = 4  # downloads that one peer serves at a time
PATIENCE = 8  # times that one requester must wait before it is sent to a busy peer


class Direct(enum.Enum):
    """Reply to a requester that is not sent to a peer's cache."""

    SERVE = "serve it here"
    WAIT = "try again in a second"


@dataclass(eq=False)
class _Swarm:
    """The downloads of one BLOB. A peer is named by the address at which its cache serves BLOBs."""

    direct: dict[str, int] = field(default_factory=dict)  # requester -> its open downloads from the server
    ready: dict[str, set[str]] = field(default_factory=dict)  # peer that has the BLOB -> requesters that it serves now
    parent: dict[str, str] = field(default_factory=dict)  # requester that was sent to a peer -> that peer
    waits: dict[str, int] = field(default_factory=dict)  # requester -> how often it had to wait

    def part(self, requester: str) -> str | None:
        """Detach the requester from the peer that serves it, and return that peer; None if no peer serves it."""
        parent = self.parent.pop(requester, None)
        if parent in self.ready:
            self.ready[parent].discard(requester)
        return parent

    def drop(self, peer: str) -> None:
        """Send no more requesters to the peer. Those that it serves now continue, or ask again."""
        for child in self.ready.pop(peer, ()):
            self.parent.pop(child, None)

    def serve(self, requester: str) -> None:
        """Begin a download by the requester from the server."""
        self.waits.pop(requester, None)
        self.direct[requester] = self.direct.get(requester, 0) + 1

    @property
    def is_idle(self) -> bool:
        return not (self.direct or self.ready or self.parent or self.waits)


class Peers:
    """Assigns downloads to the server and to peers.

    ``direct``: downloads of one BLOB that the server serves at a time to caches that could also use a peer.
    """

    def __init__(self, direct: int, *, children: int = CHILDREN, patience: int = PATIENCE) -> None:
        self._limit = direct
        self._children = children
        self._patience = patience
        self._swarms: dict[JobId, dict[BlobKey, _Swarm]] = {}

    def ask(self, owner: JobId, key: BlobKey, requester: str) -> str | Direct:
        """Return where a cache must download a BLOB from: a peer's address, the server (SERVE), or nowhere yet (WAIT).

        SERVE uses one of the server's ``direct`` downloads until ``served`` is called.
        """
        swarm = self._swarms.setdefault(owner, {}).setdefault(key, _Swarm())
        swarm.part(requester)
        swarm.drop(requester)  # it asks, so it does not have the BLOB
        impatient = swarm.waits.get(requester, 0) >= self._patience
        peer = min(swarm.ready, key=lambda known: len(swarm.ready[known]), default=None)
        if peer is not None and (impatient or len(swarm.ready[peer]) < self._children):
            swarm.waits.pop(requester, None)
            swarm.ready[peer].add(requester)
            swarm.parent[requester] = peer
            return peer
        if peer is None and sum(swarm.direct.values()) < self._limit:
            swarm.serve(requester)
            return Direct.SERVE
        swarm.waits[requester] = swarm.waits.get(requester, 0) + 1
        return Direct.WAIT

    def insist(self, owner: JobId, key: BlobKey, requester: str) -> None:
        """Serve the requester here, because its peer failed. No more requesters are sent to that peer.

        Uses one of the server's ``direct`` downloads, even beyond their limit, until ``served`` is called.
        """
        swarm = self._swarms.setdefault(owner, {}).setdefault(key, _Swarm())
        failed = swarm.part(requester)
        if failed is not None:
            swarm.drop(failed)
        swarm.serve(requester)

    def served(self, owner: JobId, key: BlobKey, requester: str, *, complete: bool) -> None:
        """End a download from the server.

        If it was ``complete``, the requester's cache can serve others from now on.
        """
        swarm = self._swarms.get(owner, {}).get(key)
        if swarm is None or requester not in swarm.direct:
            return
        swarm.direct[requester] -= 1
        if swarm.direct[requester] == 0:
            del swarm.direct[requester]
        if complete:
            swarm.ready.setdefault(requester, set())
        self._forget_if_idle(owner, key, swarm)

    def ready(self, owner: JobId, key: BlobKey, peer: str) -> None:
        """Note that a cache has fetched the BLOB from a peer and serves it from now on."""
        swarm = self._swarms.setdefault(owner, {}).setdefault(key, _Swarm())
        swarm.part(peer)
        swarm.waits.pop(peer, None)
        swarm.ready.setdefault(peer, set())

    def forget_peer(self, peer: str) -> None:
        """Forget a cache that is gone, with all BLOBs that it had."""
        for owner, swarms in list(self._swarms.items()):
            for key, swarm in list(swarms.items()):
                swarm.part(peer)
                swarm.drop(peer)
                swarm.waits.pop(peer, None)
                self._forget_if_idle(owner, key, swarm)

    def forget(self, owner: JobId, key: BlobKey | None = None) -> None:
        """Forget a deleted BLOB, or without ``key`` all BLOBs of the owner."""
        swarms = self._swarms.get(owner, {})
        for known in list(swarms) if key is None else [key]:
            swarms.pop(known, None)
        if not swarms:
            self._swarms.pop(owner, None)

    def _forget_if_idle(self, owner: JobId, key: BlobKey, swarm: _Swarm) -> None:
        if swarm.is_idle:
            self.forget(owner, key)
