"""Attempts wait while their drivers would start from a wrong state.

While the shared storage is away, a driver would find an empty mount point in place of its job's checkpoints and
function states, and start from scratch. A job with an option of a newer release would run without it, or fail at once.
The wait comes before the attempt is recorded: until then no driver timeout runs, and no restart is counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from emberkeep.jobmanager.jobs.job_table import ManagedJob

_INTERVAL_SECONDS = 0.5

log = structlog.get_logger(__name__)


class AttemptHold:
    """Holds attempts back. ``storage_problem`` returns why the storage cannot be read now, or "" if it can."""

    def __init__(self, storage_problem: Callable[[], str]) -> None:
        self._storage_problem = storage_problem

    def waits_for(self, job: ManagedJob) -> str:
        """Return a text that names what must be available before this job's driver starts; "" if nothing is missing."""
        storage = self._storage_problem()
        return f"its storage: {storage}" if storage else job.lacks

    async def passed(self, job: ManagedJob, attempt: int) -> None:
        """Return once nothing is missing, or the job ends without this attempt.

        In the meantime the job's view shows the reason.
        """
        while (missing := self.waits_for(job)) and job.machine.state.verdict is None:
            if not job.held:
                log.warning("attempt waits", job=job.job_id, attempt=attempt, waits_for=missing)
            job.held = missing
            await asyncio.sleep(_INTERVAL_SECONDS)
        job.held = ""
