"""Caches to which downloads may be redirected (BLOB-22): only those of registered task managers."""

from __future__ import annotations

from emberkeep.base.clock import Clock
from emberkeep.base.ids import JobId
from emberkeep.blobs.model import BlobKey
from emberkeep.jobmanager.views.blobs import BlobServerGateway
from emberkeep.jobmanager.views.cluster import JobManagerGateway

_FRESH = 1.0  # seconds for which the registered addresses are cached


class Peers:
    """Chooses the cache that serves a download in place of the BLOB server.

    An address that a request names counts only if it is registered, so no client is redirected to an outsider's
    address.
    """

    def __init__(self, gateway: JobManagerGateway, blobs: BlobServerGateway, clock: Clock) -> None:
        self._gateway = gateway
        self._blobs = blobs
        self._clock = clock
        self._addresses: frozenset[str] = frozenset()
        self._known_until = float("-inf")

    async def known(self, requester: str | None) -> str:
        """Return the requesting cache's address, "" if the request names none or an unregistered one."""
        return requester if requester and requester in await self._registered() else ""

    async def instead(self, owner: JobId, key: BlobKey, requester: str) -> str | None:
        """Return the address of the cache that the registered ``requester`` must ask, or None: serve the BLOB here.

        A peer that is no longer registered is forgotten. Raises Absent, RetryLater (the requester must ask
        again shortly).
        """
        peer = self._blobs.peer_for(owner, key, requester)
        if peer is None or (peer != requester and peer in await self._registered()):
            return peer
        self._blobs.forget_peer(peer)
        self._blobs.peer_failed(owner, key, requester)
        return None

    async def _registered(self) -> frozenset[str]:
        now = self._clock.monotonic()
        if now >= self._known_until:
            views = await self._gateway.task_managers()
            self._addresses = frozenset(view.info.address for view in views)
            self._known_until = now + _FRESH
        return self._addresses
