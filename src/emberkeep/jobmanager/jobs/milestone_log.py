"""Logs each milestone that the newest attempt of a job reaches, once."""

from __future__ import annotations

import structlog

from emberkeep.jobmanager.jobs.job_table import ManagedJob

log = structlog.get_logger(__name__)


def log_milestones(job: ManagedJob) -> None:
    """Log what the trace of the job's newest attempt has gained since the last call."""
    newest, before = job.state.history.newest_trace(), job.logged
    if newest is None or newest is before:
        return
    job.logged = newest
    known = set()
    if before is not None and before.attempt == newest.attempt:
        known = {reached.milestone for reached in before.milestones}
    for reached in newest.milestones:
        if reached.milestone not in known:
            log.info(
                "attempt reached a milestone",
                job=job.job_id,
                attempt=newest.attempt,
                milestone=reached.milestone.value,
                seconds=round(reached.seconds, 3),
                cause="" if newest.cause is None else newest.cause.value,
                start="" if newest.start is None else newest.start.value,
            )
