"""Pointers to a job's durable state: the newest committed micro-batches and the savepoints. Pure.

A pointer is small and reliable. The state itself is stored with the checkpoint or savepoint. A query's newest batch is
a lower bound: batches committed after the last report are missing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

import msgspec

from emberkeep.base.compatible import Compatible
from emberkeep.base.errors import Conflict
from emberkeep.lifecycle.model import Procedure

QUERIES_KEPT = 50  # queries with the newest commits; a job may start any number of queries
QUERIES_BYTES = 256 * 1024  # of these as JSON: a larger record does not fit into a node of ZooKeeper
SAVEPOINTS_KEPT = 20  # the newest savepoints that were asked for; periodic ones are all kept until they are deleted
LOCATION_LIMIT = 4096  # characters; a longer location is not reported, so that a record stays small
_SHA256 = re.compile(r"[0-9a-f]{64}")


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
    """A savepoint that a job can be restored from.

    ``periodic``: the JobManager has made it by the job's ``execution.savepoint.interval``, so retention may delete it.
    ``retired_ms``: when retention decided to delete it; some of its files may be gone since. 0: it is kept.
    ``procedure``: what has made it; None if an earlier release recorded it.
    """

    path: str
    manifest_sha256: str  # 64 hex digits
    created_ms: int
    trigger_id: str = ""  # the request that it was made for
    periodic: bool = False
    retired_ms: int = 0
    size: int | None = None  # bytes of its files; None if an earlier release recorded it
    duration_ms: int | None = None  # from the request's start until it was complete; None as ``size``
    procedure: Procedure | None = None

    @property
    def is_recordable(self) -> bool:
        """False if no savepoint can be there. A driver has said so, and the record has to stay small."""
        return len(self.path.encode()) <= LOCATION_LIMIT and _SHA256.fullmatch(self.manifest_sha256) is not None


class JobPointers(Compatible, frozen=True, kw_only=True):
    """All pointers of a job, oldest commit first. Persisted (kind "job-checkpoints", version 1).

    ``attempt``: the attempt that has reported last.
    """

    attempt: int = 0
    queries: tuple[QueryCheckpoint, ...] = ()
    savepoints: tuple[SavepointPointer, ...] = ()

    def savepoint_of(self, trigger_id: str) -> SavepointPointer | None:
        """Return the savepoint that was made for a request; None if there is none."""
        return next((each for each in self.savepoints if each.trigger_id == trigger_id), None)


def merged(
    known: JobPointers,
    attempt: int,
    queries: Iterable[QueryCheckpoint],
    savepoints: Iterable[SavepointPointer] = (),
) -> JobPointers:
    """Return ``known`` updated by an attempt's report; the same object if the report has nothing new.

    The batch of a query at one location never decreases. Another query at the same location (its checkpoint was removed
    and begun again) replaces the earlier one. A new savepoint is newer than all that are known. Raises Conflict if a
    newer attempt has reported before.
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
    newest_ms = max((each.created_ms for each in known.savepoints), default=0)
    for savepoint in savepoints:
        before = by_path.get(savepoint.path)
        if before is None or before.manifest_sha256 != savepoint.manifest_sha256:
            by_path[savepoint.path] = _made_after(newest_ms, savepoint)
    newest = _newest(by_location.values())
    kept = _kept(by_path.values())
    if tuple(newest) == known.queries and tuple(kept) == known.savepoints:
        return known
    return JobPointers(attempt=attempt, queries=tuple(newest), savepoints=tuple(kept))


def _newest(checkpoints: Iterable[QueryCheckpoint]) -> list[QueryCheckpoint]:
    """Return the queries to remember, oldest commit first: those with the newest commits that fit into the record."""
    ordered = sorted(checkpoints, key=lambda each: (each.committed_ms, each.location))[-QUERIES_KEPT:]
    kept, left = [], QUERIES_BYTES
    for each in reversed(ordered):
        size = len(msgspec.json.encode(each))
        if size <= left:
            kept.append(each)
            left -= size
    return kept[::-1]


def _made_after(newest_ms: int, savepoint: SavepointPointer) -> SavepointPointer:
    """Return the savepoint with a time that is not before ``newest_ms``.

    Drivers tell the time by their nodes' clocks. One that is slow must not make its savepoint an old one, which
    retention would delete, and which would be the first to be forgotten.
    """
    if savepoint.created_ms >= newest_ms:
        return savepoint
    return msgspec.structs.replace(savepoint, created_ms=newest_ms + 1)


def _kept(savepoints: Iterable[SavepointPointer]) -> list[SavepointPointer]:
    """Return the savepoints to remember: all periodic ones, and the newest of the others. Oldest first."""
    ordered = sorted(savepoints, key=lambda each: (each.created_ms, each.path))
    surplus = sum(not each.periodic for each in ordered) - SAVEPOINTS_KEPT
    dropped = [each for each in ordered if not each.periodic][: max(0, surplus)]
    return [each for each in ordered if each not in dropped]


def after_retention(
    known: JobPointers, retired: Collection[str], gone: Collection[str], retired_ms: int
) -> JobPointers:
    """Return ``known`` with what ``retained`` leaves of its savepoints; the same object if nothing changes."""
    savepoints = retained(known.savepoints, retired, gone, retired_ms)
    return known if savepoints == known.savepoints else msgspec.structs.replace(known, savepoints=savepoints)


def retained(
    savepoints: Iterable[SavepointPointer], retired: Collection[str], gone: Collection[str], retired_ms: int
) -> tuple[SavepointPointer, ...]:
    """Return the savepoints with the periodic ones at ``retired`` marked, and without those at ``gone``.

    Savepoints that are not periodic, or are marked already, are left as they are.
    """
    return tuple(
        msgspec.structs.replace(each, retired_ms=retired_ms)
        if each.periodic and each.path in retired and not each.retired_ms
        else each
        for each in savepoints
        if not (each.periodic and each.path in gone)
    )


def _is_newer(checkpoint: QueryCheckpoint, known: QueryCheckpoint | None) -> bool:
    return known is None or known.query_id != checkpoint.query_id or known.batch_id < checkpoint.batch_id
