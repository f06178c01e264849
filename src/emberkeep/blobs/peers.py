"""Who serves which download (BLOB-22): the first few are the BLOB server's own, all others go to caches that are done.

A cache that has fetched a BLOB serves it to others, a few at a time, so the number of sources grows like a tree and the
server sends each BLOB a bounded number of times, however many caches ask. Nothing is measured in time: a peer that let
somebody down is not named any more, and who had to wait often enough is sent to the least busy, whatever its limit.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from emberkeep.base.ids import JobId
from emberkeep.blobs.model import BlobKey

CHILDREN = 4  # downloads that a peer is asked to serve at a time
PATIENCE = 8  # answers "ask again" to one requester, before it is sent to a busy peer


class Direct(enum.Enum):
    """Answers that name no peer."""

    SERVE = "serve it here"
    WAIT = "ask again shortly"


@dataclass(eq=False)
class _Swarm:
    """The downloads of one BLOB. Peers are named by the address at which their caches serve."""

    direct: dict[str, int] = field(default_factory=dict)  # requesters that are served here, how often
    ready: dict[str, set[str]] = field(default_factory=dict)  # peers that have it: whom they serve now
    parent: dict[str, str] = field(default_factory=dict)  # requesters that were sent on: to whom
    waits: dict[str, int] = field(default_factory=dict)  # how often a requester was told to wait

    def part(self, requester: str) -> str | None:
        """The requester is no longer a child; returns whose it was."""
        parent = self.parent.pop(requester, None)
        if parent in self.ready:
            self.ready[parent].discard(requester)
        return parent

    def drop(self, peer: str) -> None:
        """The peer is not named any more. Its other children go on with it, or come back."""
        for child in self.ready.pop(peer, ()):
            self.parent.pop(child, None)

    def serve(self, requester: str) -> None:
        """A download of the requester's begins here."""
        self.waits.pop(requester, None)
        self.direct[requester] = self.direct.get(requester, 0) + 1

    @property
    def is_idle(self) -> bool:
        return not (self.direct or self.ready or self.parent or self.waits)


class Peers:
    """``direct``: downloads of one BLOB that the server serves at a time to caches that could be sent on."""

    def __init__(self, direct: int, *, children: int = CHILDREN, patience: int = PATIENCE) -> None:
        self._limit = direct
        self._children = children
        self._patience = patience
        self._swarms: dict[JobId, dict[BlobKey, _Swarm]] = {}

    def ask(self, owner: JobId, key: BlobKey, requester: str) -> str | Direct:
        """Where a cache is to download a BLOB: a peer's address, or here, or nowhere yet.

        SERVE takes one of the server's places: give it back with ``served``.
        """
        swarm = self._swarms.setdefault(owner, {}).setdefault(key, _Swarm())
        swarm.part(requester)
        swarm.drop(requester)  # it would not ask for what it has
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
        """The peer that the requester was sent to has failed: it is not named again, the requester is served here.

        Takes a place, free or not: give it back with ``served``.
        """
        swarm = self._swarms.setdefault(owner, {}).setdefault(key, _Swarm())
        failed = swarm.part(requester)
        if failed is not None:
            swarm.drop(failed)
        swarm.serve(requester)

    def served(self, owner: JobId, key: BlobKey, requester: str, *, complete: bool) -> None:
        """A download that was served here has ended; a cache that has got all of it can serve others."""
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
        """A cache says that it has fetched the BLOB from a peer, and serves it from now on."""
        swarm = self._swarms.setdefault(owner, {}).setdefault(key, _Swarm())
        swarm.part(peer)
        swarm.waits.pop(peer, None)
        swarm.ready.setdefault(peer, set())

    def forget_peer(self, peer: str) -> None:
        """A cache is gone, with all that it had."""
        for owner, swarms in list(self._swarms.items()):
            for key, swarm in list(swarms.items()):
                swarm.part(peer)
                swarm.drop(peer)
                swarm.waits.pop(peer, None)
                self._forget_if_idle(owner, key, swarm)

    def forget(self, owner: JobId, key: BlobKey | None = None) -> None:
        """A BLOB is deleted, or all of its owner's."""
        swarms = self._swarms.get(owner, {})
        for known in list(swarms) if key is None else [key]:
            swarms.pop(known, None)
        if not swarms:
            self._swarms.pop(owner, None)

    def _forget_if_idle(self, owner: JobId, key: BlobKey, swarm: _Swarm) -> None:
        if swarm.is_idle:
            self.forget(owner, key)
