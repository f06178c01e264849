"""The BLOB server: stores jobs' BLOBs, counts their references, and deletes unreferenced ones.

``blobs.server_machine`` decides what is kept and deleted. Its events come from the event loop's thread and never wait
for a store. So calls that only count (references, events of jobs) are answered at once and in order. Work on the stores
runs concurrently, and the state machine is notified when each operation begins and ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Sequence
from pathlib import Path

import structlog

from emberkeep.base.configuration.options.blobs import (
    BLOB_DIRECT_DOWNLOADS,
    BLOB_MAX_COUNT,
    BLOB_MAX_SIZE,
    BLOB_RETENTION,
)
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import EmberkeepError
from emberkeep.base.ids import JobId
from emberkeep.blobs.attempt_fences import NO_ATTEMPT
from emberkeep.blobs.model import BlobContent, BlobKey
from emberkeep.blobs.peers import Peers
from emberkeep.blobs.ports import BlobStorage, LocalStore
from emberkeep.blobs.server_machine import ServerMachine
from emberkeep.jobmanager.blobs.copies import BlobCopies
from emberkeep.jobmanager.blobs.core import CONFIRMED_SECONDS, BlobCore, Disk, ThreadedDisk
from emberkeep.jobmanager.blobs.redirects import BlobRedirects
from emberkeep.jobmanager.blobs.upkeep import BlobUpkeep
from emberkeep.jobmanager.blobs.uploads import BlobUploads
from emberkeep.jobmanager.blobs.verification import Verification
from emberkeep.jobmanager.views.blobs import BlobStatistics, BlobVerification, BlobView

log = structlog.get_logger(__name__)

CLOSING = 20.0  # longest duration of an orderly exit, in seconds


class BlobServer:
    """Implements BlobServerGateway. Call ``open`` once, then ``run``; ``close`` only in an orderly exit.

    Most operations only call one part.
    """

    def __init__(
        self,
        configuration: Configuration,
        local: LocalStore,
        ha: BlobStorage,
        *,
        confirm: Callable[[], Awaitable[None]],
        disk: Disk | None = None,
        overtook: bool = False,
    ) -> None:
        """Create a server that does nothing before ``open``.

        ``confirm`` raises an EmberkeepError unless this JobManager is the leader. ``disk``: None for the machine's own.
        ``overtook``: the previous leader's session had not ended. It may still delete BLOBs, for as long as its last
        confirmation is valid, so this server waits before it lists the HA store.
        """
        machine = ServerMachine(most=configuration[BLOB_MAX_COUNT])
        peers = Peers(configuration[BLOB_DIRECT_DOWNLOADS])
        self._core = BlobCore(machine, local, ha, peers, disk or ThreadedDisk(), confirm)
        self._machine = machine
        self._uploads = BlobUploads(self._core, max_size=configuration[BLOB_MAX_SIZE])
        self._copies = BlobCopies(self._core)
        self.redirects = BlobRedirects(self._core)
        self._upkeep = BlobUpkeep(
            self._core, interval=configuration[BLOB_RETENTION], settles_in=CONFIRMED_SECONDS if overtook else 0.0
        )

    # --- start and stop -----------------------------------------------------------------------------------------------

    async def open(self, jobs: Iterable[JobId], ended: Iterable[JobId]) -> None:
        """Read what the stores hold.

        ``jobs``: the recovered jobs, for each of which the caller must call ``job_submitted``. ``ended``: jobs that
        have ended (BLOB-17).

        BLOBs of other jobs in the HA store may be another cluster's, so they stay until ``give_up`` names them. An HA
        store that does not answer is asked again later. Raises Fatal if the local store cannot be used.
        """
        core = self._core
        await core.local.open_store()
        self._machine.recover(jobs, ended)
        self._machine.found_local(await core.local.listing())
        await self._upkeep.open()
        core.decide()

    def unknown_owners(self) -> set[JobId]:
        """Return the owners of BLOBs in the HA store that this server does not know. Raises RetryLater."""
        self._core.refuse_unlisted()
        return self._machine.state.unknown_owners

    def give_up(self, owners: Iterable[JobId]) -> None:
        """Let the clean-up decide about the BLOBs of these owners, which no job has needed for a long time."""
        self._machine.give_up(owners)
        self._core.decide()

    async def run(self) -> None:
        """Clean up BLOBs at regular intervals and carry out deletions, until cancelled."""
        await self._upkeep.run()

    def pause(self) -> None:
        """Delete nothing until ``resume``, as the leadership cannot be confirmed.

        Another JobManager may have taken over, and need what is unreferenced here.
        """
        self._core.confirmed.clear()

    def resume(self) -> None:
        """Resume deletions, because the leadership is confirmed."""
        self._core.confirmed.set()

    async def close(self) -> None:
        """Empty the local store in an orderly exit (BLOB-16). Needs ``run`` until this returns. Never fails.

        The HA store keeps what jobs need for recovery, and what clients have uploaded and not submitted yet. If an
        error leaves BLOBs behind, the next start cleans them up.
        """
        core = self._core
        core.closed = True
        try:
            async with asyncio.timeout(CLOSING):
                await self._uploads.abort_all()
                await self._copies.wait()
                for owner, keys in self._machine.state.needless().items():
                    await core.delete_needless(owner, keys)
                for owner in await core.local.listing():
                    await core.local.delete_owner(owner)
        except (EmberkeepError, TimeoutError) as error:
            log.warning("some BLOBs are left for the clean-up of the next start", reason=str(error))

    # --- events of jobs -----------------------------------------------------------------------------------------------

    def job_submitted(self, job_id: JobId, keys: Sequence[BlobKey], attempt: int = NO_ATTEMPT) -> None:
        self._machine.submit(job_id, keys, attempt)
        self._core.decide()

    def job_restarting(self, job_id: JobId, attempt: int) -> None:
        self._machine.restart(job_id, attempt)
        self._core.decide()

    def job_ended(self, job_id: JobId) -> None:
        self._machine.end(job_id)
        self._uploads.abort(job_id)
        self._core.decide()

    # --- uploads ------------------------------------------------------------------------------------------------------

    async def open_group(self, owner: JobId, contents: Sequence[BlobContent]) -> tuple[str, ...]:
        return await self._uploads.open_group(owner, contents)

    async def upload(
        self,
        owner: JobId,
        key: BlobKey,
        chunks: AsyncIterable[bytes],
        *,
        size: int | None,
        holders: Sequence[str] = (),
        attempt: int = NO_ATTEMPT,
    ) -> int:
        if attempt == NO_ATTEMPT:  # else a job that runs needs it
            self._machine.uploads.refuse_surplus(owner, (key,))
        return await self._uploads.upload(owner, key, chunks, size=size, holders=holders, attempt=attempt)

    async def store_bytes(self, owner: JobId, data: bytes, holders: Sequence[str]) -> BlobKey:
        return await self._uploads.store_bytes(owner, data, holders)

    # --- references ---------------------------------------------------------------------------------------------------

    async def claim(self, owner: JobId, contents: Sequence[BlobContent]) -> None:
        self._core.refuse_closed()
        if contents:
            self._core.refuse_unlisted()
        self._machine.claim(owner, contents)

    def withdraw(self, owner: JobId) -> None:
        self._machine.withdraw(owner)
        self._core.decide()

    def hold(self, owner: JobId, key: BlobKey, holders: Sequence[str]) -> None:
        self._machine.hold(owner, key, holders)

    def release(self, owner: JobId, key: BlobKey, holder: str, attempt: int = NO_ATTEMPT) -> None:
        self._machine.release(owner, key, holder, attempt)
        self._core.decide()

    # --- downloads ----------------------------------------------------------------------------------------------------

    async def path(self, owner: JobId, key: BlobKey) -> Path:
        return await self._copies.path(owner, key)

    # --- for operators ------------------------------------------------------------------------------------------------

    async def blobs(self, owner: JobId | None = None) -> list[BlobView]:
        owners = self._machine.state.owners
        return [
            BlobView(
                owner=known,
                key=key,
                size=record.size,
                in_local_store=record.in_local,
                in_ha_store=record.in_ha,
                references=tuple(sorted(record.holders)),
                state=self._machine.state.state_of(known, key),
            )
            for known in sorted(owners if owner is None else owners.keys() & {owner})
            for key, record in sorted(owners[known].records.items())
        ]

    async def verify(self, owner: JobId | None = None) -> BlobVerification:
        return await Verification(self._core).run(owner)

    async def collect(self) -> int:
        return await self._upkeep.collect()

    def statistics(self) -> BlobStatistics:
        counters = self._core.counters
        owners = self._machine.state.owners.values()
        stored = [record for owner in owners for record in owner.records.values() if record.is_stored]
        return BlobStatistics(
            blobs=len(stored),
            bytes=sum(record.size for record in stored),
            uploads=counters.uploads,
            uploaded_bytes=counters.uploaded_bytes,
            downloads=counters.downloads,
            downloaded_bytes=counters.downloaded_bytes,
            local_hits=counters.local_hits,
            ha_hits=counters.ha_hits,
            misses=counters.misses,
            verify_failures=counters.verify_failures,
            cleanup_runs=counters.cleanup_runs,
            deleted=counters.deleted,
            redirected=counters.redirected,
            cleanup_interval=self._upkeep.interval,
            cleanup_in=self._upkeep.next_in,
        )

    def check_invariants(self) -> None:
        """Raise AssertionError if the state contradicts itself. For tests and the simulator."""
        self._machine.check_invariants()
