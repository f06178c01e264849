"""A process's BLOB cache: verified files of jobs by key, one transfer for all callers, staged clean-up.

``blobs.cache_machine`` decides what is kept and deleted; ``taskmanager.blobs.supply`` decides where bytes come from.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import structlog

from emberkeep.base.errors import Absent, EmberkeepError, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.base.system import System
from emberkeep.blobs.cache_machine import CacheDeletion, CacheMachine
from emberkeep.blobs.errors import DamagedBlob
from emberkeep.blobs.model import BlobKey
from emberkeep.blobs.ports import BlobSource, BlobStorage, LocalStore
from emberkeep.protocol.messages.task_manager_reports import BlobCacheReport
from emberkeep.taskmanager.blobs.supply import BlobSupply

log = structlog.get_logger(__name__)

PATIENCE = 30.0  # seconds for which a retrieval waits for sources that do not reply
# seconds for which a peer waits for a transfer under way: the BLOB server sends peers here once it has sent the BLOB
_LANDING = 20.0


class BlobCache:
    """Implements ``blobs.ports.BlobAccess``. Belongs to one event loop; ``start`` it first, ``run`` cleans up."""

    def __init__(
        self,
        system: System,
        local: LocalStore,
        ha: BlobStorage | None,
        sources: Sequence[BlobSource],
        *,
        retention: float,
        patience: float = PATIENCE,
    ) -> None:
        """``ha`` is only read. ``retention``: seconds between two clean-ups. ``patience``: see ``BlobSupply``."""
        self._local = local
        self._retention = retention
        self._supply = BlobSupply(system, local, ha, sources, patience=patience)
        self._machine = CacheMachine()
        self._flights: dict[tuple[JobId, BlobKey], asyncio.Task[Path]] = {}
        self._deletions: dict[JobId, asyncio.Future[None]] = {}
        self._collecting = asyncio.Lock()
        self._deleted = 0
        self._cleanup_runs = 0
        self._served = 0
        self._closed = False

    async def start(self) -> None:
        """Open the local store. BLOBs of an earlier process are kept for now and verified at their first use."""
        await self._local.open_store()
        for owner, blobs in (await self._local.listing()).items():
            self._machine.found(owner, [blob.key for blob in blobs])

    async def run(self) -> None:
        """Clean up after each interval, until cancelled."""
        while True:
            await asyncio.sleep(self._retention)
            await self.collect()

    async def close(self) -> None:
        """End transfers and delete everything, for an orderly exit (BLOB-16). Idempotent."""
        if self._closed:
            return
        await self.leave()
        async with self._collecting:
            try:
                for owner in await self._local.listing():
                    await self._local.delete_owner(owner)
            except EmberkeepError as error:
                log.warning("cannot delete all cached BLOBs; the rest is left behind", reason=str(error))

    async def leave(self) -> None:
        """End transfers and keep all files for the next process. ``close`` does nothing afterwards."""
        self._closed = True
        flights = list(self._flights.values())
        for flight in flights:
            flight.cancel()
        if flights:
            await asyncio.wait(flights)

    # --- retrieval ----------------------------------------------------------------------------------------------------

    async def acquire(self, owner: JobId, key: BlobKey, holder: str) -> Path:
        """See BlobAccess. A cancelled caller does not stop the transfer for the others."""
        claim = self._machine.claim(owner, key, holder)
        try:
            path = await self._flown(owner, key)
        except BaseException:
            self._machine.give_up(claim)
            raise
        self._machine.hold(claim)
        return path

    def release(self, owner: JobId, key: BlobKey, holder: str) -> None:
        self._machine.release(owner, key, holder)

    def release_all(self, owner: JobId, holder: str) -> None:
        self._machine.release_all(owner, holder)

    async def serve(self, owner: JobId, key: BlobKey) -> Path:
        """Return the verified file for a peer if the file is here, or arrives within ``_LANDING`` seconds.

        Starts no transfer. Raises Absent.
        """
        flight = self._flights.get((owner, key))
        if flight is not None:
            await asyncio.wait([flight], timeout=_LANDING)
        try:
            path = await self._local.path(owner, key)
        except DamagedBlob as error:
            self._supply.counters.verify_failures += 1
            raise Absent(f"BLOB {key} of job {owner} is damaged here") from error
        self._served += 1
        return path

    async def _flown(self, owner: JobId, key: BlobKey) -> Path:
        """Return the result of the only transfer of this key. Start the transfer if none is under way."""
        if self._closed:
            raise RetryLater("this process's BLOB cache is closed")
        flight = self._flights.get((owner, key))
        if flight is None:
            flight = asyncio.create_task(self._fly(owner, key), name=f"blob {key}")
            self._flights[owner, key] = flight
            flight.add_done_callback(lambda done: self._landed(owner, key, done))
        await asyncio.wait([flight])
        if flight.cancelled():
            raise RetryLater("this process's BLOB cache was closed")
        return flight.result()

    async def _fly(self, owner: JobId, key: BlobKey) -> Path:
        claim = self._machine.claim(owner, key, None)
        try:
            while (deletion := self._deletions.get(owner)) is not None:
                await asyncio.wait([deletion])
            path = await self._supply.bring(owner, key, look_here=self._machine.may_be_stored(owner, key))
        except BaseException:
            self._machine.give_up(claim)
            raise
        self._machine.hold(claim)
        return path

    def _landed(self, owner: JobId, key: BlobKey, flight: asyncio.Task[Path]) -> None:
        del self._flights[owner, key]
        if not flight.cancelled():
            flight.exception()  # mark it as retrieved: waiters raise it themselves, but there may be none

    # --- clean-up -----------------------------------------------------------------------------------------------------

    async def collect(self) -> int:
        """Run the staged clean-up once (BLOB-10). Return the number of BLOBs deleted."""
        async with self._collecting:
            deletions = self._machine.turn()
            self._cleanup_runs += 1
            loop = asyncio.get_running_loop()
            for deletion in deletions:
                self._deletions[deletion.owner] = loop.create_future()
            deleted = 0
            try:
                for deletion in deletions:
                    deleted += await self._delete(deletion)
            finally:
                for deletion in deletions:
                    self._deletion_over(deletion.owner)
            self._deleted += deleted
            return deleted

    async def _delete(self, deletion: CacheDeletion) -> int:
        try:
            if deletion.whole:
                await self._local.delete_owner(deletion.owner)
            else:
                await self._local.delete(deletion.owner, deletion.keys)
        except EmberkeepError as error:
            log.warning("cannot delete BLOBs; trying again later", owner=deletion.owner, reason=str(error))
            self._machine.found(deletion.owner, deletion.keys)
            return 0
        finally:
            self._deletion_over(deletion.owner)
        return len(deletion.keys)

    def _deletion_over(self, owner: JobId) -> None:
        """Resume the transfers that waited for the deletion of ``owner``'s BLOBs."""
        future = self._deletions.pop(owner, None)
        if future is not None:
            future.set_result(None)

    def report(self) -> BlobCacheReport:
        """Return the counters, for the heartbeat."""
        counters = self._supply.counters
        return BlobCacheReport(
            blobs=self._machine.blobs,
            hits=counters.hits,
            shared=counters.shared,
            ha_hits=counters.ha_hits,
            downloads=counters.downloads,
            received_bytes=counters.received_bytes,
            failures=counters.failures,
            verify_failures=counters.verify_failures,
            served=self._served,
            deleted=self._deleted,
            cleanup_runs=self._cleanup_runs,
        )
