"""Writes to the job store that are retried until they are done, however long the store is away.

A Conflict from a running job's write is passed on: another JobManager is the leader, and this one must stop.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import structlog

from emberkeep.base.errors import Absent, Conflict, EmberkeepError, Fatal, RetryLater, UnknownOutcome
from emberkeep.base.ids import JobId
from emberkeep.blocklist.model import Blocklist
from emberkeep.jobs.checkpoints import JobPointers, SavepointPointer
from emberkeep.jobs.model import DriverHome, JobGraph, JobResult
from emberkeep.jobs.ports import JobStore
from emberkeep.jobs.upgrades.model import Upgrade
from emberkeep.lifecycle.model import ProcedureRequest

T = TypeVar("T")
GiveUp = Callable[[EmberkeepError], None]

FIRST_PAUSE = 0.1  # seconds; doubles after each failure
LONGEST_PAUSE = 5.0
SUBMISSION_TRIES = 5

log = structlog.get_logger(__name__)


class StoreWrites:
    """The job store with retries. ``failed`` is called after each failed try, to suspect the leadership."""

    def __init__(self, store: JobStore, rng: random.Random, failed: Callable[[], None] = lambda: None) -> None:
        self._store = store
        self._rng = rng
        self._failed = failed

    async def read(self, what: str, operation: Callable[[], Awaitable[T]]) -> T:
        """Retry a read until the store answers."""
        return await self._repeat(what, operation, (RetryLater, UnknownOutcome))

    async def create(self, graph: JobGraph, give_up: GiveUp) -> JobId | None:
        """Create the job. Return the job's id, or None if the job was not created. ``give_up``: see ``_offer``."""
        try:
            return await self._offer(
                f"job {graph.job_id} is not stored", _SAME_KEY, lambda: self._store.create(graph), give_up
            )
        except Conflict as error:  # the id is taken, or another JobManager is the leader
            give_up(await self._deposed() or error)
            return None

    async def _deposed(self) -> EmberkeepError | None:
        """Return the error for the caller if another JobManager leads, or may lead; else None."""
        try:
            await self._store.confirm()
        except EmberkeepError as error:
            return _no_longer_leader(error)
        return None

    async def record_attempt(self, job_id: JobId, attempt: int, home: DriverHome | None) -> bool:
        """Write the attempt. Return False if the outcome is unknown; do not use the attempt's number in that case."""
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
        """Write the number of an attempt that another leader has begun.

        Raises Conflict if another JobManager is the leader.
        """
        try:
            await self._repeat(
                f"attempt {attempt} of job {job_id} is not stored",
                lambda: self._store.record_attempt(job_id, attempt, None),
            )
        except Conflict:  # an earlier try has written it, or another JobManager is the leader
            await self.read("cannot confirm who is the leader", self._store.confirm)

    async def record_cancel(self, job_id: JobId, give_up: GiveUp) -> bool:
        """Write the cancellation. Return True if it was written. ``give_up``: see ``_offer``.

        Raises Absent (the job has ended), Conflict (another JobManager is the leader).
        """
        what = f"the cancellation of job {job_id} is not stored"
        return await self._offer_record(what, _CANCEL_AGAIN, lambda: self._store.record_cancel(job_id), give_up)

    async def record_procedure(self, job_id: JobId, request: ProcedureRequest, give_up: GiveUp) -> bool:
        """Write the request to the job. Return True if it was written. ``give_up``: see ``_offer``.

        Raises Conflict if another JobManager is the leader.
        """
        try:
            return await self._offer_record(
                f"the request about job {job_id} is not stored",
                _SAME_TRIGGER,
                lambda: self._store.record_procedure(job_id, request),
                give_up,
            )
        except Absent:
            give_up(Conflict(f"job {job_id} has just ended"))
            return False
        except Conflict as error:
            give_up(_no_longer_leader(error))
            raise

    async def forget_procedure(self, job_id: JobId) -> bool:
        """Write that the job no longer has a request. Return False if the job has ended.

        Raises Conflict if another JobManager is the leader.
        """
        try:
            await self._repeat(
                f"the end of a request about job {job_id} is not stored",
                lambda: self._store.record_procedure(job_id, None),
            )
        except Absent:
            return False
        return True

    async def record_procedure_end(
        self, job_id: JobId, attempt: int, trigger_id: str, savepoint: SavepointPointer | None, *, stopped: bool
    ) -> JobPointers | None:
        """Write the end of a request. Return all pointers of the job, or None if the end was certainly not written.

        None means that the job has ended, a newer attempt is recorded, or the store cannot write (unreadable pointers,
        no space). In the last case the caller must try again. Raises Conflict if another JobManager is the leader.
        """
        tries, uncertain = 0, False
        while True:
            try:
                return await self._store.record_procedure_end(job_id, attempt, trigger_id, savepoint, stopped=stopped)
            except Absent:
                return None
            except Conflict:
                await self.read("cannot confirm who is the leader", self._store.confirm)
                return await self._with_savepoint_of(job_id, trigger_id) if uncertain else None
            except (RetryLater, UnknownOutcome, Fatal) as error:
                tries += 1
                uncertain = uncertain or isinstance(error, UnknownOutcome)
                if isinstance(error, Fatal) and tries >= SUBMISSION_TRIES and not uncertain:
                    return None
                await self._pause(f"the end of request {trigger_id} about job {job_id} is not stored", tries, error)

    async def _with_savepoint_of(self, job_id: JobId, trigger_id: str) -> JobPointers | None:
        """Return the job's pointers if they include this request's savepoint: a try whose reply was lost wrote it."""
        stored = await self.read(f"cannot read job {job_id}", lambda: self._store.recover_job(job_id))
        is_written = stored is not None and stored.pointers.savepoint_of(trigger_id) is not None
        return stored.pointers if stored is not None and is_written else None

    async def record_retention(
        self, job_id: JobId, retired: frozenset[str], gone: frozenset[str], retired_ms: int
    ) -> JobPointers | None:
        """Write which savepoints are retired or gone. Return all pointers, or None if the job has ended.

        Raises Conflict if another JobManager is the leader.
        """
        try:
            return await self._repeat(
                f"the retention of savepoints of job {job_id} is not stored",
                lambda: self._store.record_retention(job_id, retired, gone, retired_ms),
            )
        except Absent:
            return None

    async def record_result(self, result: JobResult) -> None:
        """Write the result. Repeating it does no harm."""
        await self._repeat(
            f"the result of job {result.job_id} is not stored", lambda: self._store.record_result(result)
        )

    async def record_blocklist(self, blocklist: Blocklist, give_up: GiveUp) -> bool:
        """Write the blocklist. Return True if it was written. ``give_up``: see ``_offer``.

        Raises Conflict if another JobManager is the leader.
        """
        what = f"revision {blocklist.revision} of the blocklist is not stored"
        return await self._offer_record(what, _LOOK, lambda: self._store.record_blocklist(blocklist), give_up)

    async def begin_upgrade(self, upgrade: Upgrade, give_up: GiveUp) -> bool:
        """Write the first record of an upgrade. Return True if it was written. ``give_up``: see ``_offer``.

        Raises Conflict if another JobManager is the leader.
        """
        what = f"the upgrade of job {upgrade.job_id} is not stored"
        try:
            return await self._offer_record(what, _SAME_UPGRADE, lambda: self._store.record_upgrade(upgrade), give_up)
        except Conflict as error:
            give_up(_no_longer_leader(error))
            raise

    async def record_upgrade(self, upgrade: Upgrade) -> None:
        """Write the record of an upgrade. Raises Conflict if another JobManager is the leader."""
        await self._repeat(
            f"the upgrade of job {upgrade.job_id} is not stored", lambda: self._store.record_upgrade(upgrade)
        )

    async def remove_upgrades(self, upgrade_ids: Iterable[str]) -> None:
        """Remove records of upgrades. If that fails, they stay until the next leader removes them."""
        try:
            await self._store.remove_upgrades(upgrade_ids)
        except (RetryLater, UnknownOutcome, Fatal) as error:
            log.warning("old upgrades are not removed", reason=str(error))

    async def expire_results(self, keep: int) -> list[JobId]:
        """Delete old results; return their jobs. If that fails, the deletion is tried again when the next job ends."""
        try:
            return await self._store.expire_results(keep)
        except (RetryLater, UnknownOutcome, Fatal) as error:
            log.warning("old results are not expired", reason=str(error))
            return []

    async def _repeat(
        self,
        what: str,
        operation: Callable[[], Awaitable[T]],
        failures: tuple[type[EmberkeepError], ...] = (RetryLater, UnknownOutcome, Fatal),
    ) -> T:
        """Repeat an operation until it succeeds. Raises any error that is not one of ``failures``."""
        tries = 0
        while True:
            try:
                return await operation()
            except failures as error:
                tries += 1
                await self._pause(what, tries, error)

    async def _offer_record(self, what: str, hint: str, write: Callable[[], Awaitable[None]], give_up: GiveUp) -> bool:
        """Write a record for a caller that waits. Return True if it was written. See ``_offer``."""

        async def written() -> bool:
            await write()
            return True

        return await self._offer(what, hint, written, give_up) is not None

    async def _offer(self, what: str, hint: str, write: Callable[[], Awaitable[T]], give_up: GiveUp) -> T | None:
        """Write a record for a caller that waits.

        If the record was certainly not written, pass the reason to ``give_up`` and return None.

        If the outcome is still unknown after SUBMISSION_TRIES tries, ``give_up`` receives an UnknownOutcome with
        ``hint``, and the tries continue: this JobManager must know what may be in the store. Raises Absent and Conflict
        as ``write`` does. If another JobManager leads and may have found the record, ``give_up`` receives an
        UnknownOutcome before the Conflict is raised. Only the first error that ``give_up`` receives counts.
        """
        tries, uncertain = 0, False
        while True:
            try:
                return await write()
            except Conflict as error:
                if uncertain:
                    give_up(UnknownOutcome(error.message, hint=hint))
                raise
            except (RetryLater, UnknownOutcome, Fatal) as error:
                tries += 1
                uncertain = uncertain or isinstance(error, UnknownOutcome)
                if isinstance(error, Fatal) or tries >= SUBMISSION_TRIES:
                    give_up(error if not uncertain else UnknownOutcome(error.message, hint=hint))
                    if not uncertain:
                        return None
                await self._pause(what, tries, error)

    async def _pause(self, what: str, tries: int, error: EmberkeepError) -> None:
        log.warning(what, tries=tries, reason=str(error))
        self._failed()
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(tries - 1, 20))
        await asyncio.sleep(pause * (0.5 + self._rng.random() / 2))


def _no_longer_leader(error: EmberkeepError) -> RetryLater:
    return RetryLater(f"this JobManager is no longer the leader: {error.message}", hint="try again")


_CANCEL_AGAIN = "the job may still be cancelled: look at it, or cancel it again"
_LOOK = "the change may still take effect: check the blocklist before you try again"
_SAME_UPGRADE = "the upgrade may go on: `emberkeep upgrade JOB` shows it"
_SAME_TRIGGER = "the request may be durable: send it again with the same trigger id to find out"
_SAME_KEY = "the job may exist: submit again with the same idempotency key to find out"
