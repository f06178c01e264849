"""Bounds what a driver reports: it runs the job's own code, and the JobManager keeps and shows its newest status."""

from __future__ import annotations

from typing import Final, TypeVar

import structlog

from emberkeep.base.bounded import remember
from emberkeep.base.ids import JobId
from emberkeep.jobs.model import MOST_TEXT
from emberkeep.protocol.encoding.bounds import Bounds
from emberkeep.protocol.messages.job_masters import JobMasterHeartbeat, RegisterJobMaster

RequestT = TypeVar("RequestT", RegisterJobMaster, JobMasterHeartbeat)

# Drivers of Emberkeep report less, apart from jobs with more executors or queries than that.
BOUNDS: Final = Bounds(
    text=MOST_TEXT,
    items=1_000,
    total=8_000_000,
    own={"status.executors": 10_000, "status.blocklist.entries": 10_000},
)
_JOBS_KEPT: Final = 1_000

log = structlog.get_logger(__name__)


class ReportBounds:
    """Drops what is beyond the bounds, and says so once for each attempt and part of its status."""

    def __init__(self) -> None:
        self._said: dict[JobId, tuple[int, frozenset[str]]] = {}  # attempt, and the parts that were named

    def applied(self, request: RequestT) -> RequestT:
        """Return the request within BOUNDS."""
        bounded, dropped = BOUNDS.applied(request)
        if dropped:
            self._say(request.job_id, request.attempt, dropped)
        return bounded

    def _say(self, job_id: JobId, attempt: int, dropped: dict[str, int]) -> None:
        before, said = self._said.pop(job_id, (0, frozenset[str]()))
        known = said if before == attempt else frozenset[str]()
        remember(self._said, job_id, (attempt, known | dropped.keys()), _JOBS_KEPT)
        if dropped.keys() - known:
            log.warning(
                "a driver reports more than is kept of a job: the rest is neither shown nor counted",
                job=job_id,
                attempt=attempt,
                dropped=dropped,
            )
