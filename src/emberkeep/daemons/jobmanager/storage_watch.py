"""Watches the shared storage for a JobManager, and tells it and the others whether it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from emberkeep.adapters.shared_storage.cluster import ClusterStorage
from emberkeep.adapters.shared_storage.probe import StorageProbe
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.errors import EmberkeepError
from emberkeep.leadership.model import StorageSeen

_INTERVAL_SECONDS = 2.0

log = structlog.get_logger(__name__)


class StorageWatch:
    """``problem``: that the storage cannot be read now, "" while it can be. ``exchange``: says whether it can be, and
    returns whether another JobManager can read it; None where this one stands alone. ``owned``: knows whether the job
    store was used with a storage, which has to be there then."""

    def __init__(
        self,
        layout: StateLayout,
        owned: ClusterStorage,
        exchange: Callable[[bool], Awaitable[bool]] | None = None,
    ) -> None:
        self.problem = ""
        self._reason = ""
        self._probe = StorageProbe(layout.storage, layout.storage_record, layout.graphs)
        self._place = layout.storage
        self._owned = owned
        self._exchange = exchange

    async def expect(self) -> None:
        """Jobs were recovered, whose graphs have to be there: look whether something is."""
        self._probe.expect()
        await self.look()

    async def look(self) -> StorageSeen:
        """Probe it once; takes some seconds at most."""
        if self._owned.is_bound:
            self._probe.expect()
        sight = await asyncio.to_thread(self._probe.look)
        elsewhere = False
        if self._exchange is not None:
            try:
                elsewhere = await self._exchange(sight.held)
            except EmberkeepError as error:
                log.info("not known whether other JobManagers can read the storage", reason=str(error))
        reason = sight.problem
        if not sight.held and not reason and elsewhere:
            reason = f"{self._place} holds nothing of this cluster here, though another JobManager's does"
        if reason != self._reason:
            if reason:
                log.warning("the shared storage cannot be read here", reason=reason, others_can=elsewhere)
            else:
                log.info("the shared storage can be read here")
        # Probes carry no token: they learn no paths.
        self._reason, self.problem = reason, "the shared storage cannot be read here now" if reason else ""
        return StorageSeen(own=sight.held, elsewhere=elsewhere)

    async def run(self, tell: Callable[[StorageSeen], None]) -> None:
        """Until cancelled."""
        while True:
            tell(await self.look())
            await asyncio.sleep(_INTERVAL_SECONDS)
