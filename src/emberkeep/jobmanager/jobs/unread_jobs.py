"""Retries to read jobs whose graphs cannot be read now, until that succeeds."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from functools import partial

import structlog

from emberkeep.base.actors import Actor
from emberkeep.base.errors import EmberkeepError
from emberkeep.base.ids import JobId
from emberkeep.jobs.ports import JobStore, StoredJob, Trouble

FIRST_PAUSE = 1.0  # seconds; doubles after each failure
LONGEST_PAUSE = 30.0

log = structlog.get_logger(__name__)


class UnreadJobs:
    """Jobs to be read again.

    Belongs to ``owner`` and runs in its event loop. ``take`` receives what each read found.
    """

    def __init__(
        self,
        owner: Actor,
        store: JobStore,
        rng: random.Random,
        take: Callable[[StoredJob], None],
    ) -> None:
        self._owner = owner
        self._store = store
        self._rng = rng
        self._take = take
        self._waiting: dict[JobId, None] = {}
        self._some = asyncio.Event()

    def add(self, job_id: JobId) -> None:
        self._waiting[job_id] = None
        self._some.set()

    def forget(self, job_id: JobId) -> None:
        """Stop reading a job."""
        self._waiting.pop(job_id, None)

    async def run(self) -> None:
        """Read the jobs until cancelled, one at a time, so that a storage that becomes available is not flooded."""
        pause = FIRST_PAUSE
        while True:
            while not self._waiting:
                pause = FIRST_PAUSE
                self._some.clear()
                await self._some.wait()
            await asyncio.sleep(pause * (0.5 + self._rng.random() / 2))
            found = [await self._read(job_id) for job_id in list(self._waiting)]
            pause = FIRST_PAUSE if any(found) else min(LONGEST_PAUSE, 2 * pause)

    async def _read(self, job_id: JobId) -> bool:
        """Read one job. Return True if it need not be read again."""
        if job_id not in self._waiting:
            return True
        try:
            stored = await self._store.recover_job(job_id)
        except EmberkeepError as error:
            log.warning("cannot read a job again now; trying again", job=job_id, reason=str(error))
            return False
        if stored is None:  # the job has ended in the meantime
            self.forget(job_id)
            return True
        self._owner.tell(partial(self._take, stored))
        if stored.trouble is Trouble.AWAY:
            return False
        self.forget(job_id)
        return True
