"""Brings a BLOB into the local store: from another job's copy, the HA store, or the BLOB sources in their order.

Every copy is verified. If a copy is damaged, the next source is asked (BLOB-2, BLOB-7).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from weakref import WeakValueDictionary

import structlog

from emberkeep.base.errors import Absent, EmberkeepError, Fatal, RetryLater, Unavailable
from emberkeep.base.ids import JobId
from emberkeep.base.system import System
from emberkeep.blobs.errors import CannotStore, DamagedBlob
from emberkeep.blobs.model import BlobKey
from emberkeep.blobs.ports import BlobSource, BlobStorage, LocalStore

log = structlog.get_logger(__name__)

TRANSFERS = 64  # at the same time
_FIRST_PAUSE = 0.2  # seconds between two rounds through all sources; doubled each time
_LONGEST_PAUSE = 5.0
_HA_PAUSE = 30.0  # seconds for which an HA store that failed is not asked

Fetch = Callable[[Path], Awaitable[str | None]]


@dataclass
class SupplyCounters:
    """Counts since the process started."""

    hits: int = 0
    shared: int = 0
    ha_hits: int = 0
    downloads: int = 0
    received_bytes: int = 0
    failures: int = 0
    verify_failures: int = 0


@dataclass
class _Tried:
    """The newest reply of each store and source about one BLOB. ``damage`` survives later rounds."""

    reasons: dict[str, str] = field(default_factory=dict)
    damage: dict[str, str] = field(default_factory=dict)
    away: RetryLater | None = None
    refusal: EmberkeepError | None = None

    def note(self, place: str, error: EmberkeepError) -> None:
        if isinstance(error, DamagedBlob):
            self.damage[place] = f"SHA-256 {error.actual or 'unknown: the file cannot be read'}"
            return
        self.reasons[place] = "does not have it" if isinstance(error, Absent) else error.message
        if isinstance(error, RetryLater):
            self.away = error
        elif not isinstance(error, Absent):
            self.refusal = error

    def error(self, owner: JobId, key: BlobKey) -> EmberkeepError:
        """Return the final error: its class, the key, both checksums, and every store and source that was asked."""
        places = [f"{place}: damaged ({found}, not {key.sha256})" for place, found in self.damage.items()]
        places += [f"{place}: {reason}" for place, reason in self.reasons.items() if place not in self.damage]
        message = f"BLOB {key} of job {owner} is unavailable: {'; '.join(places) or 'no place has it'}"
        if self.away is not None:
            return RetryLater(message, hint=self.away.hint)
        if self.refusal is not None:
            return Fatal(message, hint=self.refusal.hint)
        if self.damage:
            return Fatal(message, hint="upload the file again")
        return Absent(message)


class BlobSupply:
    """Brings BLOBs. ``patience``: seconds for which it repeats rounds while a source does not reply."""

    def __init__(
        self,
        system: System,
        local: LocalStore,
        ha: BlobStorage | None,
        sources: Sequence[BlobSource],
        *,
        patience: float,
    ) -> None:
        self.counters = SupplyCounters()
        self._system = system
        self._local = local
        self._ha = ha
        self._sources = sources
        self._patience = patience
        self._slots = asyncio.Semaphore(TRANSFERS)
        self._contents: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._ha_rests_until: float | None = None

    async def bring(self, owner: JobId, key: BlobKey, *, look_here: bool) -> Path:
        """Return the verified file. ``look_here``: this owner's copy may already be in the local store.

        Raises Absent, RetryLater, CannotStore, Fatal.
        """
        deadline = self._system.clock.monotonic() + self._patience
        pause = _FIRST_PAUSE
        damage: dict[str, str] = {}
        while True:
            tried = _Tried(damage=damage)
            # One transfer at a time for the same content: a second job finds the first one's copy in the local store.
            async with self._contents.setdefault(key.sha256, asyncio.Lock()):
                path = await self._stored(owner, key, tried) if look_here else None
                if path is not None:
                    self.counters.hits += 1
                    return path
                if await self._shared(owner, key, tried) or await self._from_elsewhere(owner, key, tried):
                    path = await self._stored(owner, key, tried)
            if path is not None:
                return path
            rest = deadline - self._system.clock.monotonic()
            if tried.away is None or rest <= 0:
                self.counters.failures += 1
                raise tried.error(owner, key)
            await asyncio.sleep(min(rest, pause * self._system.rng.uniform(0.5, 1.0)))
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _stored(self, owner: JobId, key: BlobKey, tried: _Tried) -> Path | None:
        try:
            return await self._local.path(owner, key)
        except Absent:
            return None
        except (DamagedBlob, Unavailable) as error:
            self._note(tried, "local store", error, owner, key)
            return None

    async def _shared(self, owner: JobId, key: BlobKey, tried: _Tried) -> bool:
        """Copy the BLOB from another owner in the local store. Return True if there was a copy."""
        try:
            found = await self._local.share(owner, key)
        except (Absent, DamagedBlob) as error:
            self._note(tried, "local store", error, owner, key)
            return False
        self.counters.shared += found
        return found

    async def _from_elsewhere(self, owner: JobId, key: BlobKey, tried: _Tried) -> bool:
        """Transfer the BLOB from the HA store or a source into the local store. Return True if a transfer succeeded."""
        async with self._slots:
            if await self._from_ha(owner, key, tried):
                self.counters.ha_hits += 1
                return True
            for source in self._sources:

                async def download(file: Path, source: BlobSource = source) -> str | None:
                    return await source.download(owner, key, file)

                if await self._transfer(source.location, download, owner, key, tried):
                    source.obtained(owner, key)
                    self.counters.downloads += 1
                    return True
        return False

    async def _from_ha(self, owner: JobId, key: BlobKey, tried: _Tried) -> bool:
        ha = self._ha
        if ha is None or not key.is_permanent:
            return False
        if self._ha_rests_until is not None and self._system.clock.monotonic() < self._ha_rests_until:
            return False

        async def copy(file: Path) -> None:
            await ha.fetch(owner, key, file)

        own = _Tried()
        found = await self._transfer(ha.location, copy, owner, key, own)
        tried.damage.update(own.damage)
        # an HA store that is away does not matter: the BLOB server has what the store holds
        tried.reasons.update(own.reasons)
        failure = own.away or own.refusal
        if failure is not None:
            if self._ha_rests_until is None:
                log.warning("cannot read the HA store here; fetching from the BLOB server instead", reason=str(failure))
            self._ha_rests_until = self._system.clock.monotonic() + _HA_PAUSE
        elif self._ha_rests_until is not None:
            self._ha_rests_until = None
            log.info("the HA store can be read again")
        return found

    async def _transfer(self, place: str, fetch: Fetch, owner: JobId, key: BlobKey, tried: _Tried) -> bool:
        """Transfer one copy from ``place`` into the local store. Return True if the copy is there.

        Raises CannotStore and what the local store raises.
        """
        file = self._local.temporary()
        try:
            try:
                sha256 = await fetch(file)
            except CannotStore:
                raise
            except EmberkeepError as error:
                self._note(tried, place, error, owner, key)
            else:
                try:
                    size = await self._local.adopt(owner, key, file, sha256=sha256)
                except DamagedBlob as error:
                    self._note(tried, place, error, owner, key)
                else:
                    self.counters.received_bytes += size
                    return True
        except BaseException:
            await asyncio.to_thread(file.unlink, missing_ok=True)
            raise
        await asyncio.to_thread(file.unlink, missing_ok=True)
        return False

    def _note(self, tried: _Tried, place: str, error: EmberkeepError, owner: JobId, key: BlobKey) -> None:
        if isinstance(error, DamagedBlob):
            self.counters.verify_failures += 1
            log.warning("a BLOB's copy is damaged; trying the next source", reason=error.message, place=place)
        else:
            log.debug("a source did not supply a BLOB", owner=owner, key=str(key), place=place, reason=error.message)
        tried.note(place, error)
