"""Progress of streaming queries, read from the running JVM."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from emberkeep.jobs.progress.records import ReportKey
from emberkeep.spark.executors.scheduler_control import call
from emberkeep.spark.model import ObservedQuery, StartedQuery
from emberkeep.spark.queries.reports import new_reports, progress_record

_PROCESSING_TIME = "org.apache.spark.sql.execution.streaming.ProcessingTimeTrigger"

NOTHING_REPORTED: Mapping[str, ReportKey] = MappingProxyType({})


def query_progress(
    query: Any, started: StartedQuery, reported: Mapping[str, ReportKey] = NOTHING_REPORTED
) -> ObservedQuery:
    """Return the progress of one query, running or ended. Raises SparkUnavailable.

    ``reported``: the newest known report of each known run of a query. The result has the reports that have come
    since, as far as Spark keeps them (``spark.sql.streaming.numRecentProgressUpdates``).
    """

    def ask() -> ObservedQuery:
        java = query._jsq
        active = bool(java.isActive())  # ask this first: if it is false, the report below is the query's last one
        last = java.lastProgress()
        newest = json.loads(last.json()) if last is not None else {}
        progress = decode_progress(
            newest,
            identity={"id": str(java.id()), "runId": str(java.runId()), "name": java.name()},
            status=str(java.status().message()),
            location=started.location,
            active=active,
        )
        new = new_reports(newest, java.recentProgress, reported.get(progress.run_id))
        interval_ms = _interval_ms(java) if new else 0
        return replace(progress, reports=tuple(progress_record(report, interval_ms) for report in new))

    progress: ObservedQuery = call("streaming progress", ask)
    return progress


def _interval_ms(java: Any) -> int:
    """Return the interval of the query's trigger; 0 if it has none."""
    trigger = java.streamingQuery().trigger()
    has_interval = str(trigger.getClass().getName()) == _PROCESSING_TIME
    return int(trigger.intervalMs()) if has_interval else 0


def decode_progress(
    report: Mapping[str, Any],
    *,
    identity: Mapping[str, str | None],
    status: str,
    location: str | None,
    active: bool = True,
) -> ObservedQuery:
    """Translate Spark's progress report (empty before the first batch); a rate without a value becomes 0."""
    record = progress_record({**report, "id": identity["id"], "runId": identity["runId"]})
    return ObservedQuery(
        id=str(identity["id"]),
        run_id=str(identity["runId"]),
        name=identity["name"],
        batch_id=record.batch_id,
        num_input_rows=record.rows,
        input_rows_per_second=record.input_rate,
        processed_rows_per_second=record.processed_rate,
        state_rows=record.state_rows,
        watermark=(report.get("eventTime") or {}).get("watermark"),
        status=status,
        checkpoint_location=location,
        is_active=active,
        committed_batch=_committed(report),
        triggered_ms=record.triggered_ms,
        committed_ms=record.triggered_ms + record.duration_ms,
        state_bytes=record.state_bytes,
        backlog_rows=record.backlog_rows,
        late_rows=record.late_rows,
        state_commit_ms=record.state_commit_ms,
        sources=tuple(source.without_offsets() for source in record.sources),
    )


def _committed(report: Mapping[str, Any]) -> int:
    """Return the newest committed batch. Spark reports a batch after its commit; an idle query reports its next one."""
    batch = int(report.get("batchId", -1))
    ran = "addBatch" in report.get("durationMs", {})
    return batch if ran else max(-1, batch - 1)
