"""Whether a job is healthy, and if not, since when and why: one sentence for its page. Pure functions."""

from __future__ import annotations

from emberkeep.jobmanager.views.briefs import newest_failure
from emberkeep.jobmanager.views.cluster import JobView
from emberkeep.jobs.model import JobStatus
from emberkeep.jobs.progress.outstanding import together
from emberkeep.web.formats import backlog_text, count, moment
from emberkeep.web.health import Health, waits_since

_STARTING = (JobStatus.CREATED, JobStatus.INITIALIZING)


def job_health(job: JobView) -> Health:
    """Return the sentence, made of alarms, state, newest commit and backlog, the most urgent of them first."""
    if job.status.is_globally_terminal:
        return _ended(job)
    since = moment(job.status_times_ms.get(job.status, job.submitted_ms))
    if job.alarms:
        first, others = job.alarms[0], len(job.alarms) - 1
        of_query = f" query {first.query}:" if first.query else ""
        more = f", and {others} more {'alarm' if others == 1 else 'alarms'} below" if others else ""
        return _said("failed", f"Not healthy since {moment(first.since_ms)}:{of_query} {first.message}{more}", job)
    if job.status is JobStatus.RESTARTING:
        return _said("waiting", f"Not healthy since {since}: the job is restarting{_why_restarted(job)}", job)
    if job.status is JobStatus.FAILING:
        return _said("failed", f"Not healthy since {since}: the job is failing{_because(job.root_cause)}", job)
    if job.status is JobStatus.CANCELLING:
        return _said("waiting", f"The job has been ending since {since}, because it was cancelled", job)
    if job.status in _STARTING:
        return _said("waiting", f"The job has waited to run since {since}{_because(job.waiting)}", job)
    if job.waiting:
        waits = f"waits since {moment(waits_since(job))}" if waits_since(job) else "waits"
        return _said("waiting", f"The job has run since {since}, but {waits}{_because(job.waiting)}", job)
    wanted = _executors_awaited(job)
    if wanted:
        none = "its executor has not" if wanted == 1 else f"none of its {count(wanted)} executors has"
        return _said("waiting", f"The job has run since {since}, but {none} registered with Spark", job)
    if job.report is not None and not job.report.app_id:
        return _said("running", f"The script has run since {since}, and has no Spark application now", job)
    return _said("running", f"Healthy: the job has run since {since}", job)


def _executors_awaited(job: JobView) -> int:
    """Return how many executors the job wants, if it has none, so that no task runs; 0 if it has some.

    If their number follows the load, the job may do well without any.
    """
    report = job.report
    if report is None or report.scaling is not None or any(each.registered for each in report.executors):
        return 0
    return job.executors_wanted


def _said(tone: str, text: str, job: JobView) -> Health:
    return Health(tone=tone, text=f"{text.rstrip('.')}. {_work(job)}".rstrip())


def _ended(job: JobView) -> Health:
    at = moment(job.ended_ms)
    if job.status is JobStatus.FAILED:
        return Health(tone="failed", text=f"Failed at {at}{_because(job.root_cause)}.")
    if job.status is JobStatus.CANCELED:
        return Health(tone="cancelled", text=f"Cancelled at {at}.")
    return Health(tone="finished", text=f"Finished at {at}.")


def _work(job: JobView) -> str:
    """Return what the job has done and has still to do; "" if unknown."""
    report = job.report
    parts = []
    newest = max(job.pointers.queries, key=lambda each: each.committed_ms, default=None)
    if newest is not None:
        parts.append(f"batch {newest.batch_id} was committed at {moment(newest.committed_ms)}")
    if report is not None and report.queries:
        left = backlog_text(together(query.outstanding for query in report.queries))
        if left:
            parts.append(f"the backlog is {left}")
    elif report is not None and report.work is not None and report.work.total_tasks:
        parts.append(f"{count(report.work.completed_tasks)} of {count(report.work.total_tasks)} tasks are done")
    if not parts:
        return ""
    text = ", and ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _why_restarted(job: JobView) -> str:
    attempt, why = newest_failure(job.attempts)
    return f" after attempt {attempt}: {why}" if attempt else ""


def _because(reason: str) -> str:
    return f": {reason.rstrip('.')}" if reason else ""
