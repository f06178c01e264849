"""The newest committed micro-batch of each query, as a JobMaster reports it; ended queries included.

Every status message carries these reports. So a JobManager that is away, or a new leader, misses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from emberkeep.jobs.checkpoints import LOCATION_LIMIT, JobPointers, QueryCheckpoint, merged


class CheckpointReports:
    """Newest commits that Spark has shown so far. Owned by a JobMaster; bounded as the stored pointers are."""

    def __init__(self) -> None:
        self._seen = JobPointers()

    def see(self, commits: Iterable[QueryCheckpoint]) -> None:
        """Merge the commits that Spark shows now. Ignore those whose location exceeds LOCATION_LIMIT."""
        self._seen = merged(self._seen, 0, (each for each in commits if len(each.location) <= LOCATION_LIMIT))

    def newest(self) -> tuple[QueryCheckpoint, ...]:
        return self._seen.queries
