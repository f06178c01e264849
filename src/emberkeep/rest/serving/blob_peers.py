"""The BLOB caches to which downloads may be redirected: those of registered task managers only (BLOB-22)."""

from __future__ import annotations

from emberkeep.base.clock import Clock
from emberkeep.base.ids import JobId
from emberkeep.blobs.model import BlobKey
from emberkeep.jobmanager.views.blobs import DownloadRedirects
from emberkeep.jobmanager.views.cluster import JobManagerGateway

_FRESH = 1.0  # seconds for which the list of registered addresses is used again


class BlobPeers:
    """Finds the BLOB cache that another cache downloads from.

    Requesters name the address at which they serve BLOBs. That address is used only if a registered task manager has
    it, so no cache is sent to an address that an outsider names.
    """

    def __init__(self, gateway: JobManagerGateway, redirects: DownloadRedirects, clock: Clock) -> None:
        self._gateway = gateway
        self._redirects = redirects
        self._clock = clock
        self._addresses: frozenset[str] = frozenset()
        self._known_until = float("-inf")

    async def known(self, requester: str | None) -> str:
        """Return the requesting cache's address; "" if the request names none, or one that is not registered."""
        return requester if requester and requester in await self._registered() else ""

    async def instead(self, owner: JobId, key: BlobKey, requester: str) -> str | None:
        """Return the address of the cache that the known ``requester`` must ask; None: serve the BLOB here.

        Raises Absent, RetryLater (the limit of concurrent downloads is reached).
        """
        peer = self._redirects.peer_for(owner, key, requester)
        if peer is None or (peer != requester and peer in await self._registered()):
            return peer
        self._redirects.forget_peer(peer)
        self._redirects.peer_failed(owner, key, requester)
        return None

    async def _registered(self) -> frozenset[str]:
        now = self._clock.monotonic()
        if now >= self._known_until:
            views = await self._gateway.task_managers()
            self._addresses = frozenset(view.info.address for view in views)
            self._known_until = now + _FRESH
        return self._addresses
