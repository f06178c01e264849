"""Writes the pointers to jobs' checkpoints to the store, from the reports of JobMasters and at a slow pace.

Reports are level-triggered, so only the newest report of a job is kept for writing. A slow store, or a job with many
short batches, therefore builds no queue. Nothing else waits for these writes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from functools import partial

import structlog

from emberkeep.base.actors import Actor
from emberkeep.base.beacon import retry_pause
from emberkeep.base.errors import Absent, Conflict, Fatal, RetryLater, UnknownOutcome
from emberkeep.base.ids import JobId
from emberkeep.jobs.checkpoints import JobPointers, QueryCheckpoint
from emberkeep.jobs.ports import JobStore

PAUSE = 1.0  # seconds between two writes for one job
WRITES_AT_ONCE = 16
_LONGEST_RETRY_PAUSE = 5.0

Report = tuple[int, tuple[QueryCheckpoint, ...]]  # attempt, its queries' newest commits

log = structlog.get_logger(__name__)


class CheckpointRecords:
    """Writes reported pointers, one write per job at a time, and at most WRITES_AT_ONCE in total.

    Belongs to ``owner`` and runs in its event loop. ``written`` receives the pointers that the store holds after a
    write.
    """

    def __init__(
        self,
        owner: Actor,
        store: JobStore,
        rng: random.Random,
        written: Callable[[JobId, JobPointers], None],
    ) -> None:
        self._owner = owner
        self._store = store
        self._rng = rng
        self._written = written
        self._wanted: dict[JobId, Report] = {}
        self._busy: set[JobId] = set()
        self._turns = asyncio.Semaphore(WRITES_AT_ONCE)

    def note(self, job_id: JobId, attempt: int, queries: tuple[QueryCheckpoint, ...]) -> None:
        """Write this report soon, unless a newer report replaces it before."""
        self._wanted[job_id] = (attempt, queries)
        if job_id not in self._busy:
            self._busy.add(job_id)
            self._owner.start_effect(f"record checkpoints of {job_id}", self._write(job_id), deadline=None)

    def forget(self, job_id: JobId) -> None:
        """Drop the waiting report of a job that has ended."""
        self._wanted.pop(job_id, None)

    async def _write(self, job_id: JobId) -> None:
        failures = 0
        while (report := self._wanted.pop(job_id, None)) is not None:
            if await self._try(job_id, report):
                failures = 0
                await asyncio.sleep(PAUSE)
            else:
                failures += 1
                self._wanted.setdefault(job_id, report)
                await asyncio.sleep(max(PAUSE, retry_pause(failures, _LONGEST_RETRY_PAUSE, self._rng)))
        self._busy.discard(job_id)

    async def _try(self, job_id: JobId, report: Report) -> bool:
        """Write one report. Return False if it must be retried."""
        async with self._turns:
            try:
                pointers = await self._store.record_checkpoints(job_id, *report)
            except (RetryLater, UnknownOutcome) as error:
                log.info("checkpoints are not recorded yet", job=job_id, reason=str(error))
                return False
            except (Absent, Conflict) as error:
                # The job has ended, a newer attempt is recorded, or another JobManager is the leader. The next write
                # that matters shows which.
                log.info("checkpoints are not recorded", job=job_id, reason=str(error))
            except Fatal as error:
                log.warning("checkpoints cannot be recorded", job=job_id, reason=str(error))
            else:
                self._owner.tell(partial(self._written, job_id, pointers))
        return True
