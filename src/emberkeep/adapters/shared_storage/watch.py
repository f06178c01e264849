"""Watches the shared storage for a JobManager: reports to this and other JobManagers whether it can be read here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from emberkeep.adapters.shared_storage.cluster import ClusterStorage
from emberkeep.adapters.shared_storage.probe import StorageProbe
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.errors import EmberkeepError
from emberkeep.leadership.model import StorageSeen

NEARLY_FULL = 5 * 1024**3  # bytes; the alert EmberkeepStorageNearlyFull has the same bound
_INTERVAL_SECONDS = 2.0

log = structlog.get_logger(__name__)


class StorageWatch:
    """Watches the shared storage.

    ``problem``: a text while the storage cannot be read, since ``problem_since_ms``; "" while it can be.
    ``free``: bytes that it has left; None while that is not known. ``low_since_ms``: since when it is nearly full; 0
    while it is not.
    ``exchange`` reports to the other JobManagers whether this one can read the storage, and returns True if another one
    can; None without high availability. ``owned``: tells whether the job store was used with a storage, which must then
    exist.
    """

    def __init__(
        self,
        layout: StateLayout,
        owned: ClusterStorage,
        exchange: Callable[[bool], Awaitable[bool]] | None = None,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        self.problem, self.problem_since_ms = "", 0
        self.free: int | None = None
        self.low_since_ms = 0
        self._now_ms = now_ms
        self._reason = ""
        self._probe = StorageProbe(layout.storage, layout.storage_record, layout.graphs)
        self._place = layout.storage
        self._owned = owned
        self._exchange = exchange

    async def expect(self) -> None:
        """Expect data in the storage, because jobs with graphs there were recovered. Then probe it."""
        self._probe.expect()
        await self.look()

    async def look(self) -> StorageSeen:
        """Probe the storage once. Takes some seconds at most."""
        if self._owned.is_bound:
            self._probe.expect()
        sight = await asyncio.to_thread(self._probe.look)
        self.free = sight.free
        if sight.free is not None:  # else it is as it was
            self.low_since_ms = (self.low_since_ms or self._now_ms()) if sight.free < NEARLY_FULL else 0
        elsewhere = False
        if self._exchange is not None:
            try:
                elsewhere = await self._exchange(sight.held)
            except EmberkeepError as error:
                log.info("cannot find out whether other JobManagers can read the storage", reason=str(error))
        reason = sight.problem
        if not sight.held and not reason and elsewhere:
            reason = f"{self._place} has no data of this cluster here, but it does on another JobManager's node"
        if reason != self._reason:
            if reason:
                log.warning("the shared storage cannot be read here", reason=reason, others_can=elsewhere)
            else:
                log.info("the shared storage can be read here again")
        # Health probes carry no token, so they get a text without paths.
        self._reason, self.problem = reason, "the shared storage cannot be read here now" if reason else ""
        self.problem_since_ms = (self.problem_since_ms or self._now_ms()) if reason else 0
        return StorageSeen(own=sight.held, elsewhere=elsewhere)

    async def run(self, tell: Callable[[StorageSeen], None]) -> None:
        """Probe at an interval and report each result, until cancelled."""
        while True:
            tell(await self.look())
            await asyncio.sleep(_INTERVAL_SECONDS)
