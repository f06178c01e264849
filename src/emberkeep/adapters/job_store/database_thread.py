"""The file of a job store while its leader has it open: the lock, the database, and the thread that uses both.

All work runs in that one thread, so the event loop never blocks.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar, TypeVarTuple

from emberkeep.adapters.job_store.database import JobDatabase
from emberkeep.adapters.job_store.unfinished_restore import require_finished
from emberkeep.adapters.shared_storage.cluster import ClusterStorage
from emberkeep.adapters.shared_storage.store_origin import StoreOrigin, kept_after
from emberkeep.base.clock import Clock
from emberkeep.base.errors import Conflict, Fatal
from emberkeep.base.files.durable import make_directories
from emberkeep.base.files.ownership import OwnedByAnother

_ArgumentTs = TypeVarTuple("_ArgumentTs")
_ResultT = TypeVar("_ResultT")


class DatabaseThread:
    """The open database, whose lock this process holds from ``open`` to ``close``.

    In that time it also binds the database to the storage that belongs to it.
    """

    def __init__(self, path: Path, graph_dir: Path, storage: ClusterStorage | None, clock: Clock) -> None:
        """Open nothing before ``open``. The parameters are those of EmbeddedJobStore."""
        self._path = path
        self._graph_dir = graph_dir
        self._storage = storage
        self._clock = clock
        self._lock: int | None = None
        self._database: JobDatabase | None = None
        self._thread: ThreadPoolExecutor | None = None

    async def open(self) -> int:
        """Take the lock, open the database and settle the storage. Return the epoch.

        Raises Conflict (also if another process holds the lock), Fatal, and what ``ClusterStorage.settle`` raises.
        """
        if self._thread is not None:
            raise Conflict("this store is open already")
        self._thread = ThreadPoolExecutor(1, "job-store")
        try:
            return await self._in_thread(self._open)
        except BaseException:
            await self.close()
            raise

    def _open(self) -> int:
        self._lock = take_lock(self._path.with_name(f"{self._path.name}.lock"))
        require_finished(self._path.parent)
        self._database = database = JobDatabase(self._path, self._graph_dir, self._clock.now_ms())
        if self._storage is not None:
            self._settle(database, self._storage)
        return database.epoch

    def _settle(self, database: JobDatabase, storage: ClusterStorage) -> None:
        origin = database.origin()
        try:
            settled = storage.settle(origin)
        except OwnedByAnother:
            self._bind(database, origin, "")
            raise
        self._bind(database, origin, settled)

    def _bind(self, database: JobDatabase, origin: StoreOrigin, settled: str) -> None:
        kept = kept_after(origin, settled)
        if origin.was_led or kept != origin.storage:
            database.bind_storage(kept)

    async def adopt_storage(self) -> None:
        """See ``ClusterStorage.adopt``."""

        def adopt(database: JobDatabase) -> None:
            if self._storage is not None:
                database.confirm()
                self._bind(database, database.origin(), self._storage.adopt())

        await self.operate(adopt)

    @property
    def lineage(self) -> str:
        """Name of this file's store, see JobStore. Raises Conflict before the store is open."""
        return self._opened().lineage

    async def operate(
        self, operation: Callable[[JobDatabase, *_ArgumentTs], _ResultT], *arguments: *_ArgumentTs
    ) -> _ResultT:
        """Carry out an operation in the thread. Raises what it raises, and Conflict unless the store is open."""
        return await self._in_thread(lambda: operation(self._opened(), *arguments))

    async def close(self) -> None:
        """Close the database, then release the lock. Idempotent."""
        if self._thread is None:
            return
        thread = self._thread
        await self._in_thread(self._close)
        self._thread = None
        thread.shutdown(wait=False)

    def _close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _opened(self) -> JobDatabase:
        if self._database is None:
            raise Conflict("this store is not open")
        return self._database

    async def _in_thread(self, work: Callable[[], _ResultT]) -> _ResultT:
        if self._thread is None:
            raise Conflict("this store is not open")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def take_lock(path: Path) -> int:
    """Take the leader's lock and return its descriptor. The kernel releases the lock when the process ends, in any way.

    Raises Conflict while another process holds it, Fatal.
    """
    try:
        make_directories(path.parent)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Fatal(f"cannot open {path}: {error.strerror}", hint="check its permissions and free space") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
    except BlockingIOError:
        holder = os.read(descriptor, 32).decode("ascii", "replace").strip()
        os.close(descriptor)
        raise Conflict(
            f"another JobManager{f' (pid {holder})' if holder else ''} uses the job store {path.parent}",
            hint="stop it, or give this one another emberkeep.state-dir",
        ) from None
    except OSError as error:
        os.close(descriptor)
        raise Fatal(f"cannot lock {path}: {error.strerror}", hint="use a local file system with free space") from error
    return descriptor
