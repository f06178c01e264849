"""The core of the BLOB server's parts: its state machine, its two stores, its counters, and the queue of deletions."""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import structlog

from emberkeep.base.errors import EmberkeepError, RetryLater
from emberkeep.base.files.errors import disk_fails
from emberkeep.base.ids import JobId
from emberkeep.blobs.model import BlobKey
from emberkeep.blobs.peers import Peers
from emberkeep.blobs.ports import BlobStorage, LocalStore
from emberkeep.blobs.server_machine import ServerMachine
from emberkeep.blobs.server_records import Deletion

CONFIRMED_SECONDS = 2.0  # less than any session timeout that ZooKeeper grants with its default tickTime
SMALL = 64 * 1024  # bytes; hashing so few takes less time than a switch to a thread

log = structlog.get_logger(__name__)


@dataclass
class Counters:
    """Counts since the process started."""

    uploads: int = 0
    uploaded_bytes: int = 0
    downloads: int = 0
    downloaded_bytes: int = 0
    local_hits: int = 0
    ha_hits: int = 0
    misses: int = 0
    verify_failures: int = 0
    cleanup_runs: int = 0
    deleted: int = 0
    redirected: int = 0


class Disk(Protocol):
    """The BLOB server's own work on files and long byte strings, done without blocking the event loop."""

    async def digest(self, file: Path) -> tuple[str, int]:
        """Return the SHA-256 and the size in bytes of a file. Raises Fatal, Unavailable."""

    async def digest_bytes(self, data: bytes) -> str:
        """Return the SHA-256."""

    async def discard(self, file: Path) -> None:
        """Delete a file. One that does not exist is ignored."""


class ThreadedDisk:
    """The machine's disk, accessed in threads."""

    async def digest(self, file: Path) -> tuple[str, int]:
        try:
            return await asyncio.to_thread(_digest, file)
        except OSError as error:
            raise disk_fails(file, error) from error

    async def digest_bytes(self, data: bytes) -> str:
        if len(data) <= SMALL:
            return hashlib.sha256(data).hexdigest()
        return await asyncio.to_thread(lambda: hashlib.sha256(data).hexdigest())

    async def discard(self, file: Path) -> None:
        await asyncio.to_thread(file.unlink, missing_ok=True)


def _digest(path: Path) -> tuple[str, int]:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest(), file.tell()


@dataclass
class BlobCore:
    """State and stores of one BLOB server."""

    machine: ServerMachine
    local: LocalStore
    ha: BlobStorage
    peers: Peers
    disk: Disk
    confirm: Callable[[], Awaitable[None]]  # raises an EmberkeepError unless this JobManager is the leader
    counters: Counters = field(default_factory=Counters)
    closed: bool = False

    def __post_init__(self) -> None:
        self._waiting: deque[tuple[Deletion, asyncio.Future[int]]] = deque()
        self._more = asyncio.Event()
        self._ended: asyncio.Future[None] | None = None
        self.confirmed = asyncio.Event()  # set while the leadership is certain: nothing is deleted otherwise
        self.confirmed.set()

    def refuse_closed(self) -> None:
        """Raise RetryLater if the server is ending."""
        if self.closed:
            raise RetryLater("this BLOB server is shutting down", hint="try again in a few seconds")

    def refuse_unlisted(self) -> None:
        """Raise RetryLater until the HA store has listed its BLOBs."""
        if not self.machine.state.ha_listed:
            raise RetryLater(
                f"the HA store {self.ha.location} has not answered since this JobManager started",
                hint="see the JobManager's log; permanent BLOBs cannot be stored until the HA store answers",
            )

    # --- deletions ----------------------------------------------------------------------------------------------------

    def decide(self) -> list[asyncio.Future[int]]:
        """Queue the deletions that the machine has decided. Call this after each event.

        Returns one future per deletion, with the number of BLOBs deleted.
        """
        results = []
        for deletion in self.machine.clean_up.take():
            for key in (None,) if deletion.whole else deletion.keys:
                self.peers.forget(deletion.owner, key)
            result: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            self._waiting.append((deletion, result))
            self._more.set()
            results.append(result)
        return results

    async def run_deletions(self) -> None:
        """Carry out queued deletions, one at a time, until cancelled. Several calls may run concurrently."""
        while True:
            while not self._waiting:
                self._more.clear()
                await self._more.wait()
            deletion, result = self._waiting.popleft()
            await self.confirmed.wait()
            works = await self._delete(deletion)
            if works:
                self.counters.deleted += len(deletion.keys)
                self.machine.clean_up.deleted(deletion)
            else:
                self.machine.clean_up.not_deleted(deletion)
            self.decide()
            if not result.done():
                result.set_result(len(deletion.keys) if works else 0)
            if self._ended is not None:
                self._ended.set_result(None)
                self._ended = None

    async def _delete(self, deletion: Deletion) -> bool:
        """Delete from both stores concurrently. Return False if the deletion failed in either store."""
        results = await asyncio.gather(self._delete_local(deletion), self._delete_ha(deletion), return_exceptions=True)
        for error in results:
            if isinstance(error, EmberkeepError):
                log.warning("BLOBs are not deleted now; trying again later", owner=deletion.owner, reason=str(error))
            elif isinstance(error, BaseException):
                raise error
        return not any(results)

    async def _delete_local(self, deletion: Deletion) -> None:
        if deletion.whole:
            await self.local.delete_owner(deletion.owner)
        else:
            await self.local.delete(deletion.owner, deletion.keys)

    async def _delete_ha(self, deletion: Deletion) -> None:
        """Delete from the HA store.

        A job that has ended stays ended, so all of its BLOBs may be deleted at once. But a BLOB that is only
        unreferenced here may belong to a job that a newer leader has accepted. So such a BLOB is deleted individually,
        right after this JobManager was confirmed as the leader.
        """
        permanent = [key for key in deletion.keys if key.is_permanent]
        if not self.machine.state.has_ended(deletion.owner):
            if permanent or deletion.whole:
                await self.delete_needless(deletion.owner, permanent)
        elif deletion.whole:
            await self.ha.delete_owner(deletion.owner)
        else:
            await self.ha.delete(deletion.owner, permanent)

    async def delete_needless(self, owner: JobId, keys: Iterable[BlobKey]) -> None:
        """Delete unreferenced BLOBs from the HA store, if this JobManager is still the leader.

        Otherwise raises an EmberkeepError and keeps them.
        """
        clock = asyncio.get_running_loop().time
        asked = clock()
        await self.confirm()
        # A session that has just confirmed lives longer than CONFIRMED_SECONDS, so no other JobManager leads within
        # that time, unless our port refused its connection. One that takes over so early waits equally long before it
        # relies on any BLOB in the HA store.
        await self.ha.delete(owner, keys, within=CONFIRMED_SECONDS - (clock() - asked))

    async def deletion_ended(self) -> None:
        """Return once the next deletion has ended."""
        if self._ended is None:
            self._ended = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._ended)
