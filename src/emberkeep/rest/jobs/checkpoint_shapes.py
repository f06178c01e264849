"""Conversion of a job's stored checkpoint pointers to bodies of the REST API. Pure functions."""

from __future__ import annotations

from emberkeep.jobs.checkpoints import JobPointers, QueryCheckpoint, SavepointPointer
from emberkeep.protocol.rest_checkpoints import (
    CheckpointCounts,
    CheckpointExtension,
    CheckpointInfo,
    CheckpointStatistics,
    LatestCheckpoints,
)


def checkpoint_statistics(pointers: JobPointers) -> CheckpointStatistics:
    commits = [_commit(each) for each in pointers.queries]
    savepoints = [_savepoint(each) for each in pointers.savepoints]
    completed = sum(each.batch_id + 1 for each in pointers.queries) + len(savepoints)
    return CheckpointStatistics(
        counts=CheckpointCounts(restored=0, total=completed, in_progress=0, completed=completed, failed=0),
        latest=LatestCheckpoints(
            completed=commits[-1] if commits else None,
            savepoint=savepoints[-1] if savepoints else None,
            failed=None,
            restored=None,
        ),
        history=sorted([*commits, *savepoints], key=lambda each: each.latest_ack_timestamp, reverse=True),
    )


def _commit(checkpoint: QueryCheckpoint) -> CheckpointInfo:
    return CheckpointInfo(
        id=checkpoint.batch_id,
        status="COMPLETED",
        is_savepoint=False,
        trigger_timestamp=checkpoint.triggered_ms,
        latest_ack_timestamp=checkpoint.committed_ms,
        end_to_end_duration=checkpoint.duration_ms,
        external_path=checkpoint.location,
        discarded=False,
        emberkeep=CheckpointExtension(query=checkpoint.query, query_id=checkpoint.query_id, manifest_sha256=""),
    )


def _savepoint(savepoint: SavepointPointer) -> CheckpointInfo:
    return CheckpointInfo(
        id=savepoint.created_ms,
        status="COMPLETED",
        is_savepoint=True,
        trigger_timestamp=savepoint.created_ms,
        latest_ack_timestamp=savepoint.created_ms,
        end_to_end_duration=0,
        external_path=savepoint.path,
        discarded=False,
        emberkeep=CheckpointExtension(query="", query_id="", manifest_sha256=savepoint.manifest_sha256),
    )
