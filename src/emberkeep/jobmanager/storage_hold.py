"""Attempts wait while the shared storage is known to be away.

A driver that started then would find an empty mount point where its job's checkpoints and the states of its functions
lie, and begin with nothing. The wait comes before the attempt is recorded: until then no timeout of a driver runs, and
no restart is counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from emberkeep.jobmanager.job_table import Job

_INTERVAL_SECONDS = 0.5

logger = logging.getLogger(__name__)


class StorageHold:
    """``problem``: why the storage cannot be read now, "" while it can be."""

    def __init__(self, problem: Callable[[], str]) -> None:
        self._problem = problem

    def is_on(self) -> bool:
        return bool(self._problem())

    async def passed(self, job: Job, attempt: int) -> None:
        """Return once the storage can be read, or the job ends without that attempt. Its picture tells meanwhile."""
        while (problem := self._problem()) and job.machine.verdict is None:
            if not job.held:
                logger.warning("attempt %d of job %s waits: %s", attempt, job.job_id, problem)
            job.held = f"its storage: {problem}"
            await asyncio.sleep(_INTERVAL_SECONDS)
        job.held = ""
