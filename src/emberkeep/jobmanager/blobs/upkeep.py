"""What the BLOB server does without being asked: list the HA store, end forgotten references, clean up, delete."""

from __future__ import annotations

import asyncio

import structlog

from emberkeep.base.errors import EmberkeepError, RetryLater
from emberkeep.blobs.deliveries import LONGEST_DELIVERY, Deliveries
from emberkeep.jobmanager.blobs.core import BlobCore

log = structlog.get_logger(__name__)

DELETIONS = 8  # at a time
LISTING_PAUSE = 5.0  # seconds until an HA store that did not answer is listed again


class BlobUpkeep:
    """Does the upkeep of one BLOB server in ``run``.

    ``interval``: seconds between two clean-ups. ``settles_in``: seconds to wait before the HA store is listed.
    """

    def __init__(self, core: BlobCore, *, interval: float, settles_in: float) -> None:
        self._core = core
        self.interval = interval
        self._settles_in = settles_in
        self._running = False
        self._next: float | None = None  # by the event loop's clock

    @property
    def next_in(self) -> float | None:
        """Seconds until the next regular clean-up; None if none is planned."""
        return None if self._next is None else max(0.0, self._next - asyncio.get_running_loop().time())

    async def open(self) -> None:
        """List the HA store's BLOBs once, unless ``settles_in`` requires a wait. If this fails, ``run`` tries again."""
        if not self._settles_in:
            await self._list_ha()

    async def run(self) -> None:
        """Clean up BLOBs at regular intervals and carry out deletions, until cancelled."""
        self._running = True
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(DELETIONS):
                    group.create_task(self._core.run_deletions(), name=f"blob-deletions-{number}")
                group.create_task(self._list_until_known(), name="blob-listing")
                group.create_task(self._run_clean_up(), name="blob-clean-up")
                group.create_task(self._end_deliveries(), name="blob-deliveries")
        finally:
            self._running = False
            self._next = None

    async def collect(self) -> int:
        """Clean up now. Return the number of BLOBs deleted. Raises RetryLater unless this server runs and leads."""
        if not self._running or not self._core.confirmed.is_set():
            raise RetryLater("this JobManager is not the leader, or cannot confirm it", hint="try again in a second")
        return await self._turn()

    async def _list_ha(self) -> None:
        try:
            listing = await self._core.ha.listing()
        except EmberkeepError as error:
            log.warning("the HA store cannot list its BLOBs, trying again", reason=str(error))
        else:
            self._core.machine.found_ha(listing)

    async def _list_until_known(self) -> None:
        pause = self._settles_in or LISTING_PAUSE
        while not self._core.machine.state.ha_listed:
            await asyncio.sleep(pause)
            await self._list_ha()
            self._core.decide()
            pause = LISTING_PAUSE

    async def _end_deliveries(self) -> None:
        """End the references of off-loaded messages whose sender has died."""
        machine, deliveries = self._core.machine, Deliveries()
        while True:
            await asyncio.sleep(LONGEST_DELIVERY / 6)
            now = asyncio.get_running_loop().time()
            for owner, key, holder in deliveries.overdue(machine.state.references(), now):
                log.info("the sender of a message has ended, dropping its reference", owner=owner, holder=holder)
                machine.release(owner, key, holder)
            self._core.decide()

    async def _run_clean_up(self) -> None:
        while True:
            self._next = asyncio.get_running_loop().time() + self.interval
            await asyncio.sleep(self.interval)
            await self._turn()

    async def _turn(self) -> int:
        """Run one staged clean-up. Return the number of BLOBs that it deleted."""
        self._core.machine.turn()
        self._core.counters.cleanup_runs += 1
        results = self._core.decide()
        return sum(await asyncio.gather(*(asyncio.shield(result) for result in results)))
