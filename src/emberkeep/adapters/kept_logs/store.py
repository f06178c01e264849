"""The stored logs of one leader: bounded in how much waits, in how long the storage may take, and in what is kept."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import structlog

from emberkeep.adapters.blocking.patience import FilePatience
from emberkeep.adapters.kept_logs.files import KeepLimits, KeptLogFiles, StitchedLog
from emberkeep.adapters.kept_logs.segments import check_piece
from emberkeep.base.clock import Clock
from emberkeep.base.errors import Absent, Damaged, EmberkeepError, RetryLater, Unavailable
from emberkeep.base.ids import JobId
from emberkeep.kept_logs.ages import Ages
from emberkeep.kept_logs.model import KeptLogKey, KeptLogList, LogPiece, Position

log = structlog.get_logger(__name__)

_SWEEP_SECONDS: Final = 600.0
_MOST_WRITERS: Final = 64  # pieces that wait to be stored
_MOST_READERS: Final = 64
_READS_AT_ONCE: Final = 4
_HINT: Final = "check the shared storage (high-availability.storageDir) on the JobManager's node"

ResultT = TypeVar("ResultT")


class KeptLogStore:
    """Implements LogStore, and reads what is stored.

    ``root``: the directory for the logs of all jobs. ``problem`` returns why the storage is not known to be this
    cluster's now, for example because it is not mounted; None if it is. It blocks.
    """

    def __init__(
        self,
        root: Path,
        limits: KeepLimits,
        clock: Clock,
        problem: Callable[[], EmberkeepError | None],
    ) -> None:
        self._root = root
        self._clock = clock
        self._ages = Ages()
        self._first_epoch: int | None = None  # under which this has stored anything
        self._problem = problem
        self._files = KeptLogFiles(root, limits)
        self._writing = asyncio.Lock()
        self._reading = asyncio.Semaphore(_READS_AT_ONCE)
        self._writers = self._readers = 0
        self._writes, self._reads = FilePatience(), FilePatience()

    # --- writing ------------------------------------------------------------------------------------------------------

    async def keep(self, epoch: int, key: KeptLogKey, piece: LogPiece) -> Position:
        """See LogStore."""
        key.check()
        async with self._writer():
            await asyncio.to_thread(check_piece, piece)
            if self._first_epoch is None:
                self._first_epoch = epoch
            return await self._write(partial(self._files.keep, epoch, key, piece))

    async def run(self) -> None:
        """Delete what is too old, every ten minutes until cancelled."""
        with contextlib.suppress(EmberkeepError):  # each sweep tries it again
            await self._begin(await self._write(self._files.jobs))
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            try:
                await self.sweep()
            except EmberkeepError as error:
                log.warning("old logs of jobs cannot be deleted from the storage now", reason=str(error))

    async def sweep(self) -> None:
        """Delete what is too old of each job. Raises RetryLater, Fatal.

        If something of a job cannot be deleted now, that is raised after all other jobs had their turn.
        """
        jobs = await self._write(self._files.jobs)
        await self._begin(jobs)
        now = self._ages.now_ms(self._clock.now_ms(), self._clock.monotonic())
        failure: EmberkeepError | None = None
        for job_id in jobs:
            async with self._writing:
                try:
                    await self._write(partial(self._files.prune, job_id, now))
                except EmberkeepError as error:
                    failure = error
        await asyncio.to_thread(self._files.forget, set(jobs))
        if failure is not None:
            raise failure

    async def _begin(self, jobs: Iterable[JobId]) -> None:
        """Begin the time of ages at the newest change by earlier leaders.

        What this one has stored may be dated by the clock that is not trusted. That counts only if nothing else is
        there, which is not known while something cannot be read.
        """
        if self._ages.have_begun:
            return
        earlier = own = 0
        all_read = True
        for job_id in jobs:
            try:
                async with self._writing:  # so that nothing is stored under an epoch that is not known here
                    changed = await self._write(partial(self._files.newest_ms, job_id, self._first_epoch))
            except EmberkeepError:
                all_read = False
            else:
                earlier, own = max(earlier, changed.earlier), max(own, changed.own)
        newest = earlier or (own if all_read else 0)
        if newest:
            self._ages.begin(newest, self._clock.now_ms(), self._clock.monotonic())

    @contextlib.asynccontextmanager
    async def _writer(self) -> AsyncIterator[None]:
        if self._writers >= _MOST_WRITERS:
            raise RetryLater("too many pieces of logs wait to be stored")
        self._writers += 1
        try:
            async with self._writing:
                yield
        finally:
            self._writers -= 1

    async def _write(self, work: Callable[[], ResultT]) -> ResultT:
        return await asyncio.to_thread(self._writes.run, self._root, partial(self._owned, work))

    # --- reading ------------------------------------------------------------------------------------------------------

    async def logs(self, job_id: JobId) -> KeptLogList:
        """Return what is stored of a job's logs. Raises RetryLater if nothing of it can be read now."""
        return await self._read(partial(self._files.logs, job_id))

    async def examine(self, key: KeptLogKey, work: Callable[[StitchedLog], ResultT]) -> ResultT:
        """Return what ``work`` returns for a stored log. It runs in a thread, and may read the log's pieces.

        Raises Absent (nothing of the log is stored), RetryLater (it cannot be read now), Fatal (a newer format).
        """

        def open_and_work() -> ResultT:
            opened = self._files.open(key)
            if opened is None:
                raise Absent(f"nothing of log {key.log_id} is kept")
            return work(opened)

        try:
            return await self._read(open_and_work)
        except Damaged as error:
            raise Unavailable(error.message, hint=_HINT) from error

    async def _read(self, work: Callable[[], ResultT]) -> ResultT:
        if self._readers >= _MOST_READERS:
            raise RetryLater("too many stored logs are read at once", hint="try again in a few seconds")
        self._readers += 1
        try:
            async with self._reading:
                return await asyncio.to_thread(self._reads.run, self._root, partial(self._owned, work))
        finally:
            self._readers -= 1

    def _owned(self, work: Callable[[], ResultT]) -> ResultT:
        """Do the work, provided that the storage is this cluster's: what is missing elsewhere is not gone."""
        problem = self._problem()
        if problem is not None:
            raise Unavailable(f"stored logs cannot be used now: {problem}", hint=problem.hint or _HINT) from problem
        return work()
