"""Reads of the BLOB server: from the local store, else copied there from the HA store (BLOB-2, 7, 8).

Concurrent readers of a BLOB share one copy.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import structlog

from emberkeep.base.errors import Absent, Fatal, Unavailable
from emberkeep.base.ids import JobId
from emberkeep.blobs.errors import DamagedBlob
from emberkeep.blobs.model import BlobKey
from emberkeep.jobmanager.blobs.core import BlobCore

log = structlog.get_logger(__name__)

COPIES = 8  # concurrent copies from the HA store


class BlobCopies:
    """Copies between the two stores, at most one per BLOB at a time."""

    def __init__(self, core: BlobCore) -> None:
        self._core = core
        self._flights: dict[tuple[JobId, BlobKey], asyncio.Task[None]] = {}
        self._places = asyncio.Semaphore(COPIES)

    async def path(self, owner: JobId, key: BlobKey) -> Path:
        """Return the verified file in the local store.

        Raises Absent, Damaged (in both stores), Unavailable (the local copy cannot be read now, and the HA store has
        none), RetryLater and Fatal of the HA store.
        """
        counters = self._core.counters
        try:
            path, trouble = await self._look(owner, key)
        except Absent:
            counters.misses += 1
            raise
        if path is not None:
            counters.local_hits += 1
            return path
        if not key.is_permanent:
            counters.misses += 1
            raise trouble or Absent(f"BLOB {key} of job {owner} no longer exists", hint="create it again")
        try:
            await self.bring(owner, key, keeps_local=isinstance(trouble, Unavailable))
        except DamagedBlob as error:
            if trouble is None:
                raise
            kind = Unavailable if isinstance(trouble, Unavailable) else Fatal
            raise kind(f"{trouble.message}; {error.message}", hint=error.hint) from error
        except Absent as error:
            counters.misses += 1
            raise trouble or error from error
        counters.ha_hits += 1
        return await self._core.local.path(owner, key)

    async def _look(self, owner: JobId, key: BlobKey) -> tuple[Path | None, DamagedBlob | Unavailable | None]:
        """Return the file in the local store, or None and what is wrong with it; both None if the file is missing.

        Raises Absent if there is no such BLOB.
        """
        number = self._core.machine.begin_read(owner, key)
        found: bool | None = None
        try:
            path, trouble = await self._here(owner, key)
            found = None if isinstance(trouble, Unavailable) else path is not None
        finally:
            self._core.machine.end_read(owner, key, number, in_local=found)
            self._core.decide()
        return path, trouble

    async def _here(self, owner: JobId, key: BlobKey) -> tuple[Path | None, DamagedBlob | Unavailable | None]:
        try:
            return await self._core.local.path(owner, key), None
        except Absent:
            return None, None
        except DamagedBlob as error:
            self._core.counters.verify_failures += 1
            log.warning("a BLOB in the local store is damaged", reason=error.message)
            return None, error
        except Unavailable as error:
            log.warning(
                "a BLOB in the local store cannot be read now, reading it from the HA store", reason=error.message
            )
            return None, error

    async def bring(self, owner: JobId, key: BlobKey, *, keeps_local: bool = False) -> None:
        """Copy a BLOB from the HA store into the local store. Concurrent calls share one copy.

        ``keeps_local``: the local store may have a copy that cannot be read now, so do not note after a failure that it
        has none. Raises what ``path`` raises.
        """
        flight = self._flights.get((owner, key))
        if flight is None:
            self._core.refuse_closed()
            flight = asyncio.create_task(self._fly(owner, key, keeps_local=keeps_local), name=f"copy of {key}")
            self._flights[owner, key] = flight
            flight.add_done_callback(lambda done: self._landed(owner, key, done))
        await asyncio.shield(flight)

    def _landed(self, owner: JobId, key: BlobKey, flight: asyncio.Task[None]) -> None:
        del self._flights[owner, key]
        if not flight.cancelled():
            flight.exception()  # callers that wait raise it; fetch it here in case none is left

    async def _fly(self, owner: JobId, key: BlobKey, *, keeps_local: bool) -> None:
        core = self._core
        number = core.machine.begin_read(owner, key)
        in_local: bool | None = None
        in_ha: bool | None = None
        file = core.local.temporary()
        try:
            async with self._places:
                await core.ha.fetch(owner, key, file)
                await core.local.adopt(owner, key, file)
            in_local = in_ha = True
        except Absent:
            in_local, in_ha = (None if keeps_local else False), False
            raise
        except DamagedBlob as error:
            in_local, in_ha = (None if keeps_local else False), False
            core.counters.verify_failures += 1
            log.error("a BLOB in the HA store is damaged", reason=error.message, store=core.ha.location)
            raise DamagedBlob(owner, key, error.actual, core.ha.location) from error
        finally:
            core.machine.end_read(owner, key, number, in_local=in_local, in_ha=in_ha)
            core.decide()
            if in_ha is not True:
                await core.disk.discard(file)

    async def wait(self) -> None:
        """Return once no copy is under way."""
        while self._flights:
            await asyncio.wait(list(self._flights.values()))
