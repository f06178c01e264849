"""Writes to the job store that go on until they are done: the store may be away for as long as it likes.

Conflict from a running job's write is passed on: another JobManager leads, and this one must end.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from emberkeep.base.errors import Absent, Conflict, EmberkeepError, Fatal, RetryLater, UnknownOutcome
from emberkeep.base.ids import JobId
from emberkeep.blocklist.model import Blocklist
from emberkeep.jobs.checkpoints import JobPointers, SavepointPointer
from emberkeep.jobs.model import DriverHome, JobGraph, JobResult
from emberkeep.jobs.ports import JobStore
from emberkeep.lifecycle.model import ProcedureRequest

T = TypeVar("T")

FIRST_PAUSE = 0.1  # seconds; doubles
LONGEST_PAUSE = 5.0
SUBMISSION_TRIES = 5

logger = logging.getLogger(__name__)


class StoreWrites:
    """The job store, with patience. ``failed`` is told of each failure to write."""

    def __init__(self, store: JobStore, rng: random.Random, failed: Callable[[], None] = lambda: None) -> None:
        self._store = store
        self._rng = rng
        self._failed = failed

    async def read(self, what: str, operation: Callable[[], Awaitable[T]]) -> T:
        """Read, however long it takes until the store answers."""
        tries = 0
        while True:
            try:
                return await operation()
            except (RetryLater, UnknownOutcome) as error:
                tries += 1
                await self._pause(what, tries, error)

    async def create(self, graph: JobGraph, give_up: Callable[[EmberkeepError], None]) -> JobId | None:
        """Create the job; returns its id, or None after ``give_up`` was told that it certainly does not exist.

        When that is not certain ``give_up`` is told as well, but the work goes on: a job that may be in the store must
        be known to the JobManager.
        """
        tries, uncertain = 0, False
        while True:
            try:
                return await self._store.create(graph)
            except Conflict as error:  # the id is taken, or another leads
                give_up(await self._deposed() or error)
                return None
            except (RetryLater, UnknownOutcome, Fatal) as error:
                tries += 1
                uncertain = uncertain or isinstance(error, UnknownOutcome)
                if isinstance(error, Fatal) or tries >= SUBMISSION_TRIES:
                    give_up(error if not uncertain else UnknownOutcome(error.message, hint=_SAME_KEY))
                    if not uncertain:
                        return None
                await self._pause(f"job {graph.job_id} is not stored", tries, error)

    async def _deposed(self) -> EmberkeepError | None:
        """What to say when another JobManager leads, or may lead."""
        try:
            await self._store.confirm()
        except EmberkeepError as error:
            return RetryLater(f"this JobManager leads no more: {error.message}", hint="try again")
        return None

    async def record_attempt(self, job_id: JobId, attempt: int, home: DriverHome | None) -> bool:
        """True: written. False: not known, this number must not be used."""
        tries = 0
        while True:
            try:
                await self._store.record_attempt(job_id, attempt, home)
            except UnknownOutcome as error:
                await self._pause(f"attempt {attempt} of job {job_id} may not be stored", tries + 1, error)
                return False
            except (RetryLater, Fatal) as error:
                tries += 1
                await self._pause(f"attempt {attempt} of job {job_id} is not stored", tries, error)
            else:
                return True

    async def adopt_attempt(self, job_id: JobId, attempt: int) -> None:
        """Write the number of an attempt that another leader has begun. Raises Conflict: another leads."""
        tries = 0
        while True:
            try:
                return await self._store.record_attempt(job_id, attempt, None)
            except Conflict:  # an earlier try has written it, or another leads
                return await self.read("it is not known who leads", self._store.confirm)
            except (RetryLater, UnknownOutcome, Fatal) as error:
                tries += 1
                await self._pause(f"attempt {attempt} of job {job_id} is not stored", tries, error)

    async def record_cancel(self, job_id: JobId) -> None:
        """Raises Absent (it has ended meanwhile), RetryLater, UnknownOutcome, Fatal."""
        tries = 0
        while True:
            try:
                return await self._store.record_cancel(job_id)
            except (RetryLater, UnknownOutcome, Fatal) as error:
                tries += 1
                if isinstance(error, Fatal) or tries >= SUBMISSION_TRIES:
                    raise
                await self._pause(f"the cancellation of job {job_id} is not stored", tries, error)

    async def record_procedure(
        self, job_id: JobId, request: ProcedureRequest, give_up: Callable[[EmberkeepError], None]
    ) -> bool:
        """True: written. False, after ``give_up`` was told why: certainly not. Raises Conflict: another leads.

        When that is not certain ``give_up`` is told as well, but the work goes on: what may be in the store must become
        known to the JobManager.
        """
        tries, uncertain = 0, False
        while True:
            try:
                await self._store.record_procedure(job_id, request)
            except Absent:
                give_up(Conflict(f"job {job_id} has just ended"))
                return False
            except Conflict as error:
                give_up(RetryLater(f"this JobManager leads no more: {error.message}", hint="try again"))
                raise
            except (RetryLater, UnknownOutcome, Fatal) as error:
                tries += 1
                uncertain = uncertain or isinstance(error, UnknownOutcome)
                if isinstance(error, Fatal) or tries >= SUBMISSION_TRIES:
                    give_up(error if not uncertain else UnknownOutcome(error.message, hint=_SAME_TRIGGER))
                    if not uncertain:
                        return False
                await self._pause(f"what job {job_id} is asked to do is not stored", tries, error)
            else:
                return True

    async def forget_procedure(self, job_id: JobId) -> bool:
        """Write that nothing is asked of the job any more. False: it has ended. Raises Conflict: another leads."""
        tries = 0
        while True:
            try:
                await self._store.record_procedure(job_id, None)
            except Absent:
                return False
            except (RetryLater, UnknownOutcome, Fatal) as error:
                tries += 1
                await self._pause(f"the end of a request about job {job_id} is not stored", tries, error)
            else:
                return True

    async def record_procedure_end(
        self, job_id: JobId, attempt: int, trigger_id: str, savepoint: SavepointPointer | None, *, stopped: bool
    ) -> JobPointers | None:
        """Write it; returns all pointers. None: certainly not written, as the job has ended, a newer attempt is
        recorded, or the store cannot do it (unreadable pointers, no space): to be tried again. Raises Conflict: another
        leads."""
        tries, uncertain = 0, False
        while True:
            try:
                return await self._store.record_procedure_end(job_id, attempt, trigger_id, savepoint, stopped=stopped)
            except Absent:
                return None
            except Conflict:
                await self.read("it is not known who leads", self._store.confirm)
                return None
            except (RetryLater, UnknownOutcome, Fatal) as error:
                tries += 1
                uncertain = uncertain or isinstance(error, UnknownOutcome)
                if isinstance(error, Fatal) and tries >= SUBMISSION_TRIES and not uncertain:
                    return None
                await self._pause(f"the end of request {trigger_id} about job {job_id} is not stored", tries, error)

    async def record_result(self, result: JobResult) -> None:
        """Write the result; repeating it is harmless."""
        tries = 0
        while True:
            try:
                return await self._store.record_result(result)
            except (RetryLater, UnknownOutcome, Fatal) as error:
                tries += 1
                await self._pause(f"the result of job {result.job_id} is not stored", tries, error)

    async def record_blocklist(self, blocklist: Blocklist, give_up: Callable[[EmberkeepError], None]) -> bool:
        """True: written. False, after ``give_up`` was told why: certainly not.

        When that is not certain ``give_up`` is told as well, but the work goes on: what may be in the store must become
        known to the JobManager.
        """
        tries, uncertain = 0, False
        while True:
            try:
                await self._store.record_blocklist(blocklist)
            except (RetryLater, UnknownOutcome, Fatal) as error:
                tries += 1
                uncertain = uncertain or isinstance(error, UnknownOutcome)
                if isinstance(error, Fatal) or tries >= SUBMISSION_TRIES:
                    give_up(error if not uncertain else UnknownOutcome(error.message, hint=_LOOK))
                    if not uncertain:
                        return False
                await self._pause(f"revision {blocklist.revision} of the blocklist is not stored", tries, error)
            else:
                return True

    async def expire_results(self, keep: int) -> None:
        """Forget old results; if that fails now, the next ended job brings it up again."""
        try:
            await self._store.expire_results(keep)
        except (RetryLater, UnknownOutcome, Fatal) as error:
            logger.warning("old results are not expired: %s", error)

    async def _pause(self, what: str, tries: int, error: EmberkeepError) -> None:
        logger.warning("%s (try %d): %s", what, tries, error)
        self._failed()
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(tries - 1, 20))
        await asyncio.sleep(pause * (0.5 + self._rng.random() / 2))


_LOOK = "it may become blocked or unblocked yet: look at the blocklist before you try again"
_SAME_TRIGGER = "it may be done: ask again with the same trigger id to find out"
_SAME_KEY = "the job may exist: submit again with the same idempotency key to find out"
