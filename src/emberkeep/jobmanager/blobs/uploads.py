"""Uploads to the BLOB server.

An upload is acknowledged once all stores hold the BLOB; else nothing is kept (BLOB-5).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence

import structlog

from emberkeep.base.errors import Conflict, EmberkeepError, Fatal, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.blobs.attempt_fences import NO_ATTEMPT
from emberkeep.blobs.groups import check_group
from emberkeep.blobs.model import BlobContent, BlobKey, key_of, transient
from emberkeep.jobmanager.blobs.core import BlobCore

SHARES = 8  # at a time
CHUNK = 1024**2  # bytes

log = structlog.get_logger(__name__)


class Abortable:
    """A client's chunks. After ``abort``, the upload fails where it reads the next chunk, and nowhere else."""

    def __init__(self, chunks: AsyncIterable[bytes]) -> None:
        self._chunks = aiter(chunks)
        self._reason: EmberkeepError | None = None
        self._reader: asyncio.Task[object] | None = None  # the task that waits for the client now

    def abort(self, reason: EmberkeepError) -> None:
        """Make the reader raise ``reason``. Chunks read so far may still be written."""
        if self._reason is None:
            self._reason = reason
            if self._reader is not None:
                self._reader.cancel()

    def __aiter__(self) -> Abortable:
        return self

    async def __anext__(self) -> bytes:
        self._raise_reason()
        reader = self._reader = asyncio.current_task()
        try:
            return await anext(self._chunks)
        except asyncio.CancelledError:
            if reader is not None and self._reason is not None:
                reader.uncancel()
            self._raise_reason()
            raise
        finally:
            self._reader = None

    def _raise_reason(self) -> None:
        if self._reason is not None:
            raise self._reason


class BlobUploads:
    """Runs each upload as a task of its own, which cleans up after itself even if its client or its job is gone."""

    def __init__(self, core: BlobCore, *, max_size: int) -> None:
        self._core = core
        self._max_size = max_size
        self._under_way: dict[asyncio.Task[int], tuple[JobId, Abortable | None]] = {}

    async def open_group(self, owner: JobId, contents: Sequence[BlobContent]) -> tuple[str, ...]:
        """Announce permanent BLOBs; see BlobServerGateway.

        BLOBs that another job has are shared, not uploaded (BLOB-21).
        """
        machine = self._core.machine
        self._core.refuse_closed()
        self._core.refuse_unlisted()
        check_group(contents, self._max_size)
        missing = machine.uploads.open_group(owner, contents)
        self._core.decide()
        sizes = {key_of(content): content.size for content in contents}
        places = asyncio.Semaphore(SHARES)

        async def share(key: BlobKey) -> None:
            try:
                async with places:
                    await self._share(owner, key, sizes[key])
            except EmberkeepError as error:
                log.info("cannot share a BLOB, so its owner must upload it", key=str(key), reason=str(error))
            else:
                shared.add(key)

        shared: set[BlobKey] = set()
        await asyncio.gather(*(share(key) for key in missing if machine.state.is_elsewhere(owner, key, sizes[key])))
        return tuple(key.sha256 for key in missing if key not in shared)

    async def upload(
        self,
        owner: JobId,
        key: BlobKey,
        chunks: AsyncIterable[bytes],
        *,
        size: int | None,
        holders: Sequence[str],
        attempt: int,
    ) -> int:
        """Store a BLOB. See BlobServerGateway."""
        source = Abortable(chunks)

        async def receive() -> int:
            return await self._core.local.receive(owner, key, source, max_size=self._max_size, size=size)

        stored = await self._run(owner, key, receive, source, holders, attempt)
        self._core.counters.uploads += 1
        self._core.counters.uploaded_bytes += stored
        return stored

    async def store_bytes(self, owner: JobId, data: bytes, holders: Sequence[str]) -> BlobKey:
        """Store a transient BLOB of this process. See BlobServerGateway."""
        key = transient(await self._core.disk.digest_bytes(data))

        async def pieces() -> AsyncIterator[bytes]:
            view = memoryview(data)
            for start in range(0, len(data), CHUNK):
                yield bytes(view[start : start + CHUNK])

        await self.upload(owner, key, pieces(), size=len(data), holders=holders, attempt=NO_ATTEMPT)
        return key

    async def _share(self, owner: JobId, key: BlobKey, size: int) -> None:
        """Store what another owner has, without a transfer (BLOB-21).

        Raises what ``upload`` raises, and RetryLater if no other owner has it any longer.
        """

        async def share() -> int:
            if not await self._core.local.share(owner, key):
                raise RetryLater(f"no other job has BLOB {key} any longer")
            return size

        await self._run(owner, key, share, None, (), NO_ATTEMPT)

    def abort(self, owner: JobId) -> None:
        """Abort the uploads of a job that has ended. The deletion of the job's BLOBs waits for them."""
        for known, source in list(self._under_way.values()):
            if known == owner and source is not None:
                source.abort(Conflict(f"job {owner} has ended", hint="submit under a new job id"))

    async def abort_all(self) -> None:
        """Abort all uploads, because the server stops. No upload is under way when this returns."""
        for _, source in list(self._under_way.values()):
            if source is not None:
                source.abort(RetryLater("this BLOB server is shutting down", hint="try again in a few seconds"))
        if self._under_way:
            await asyncio.wait(list(self._under_way))

    async def _run(
        self,
        owner: JobId,
        key: BlobKey,
        take: Callable[[], Awaitable[int]],
        source: Abortable | None,
        holders: Sequence[str],
        attempt: int,
    ) -> int:
        core = self._core
        core.refuse_closed()
        if key.is_permanent:
            core.refuse_unlisted()
        while core.machine.state.is_blocked(owner, key):
            await core.deletion_ended()
            core.refuse_closed()
        number = core.machine.uploads.begin(owner, key, holders, attempt)
        task = asyncio.create_task(self._store(number, owner, key, take), name=f"upload of {key}")
        self._under_way[task] = (owner, source)
        task.add_done_callback(self._over)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if source is not None:
                source.abort(RetryLater("the client has closed the connection"))
            raise

    def _over(self, task: asyncio.Task[int]) -> None:
        del self._under_way[task]
        if not task.cancelled():
            task.exception()  # the client may be gone: fetch the error, so that asyncio does not log it

    async def _store(self, number: int, owner: JobId, key: BlobKey, take: Callable[[], Awaitable[int]]) -> int:
        core, leftovers = self._core, False
        try:
            try:
                size = await take()
                leftovers = True
            except Fatal:
                leftovers = True
                raise
            if key.is_permanent:
                await core.ha.put(owner, key, await core.local.path(owner, key))
        except BaseException as error:
            core.machine.uploads.failed(number, leftovers=leftovers)
            deletions = core.decide()
            if deletions and isinstance(error, Exception):
                await asyncio.wait(deletions)  # delete what is left before the client learns of the failure
            raise
        stored = core.machine.uploads.stored(number, size)
        core.decide()
        if not stored:
            raise Conflict(
                f"job {owner}, or the attempt that stores this for it, has ended in the meantime: the upload was "
                "discarded",
                hint="submit under a new job id; the process of a replaced attempt must end",
            )
        return size
