"""Tells the notifier what happens to jobs. All notifications about jobs are made here."""

from __future__ import annotations

from emberkeep.jobmanager.jobs.job_table import ManagedJob
from emberkeep.jobmanager.term import Term
from emberkeep.jobs.model import JobStatus
from emberkeep.notifications.model import EventKind, Notification, NotifiedJob
from emberkeep.notifications.ports import Notifier
from emberkeep.watchdog.model import Alarm

_STATUSES = {
    JobStatus.RESTARTING: EventKind.JOB_RESTARTING,
    JobStatus.FINISHED: EventKind.JOB_FINISHED,
    JobStatus.CANCELED: EventKind.JOB_CANCELED,
    JobStatus.FAILED: EventKind.JOB_FAILED,
}
_LONGEST = 2000  # characters of a message


class JobNotices:
    """Makes notifications of the changes of jobs. Their ids consist of job store, epoch and a count."""

    def __init__(self, notifier: Notifier, term: Term) -> None:
        self._notifier = notifier
        self._term = term
        self._count = 0

    def status_changed(self, job: ManagedJob) -> None:
        """Notify of a job's new status, if a webhook can ask for it."""
        event = _STATUSES.get(job.state.status)
        if event is not None:
            self._tell(job, event, _reason(job))

    def alarm(self, job: ManagedJob, alarm: Alarm, *, raised: bool) -> None:
        event = EventKind.ALARM_RAISED if raised else EventKind.ALARM_CLEARED
        self._tell(job, event, alarm.message, alarm.kind.value, alarm.query)

    def _tell(self, job: ManagedJob, event: EventKind, message: str, alarm: str = "", query: str = "") -> None:
        graph, term = job.state.graph, self._term
        self._count += 1
        self._notifier.notify(
            Notification(
                id="-".join(filter(None, (term.lineage, str(term.epoch), str(self._count)))),
                event=event,
                time_ms=term.clock.now_ms(),
                job=NotifiedJob(id=job.job_id, name=graph.name, namespace=graph.namespace, attempt=job.state.attempt),
                message=message[:_LONGEST],
                alarm=alarm,
                query=query,
            )
        )


def _reason(job: ManagedJob) -> str:
    """Return why the job has its status: its root cause, or how its newest attempt ended."""
    if job.state.verdict is not None:
        return job.state.verdict.root_cause
    newest = job.state.history.newest_attempt()
    return "" if newest is None or newest.outcome is None else newest.outcome.message
