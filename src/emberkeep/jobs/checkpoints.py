"""Pointers to a job's durable state: the newest committed micro-batches and the savepoints. Pure.

A pointer is small and reliable. The state itself is stored with the checkpoint or savepoint. A query's newest batch is
a lower bound: batches committed after the last report are missing.
"""

from __future__ import annotations

from collections.abc import Iterable

from emberkeep.base.compatible import Compatible
from emberkeep.base.errors import Conflict

QUERIES_KEPT = 50  # queries with the newest commits; a job may start any number of queries
SAVEPOINTS_KEPT = 20  # the newest savepoints
LOCATION_LIMIT = 4096  # characters; a longer location is not reported, so that a record stays small


class QueryCheckpoint(Compatible, frozen=True, kw_only=True):
    """The newest micro-batch of one streaming query that is known to be committed. Times in Unix milliseconds."""

    query: str  # its name; for an unnamed query its checkpoint's directory, which has its ordinal
    query_id: str  # Spark's id, the same after each restart from this checkpoint
    location: str
    batch_id: int
    triggered_ms: int  # when the batch began
    committed_ms: int

    @property
    def duration_ms(self) -> int:
        """How long the batch took."""
        return max(0, self.committed_ms - self.triggered_ms)


class SavepointPointer(Compatible, frozen=True, kw_only=True):
    """A savepoint that a job can be restored from."""

    path: str
    manifest_sha256: str  # 64 hex digits
    created_ms: int
    trigger_id: str = ""  # the request that it was made for


class JobPointers(Compatible, frozen=True, kw_only=True):
    """All pointers of a job, oldest commit first. Persisted (kind "job-checkpoints", version 1).

    ``attempt``: the attempt that has reported last.
    """

    attempt: int = 0
    queries: tuple[QueryCheckpoint, ...] = ()
    savepoints: tuple[SavepointPointer, ...] = ()


def merged(
    known: JobPointers,
    attempt: int,
    queries: Iterable[QueryCheckpoint],
    savepoints: Iterable[SavepointPointer] = (),
) -> JobPointers:
    """Return ``known`` updated by an attempt's report; the same object if the report has nothing new.

    The batch of a query at one location never decreases. Another query at the same location (its checkpoint was removed
    and begun again) replaces the earlier one. Raises Conflict if a newer attempt has reported before.
    """
    if attempt < known.attempt:
        raise Conflict(
            f"attempt {attempt} reports checkpoints, but the newer attempt {known.attempt} has already reported"
        )
    by_location = {checkpoint.location: checkpoint for checkpoint in known.queries}
    by_path = {savepoint.path: savepoint for savepoint in known.savepoints}
    for checkpoint in queries:
        if checkpoint.batch_id >= 0 and _is_newer(checkpoint, by_location.get(checkpoint.location)):
            by_location[checkpoint.location] = checkpoint
    by_path.update({savepoint.path: savepoint for savepoint in savepoints})
    newest = sorted(by_location.values(), key=lambda each: (each.committed_ms, each.location))[-QUERIES_KEPT:]
    kept = sorted(by_path.values(), key=lambda each: (each.created_ms, each.path))[-SAVEPOINTS_KEPT:]
    if tuple(newest) == known.queries and tuple(kept) == known.savepoints:
        return known
    return JobPointers(attempt=attempt, queries=tuple(newest), savepoints=tuple(kept))


def _is_newer(checkpoint: QueryCheckpoint, known: QueryCheckpoint | None) -> bool:
    return known is None or known.query_id != checkpoint.query_id or known.batch_id < checkpoint.batch_id
