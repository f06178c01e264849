"""Reads every BLOB in both stores, even if it was verified before, and replaces each bad copy from the other store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import structlog

from emberkeep.base.errors import Absent, EmberkeepError
from emberkeep.base.ids import JobId
from emberkeep.blobs.errors import DamagedBlob
from emberkeep.blobs.model import BlobKey
from emberkeep.jobmanager.blobs.core import BlobCore
from emberkeep.jobmanager.views.blobs import BlobFinding, BlobVerification

LOCAL = "local"
_MISSING = "it is missing"

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class _Sound:
    """Which stores have a sound copy of a BLOB now."""

    in_ha: bool
    in_local: bool


class Verification:
    """One pass over the stores. It notifies the state machine of what it finds."""

    def __init__(self, core: BlobCore) -> None:
        self._core = core
        self._checked = 0
        self._bytes = 0
        self._findings: list[BlobFinding] = []

    async def run(self, owner: JobId | None) -> BlobVerification:
        """Verify all BLOBs, or those of ``owner``, one after the other, so that other work can continue."""
        owners = self._core.machine.state.owners
        wanted = sorted(owners if owner is None else owners.keys() & {owner})
        for place in [(one, key) for one in wanted for key in sorted(owners[one].records)]:
            try:
                number = self._core.machine.begin_read(*place)
            except Absent:
                continue  # deleted in the meantime
            await self._verify(*place, number)
        return BlobVerification(checked=self._checked, bytes=self._bytes, findings=tuple(self._findings))

    async def _verify(self, owner: JobId, key: BlobKey, number: int) -> None:
        core = self._core
        in_local: bool | None = None
        in_ha: bool | None = None
        copy = core.local.temporary()
        try:
            local = await self._local_problem(owner, key)
            in_local = not local
            if key.is_permanent:
                sound = await self._verify_ha(owner, key, copy, local)
                in_ha, in_local = sound.in_ha, sound.in_local
            elif local:
                self._find(owner, key, LOCAL, local, healed=False)
        except EmberkeepError as error:  # a store does not answer: nothing is known about its copy
            self._find(owner, key, core.ha.location if in_local is not None else LOCAL, error.message, healed=False)
        finally:
            core.machine.end_read(owner, key, number, in_local=in_local, in_ha=in_ha)
            core.decide()
            await core.disk.discard(copy)

    async def _local_problem(self, owner: JobId, key: BlobKey) -> str:
        """Return what is wrong with the local copy; "" if it is sound. A damaged copy is deleted."""
        local = self._core.local
        try:
            actual, size = await self._core.disk.digest(await local.path(owner, key))
        except Absent:
            return _MISSING
        except DamagedBlob as error:
            self._checked += 1
            return error.message
        self._checked += 1
        if actual != key.sha256:
            await local.delete(owner, [key])
            return DamagedBlob(owner, key, actual, "the local store").message
        self._bytes += size
        return ""

    async def _verify_ha(self, owner: JobId, key: BlobKey, copy: Path, local: str) -> _Sound:
        """Verify the HA store's copy and replace a bad copy in either store."""
        core = self._core
        ha = await self._ha_problem(owner, key, copy)
        if ha:
            if not local:
                await core.ha.put(owner, key, await core.local.path(owner, key))
            self._find(owner, key, core.ha.location, ha, healed=not local)
        if local and local != _MISSING:  # a BLOB that is only in the HA store is copied when it is needed
            if not ha:
                await core.local.adopt(owner, key, copy, sha256=key.sha256)
            self._find(owner, key, LOCAL, local, healed=not ha)
            return _Sound(in_ha=not ha, in_local=not ha)
        return _Sound(in_ha=not (ha and local), in_local=not local)

    async def _ha_problem(self, owner: JobId, key: BlobKey, copy: Path) -> str:
        """Fetch the HA store's copy into ``copy``. Return what is wrong with it; "" if it is sound."""
        try:
            await self._core.ha.fetch(owner, key, copy)
        except Absent:
            return _MISSING
        actual, size = await self._core.disk.digest(copy)
        self._checked += 1
        if actual != key.sha256:
            return DamagedBlob(owner, key, actual, self._core.ha.location).message
        self._bytes += size
        return ""

    def _find(self, owner: JobId, key: BlobKey, store: str, problem: str, *, healed: bool) -> None:
        log.warning("a BLOB failed its verification", owner=owner, store=store, problem=problem, healed=healed)
        if problem != _MISSING:
            self._core.counters.verify_failures += 1
        self._findings.append(BlobFinding(owner=owner, key=key, store=store, problem=problem, healed=healed))
