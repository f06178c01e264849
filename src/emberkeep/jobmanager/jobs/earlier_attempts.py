"""Reads what earlier leaders have noted about the attempts of the jobs that this leader has taken over."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from functools import partial

import structlog

from emberkeep.base.actors import Actor
from emberkeep.base.errors import Unavailable
from emberkeep.base.ids import JobId
from emberkeep.chronicle.ports import ChronicleReader
from emberkeep.chronicle.selection import Selection
from emberkeep.jobmanager.jobs.health.watches import JobWatches
from emberkeep.jobmanager.jobs.job_table import JobTable
from emberkeep.jobmanager.notes.noted_attempts import TYPES, noted_attempts
from emberkeep.jobs.history import ATTEMPTS_KEPT
from emberkeep.jobs.model import AttemptRecord

_PATIENCE = 10.0  # seconds for the events of one job
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0  # seconds before what could not be read is read again

log = structlog.get_logger(__name__)


class EarlierAttempts:
    """Completes the history that users see, and the watchdog's count of restarts.

    No decision depends on them, only an alarm, so nothing waits for this.

    Belongs to ``owner`` and runs in its event loop.
    """

    def __init__(
        self, owner: Actor, table: JobTable, chronicle: ChronicleReader, rng: random.Random, watches: JobWatches
    ) -> None:
        self._owner = owner
        self._table = table
        self._chronicle = chronicle
        self._rng = rng
        self._watches = watches

    async def read(self, job_ids: Iterable[JobId]) -> None:
        """Read the events of these jobs, one job after the other, until all are read or have ended."""
        left, pause = list(job_ids), _FIRST_PAUSE
        while left:
            left = [job_id for job_id in left if job_id in self._table.active and not await self._read(job_id)]
            if left:
                await asyncio.sleep(pause * (0.5 + self._rng.random() / 2))
                pause = min(_LONGEST_PAUSE, 2 * pause)

    async def _read(self, job_id: JobId) -> bool:
        selection = Selection(types=TYPES, limit=2 * ATTEMPTS_KEPT)
        try:
            async with asyncio.timeout(_PATIENCE):
                page = await self._chronicle.read(job_id, selection)
        except (Unavailable, TimeoutError) as error:
            log.info("cannot read a job's earlier attempts now; trying again", job=job_id, reason=str(error))
            return False
        self._owner.tell(partial(self._take, job_id, noted_attempts(page.occurrences)))
        return True

    def _take(self, job_id: JobId, noted: tuple[AttemptRecord, ...]) -> None:
        job = self._table.active.get(job_id)
        if job is not None:
            job.state.history.noted_before(noted)
            self._watches.noted_before(job, noted)
