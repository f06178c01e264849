"""What a JobMaster tells of committed micro-batches: the newest one of each query, also of queries that have ended.

It goes with every status message, so a JobManager that is away or has changed costs nothing and misses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from emberkeep.jobs.checkpoints import LOCATION_LIMIT, JobPointers, QueryCheckpoint, merged


class CheckpointReports:
    """Owned by a JobMaster. Bounded as the stored pointers are."""

    def __init__(self) -> None:
        self._seen = JobPointers()

    def see(self, commits: Iterable[QueryCheckpoint]) -> None:
        """Take over what Spark shows now."""
        self._seen = merged(self._seen, 0, (each for each in commits if len(each.location) <= LOCATION_LIMIT))

    def newest(self) -> tuple[QueryCheckpoint, ...]:
        return self._seen.queries
