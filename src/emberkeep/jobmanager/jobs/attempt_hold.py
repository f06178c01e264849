"""Attempts wait while a driver would start on wrong premises.

While the shared storage is away, it would find an empty mount point where its job's checkpoints and the states of its
functions lie, and begin with nothing. A job with an option of a newer release would run without it, or fail at once.
The wait comes before the attempt is recorded: until then no timeout of a driver runs, and no restart is counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from emberkeep.jobmanager.jobs.job_table import Job

_INTERVAL_SECONDS = 0.5

logger = logging.getLogger(__name__)


class AttemptHold:
    """``storage_problem``: why the storage cannot be read now, "" while it can be."""

    def __init__(self, storage_problem: Callable[[], str]) -> None:
        self._storage_problem = storage_problem

    def waits_for(self, job: Job) -> str:
        """What no driver of this job may be started without, in words; "" when nothing is missing."""
        storage = self._storage_problem()
        return f"its storage: {storage}" if storage else job.lacks

    async def passed(self, job: Job, attempt: int) -> None:
        """Return once nothing is missing, or the job ends without that attempt. Its picture tells meanwhile."""
        while (missing := self.waits_for(job)) and job.machine.verdict is None:
            if not job.held:
                logger.warning("attempt %d of job %s waits for %s", attempt, job.job_id, missing)
            job.held = missing
            await asyncio.sleep(_INTERVAL_SECONDS)
        job.held = ""
