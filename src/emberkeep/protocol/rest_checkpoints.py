"""REST bodies about a job's checkpoints, in the form of Flink's ``/jobs/:jobid/checkpoints`` as far as it fits Spark.

Flink's checkpoint corresponds to a committed micro-batch. Each streaming query commits its own. Only the newest commit
of a query is shown by name; earlier ones are counted.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from emberkeep.protocol.rest import Duration, Kebab, Millis


class CheckpointCounts(msgspec.Struct, frozen=True, kw_only=True):
    """``completed`` and ``total``: known committed micro-batches of all queries, and savepoints.

    The other counts are always 0.
    """

    restored: int
    total: int
    in_progress: int
    completed: int
    failed: int


class CheckpointExtension(Kebab, frozen=True, kw_only=True):
    """``query`` and ``query-id`` are empty for savepoints. ``manifest-sha256`` is empty for all others."""

    query: str
    query_id: str
    manifest_sha256: str


class CheckpointInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A committed micro-batch or a savepoint.

    ``id``: number of the micro-batch; for a savepoint, the time when it was made. ``trigger_timestamp``: when the batch
    began. ``latest_ack_timestamp``: when it was known to be committed. ``external_path``: location of the checkpoint.
    """

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
    """The newest of each kind. ``failed`` and ``restored`` are always null; Flink's tools expect them."""

    completed: CheckpointInfo | None
    savepoint: CheckpointInfo | None
    failed: None
    restored: None


class CheckpointStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """A job's checkpoints.

    ``history``: the newest commit of each query and the savepoints, newest first. Jobs that have ended have only
    savepoints.
    """

    counts: CheckpointCounts
    latest: LatestCheckpoints
    history: list[CheckpointInfo]
