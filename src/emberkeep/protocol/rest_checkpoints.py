"""REST bodies about a job's checkpoints, in the shape of Flink's ``/jobs/:jobid/checkpoints`` as far as it fits Spark.

Flink's checkpoint corresponds to a committed micro-batch. Each streaming query commits its own. Only the newest commit
of a query is shown by name; earlier ones are counted.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from emberkeep.protocol.rest import Duration, Kebab, Millis


class CheckpointCounts(msgspec.Struct, frozen=True, kw_only=True):
    """``completed``: committed micro-batches of all queries that are known, and savepoints. The others are always 0."""

    restored: int
    total: int
    in_progress: int
    completed: int
    failed: int


class CheckpointExtension(Kebab, frozen=True, kw_only=True):
    """``query`` and ``query-id`` are empty for savepoints, ``manifest-sha256`` for others."""

    query: str
    query_id: str
    manifest_sha256: str


class CheckpointInfo(msgspec.Struct, frozen=True, kw_only=True):
    """``id``: number of the micro-batch; of a savepoint when it was made. ``trigger_timestamp``: when the batch began;
    ``latest_ack_timestamp``: when it was known to be committed. ``external_path``: the checkpoint's location."""

    id: int
    status: Literal["COMPLETED"]
    is_savepoint: bool
    trigger_timestamp: Millis
    latest_ack_timestamp: Millis
    end_to_end_duration: Duration
    external_path: str
    discarded: bool
    emberkeep: CheckpointExtension


class LatestCheckpoints(msgspec.Struct, frozen=True, kw_only=True):
    """``failed`` and ``restored`` are always null; Flink's tools expect them."""

    completed: CheckpointInfo | None
    savepoint: CheckpointInfo | None
    failed: None
    restored: None


class CheckpointStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """``history``: the newest commit of each query, and savepoints; newest first. Of an ended job the savepoints."""

    counts: CheckpointCounts
    latest: LatestCheckpoints
    history: list[CheckpointInfo]
