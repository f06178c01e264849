"""Blocks the nodes that the platform of the resource driver takes out of service, and unblocks them afterwards."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable

import structlog

from emberkeep.base.errors import EmberkeepError
from emberkeep.base.request_context import called_by
from emberkeep.blocklist.model import BlockAction
from emberkeep.jobmanager.nodes.blocklist_handler import BlocklistHandler
from emberkeep.jobmanager.nodes.outage_changes import outage_changes
from emberkeep.jobmanager.steady_clock import SteadyClock
from emberkeep.slots.resource_driver import ResourceManagerDriver, StartedTaskManager

log = structlog.get_logger(__name__)

_BY = "resource manager"  # who has blocked a node, in events


class PlatformOutages:
    """Compares the platform's nodes with the blocklist. Keeps no state: each review decides from both as they are."""

    def __init__(
        self, driver: ResourceManagerDriver, blocklist: BlocklistHandler, action: BlockAction, clock: SteadyClock
    ) -> None:
        self._driver = driver
        self._blocklist = blocklist
        self._action = action
        self._clock = clock

    async def review(self, started: Iterable[StartedTaskManager]) -> None:
        """Bring the blocklist up to date. Raises RetryLater, Fatal (the platform or the blocklist cannot be read)."""
        hosting = {each.node_id for each in started if each.alive and each.node_id}
        outages = await self._driver.outages()
        if outages is None:
            return
        blocklist = await self._blocklist.blocklist()
        changes = outage_changes(outages, hosting, blocklist, action=self._action, now_ms=self._clock.now_ms())
        with called_by(_BY):
            for entry in changes.block:
                log.warning("blocking a node that is out of service", node=entry.id, reason=entry.cause)
                await self._tried(self._blocklist.block(entry, merge=False), entry.id)
            for place in changes.unblock:
                log.info("unblocking a node that is in service again", node=place.id)
                await self._tried(self._blocklist.withdraw(place), place.id)

    async def _tried(self, change: Awaitable[object], node_id: str) -> None:
        try:
            await change
        except EmberkeepError as error:  # the next review decides again
            log.warning("cannot change the blocklist", node=node_id, reason=str(error))
