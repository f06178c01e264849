"""Reads what earlier leaders have noted about the jobs that this leader has taken over: attempts, and alarms."""

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
from emberkeep.chronicle.selection import MOST_LISTED, Selection
from emberkeep.jobmanager.jobs.health.watches import JobWatches
from emberkeep.jobmanager.jobs.job_table import JobTable
from emberkeep.jobmanager.notes import noted_alarms, noted_attempts
from emberkeep.jobs.history import ATTEMPTS_KEPT
from emberkeep.jobs.model import AttemptRecord
from emberkeep.watchdog.model import Alarm

_PATIENCE = 10.0  # seconds for the events of one job
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0  # seconds before what could not be read is read again

log = structlog.get_logger(__name__)


class EarlierAttempts:
    """Completes the history that users see, and the watchdog's count of restarts; ends the alarms of earlier leaders.

    No decision depends on them, only an alarm, so nothing waits for this.

    Belongs to ``owner`` and runs in its event loop. ``epoch``: this leader's.
    """

    def __init__(
        self,
        owner: Actor,
        table: JobTable,
        chronicle: ChronicleReader,
        rng: random.Random,
        watches: JobWatches,
        epoch: int,
    ) -> None:
        self._owner = owner
        self._epoch = epoch
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
        attempts = Selection(types=noted_attempts.TYPES, limit=2 * ATTEMPTS_KEPT)
        alarms = Selection(types=noted_alarms.TYPES, limit=MOST_LISTED)
        try:
            async with asyncio.timeout(_PATIENCE):
                page = await self._chronicle.read(job_id, attempts)
                raised = await self._chronicle.read(job_id, alarms)
        except (Unavailable, TimeoutError) as error:
            log.info("cannot read a job's earlier attempts now; trying again", job=job_id, reason=str(error))
            return False
        noted = noted_attempts.noted_attempts(page.occurrences)
        open_alarms = noted_alarms.open_alarms(raised.occurrences, self._epoch)
        self._owner.tell(partial(self._take, job_id, noted, open_alarms))
        return True

    def _take(self, job_id: JobId, noted: tuple[AttemptRecord, ...], open_alarms: tuple[Alarm, ...]) -> None:
        job = self._table.active.get(job_id)
        if job is not None:
            job.state.history.noted_before(noted)
            self._watches.noted_before(job, noted)
            self._watches.left_open(job, open_alarms)
