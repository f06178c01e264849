"""Describe a job's progress in one line."""

from __future__ import annotations

from demo.faults import EXECUTORS, registered
from emberkeep.protocol.rest_jobs import JobDetailsInfo


def describe(job: JobDetailsInfo) -> str:
    """Return one line: state, executors, batch, rows."""
    parts = [job.state.value, f"executors {len(registered(job.emberkeep))} of {EXECUTORS}"]
    for query in job.emberkeep.queries:
        if query.batch_id >= 0:
            parts.append(f"batch {query.batch_id}, {query.processed_rows_per_second:,.0f} rows/s")
            parts.append(f"{query.state_rows:,} windows in state")
    if job.emberkeep.waiting:
        parts.append(f"waiting: {job.emberkeep.waiting}")
    return " · ".join(parts)
