"""Runs the watchdogs of all jobs: gives them what JobMasters report, and carries out what they decide."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import pairwise

import structlog

from emberkeep.base.actors import Actor
from emberkeep.base.ids import JobId
from emberkeep.chronicle.occurrence import Occurrence, What
from emberkeep.jobmanager.jobs.health.notices import JobNotices
from emberkeep.jobmanager.jobs.job_machines import JobMachines
from emberkeep.jobmanager.jobs.job_table import ManagedJob
from emberkeep.jobmanager.term import Term
from emberkeep.jobmanager.views.query_labels import query_labels
from emberkeep.jobs import events as ev
from emberkeep.jobs.checkpoints import QueryCheckpoint
from emberkeep.jobs.model import AttemptRecord, FailureKind
from emberkeep.jobs.progress.outstanding import unread
from emberkeep.jobs.transitions import Phase
from emberkeep.protocol.messages.job_master_reports import JobMasterStatus, QueryProgress
from emberkeep.watchdog.model import Alarm, Cleared, Effect, QueryFacts, Raised, RestartAdvised

log = structlog.get_logger(__name__)


class JobWatches:
    """The watchdogs. Each belongs to its ManagedJob; this runs in the turns of ``owner``."""

    def __init__(self, owner: Actor, machines: JobMachines, term: Term, notices: JobNotices) -> None:
        self._owner = owner
        self._machines = machines
        self._term = term
        self._notices = notices

    def begun(self, job: ManagedJob, attempt: int) -> None:
        """Note a new attempt, before the job's state machine learns of it."""
        newest = job.state.history.newest_attempt()
        outcome = None if newest is None else newest.outcome
        moved = outcome is not None and outcome.kind is FailureKind.MOVED
        clock = self._term.clock
        self._carry_out(job, job.watch.begun(attempt, moved=moved, now=clock.now(), ms=clock.now_ms()))

    def noted_before(self, job: ManagedJob, noted: Sequence[AttemptRecord]) -> None:
        """Note the attempts that earlier leaders have noted, the oldest first, by clocks that may differ."""
        clock = self._term.clock
        now, now_ms = clock.now(), clock.now_ms()
        restarts = {
            each.attempt: now - max(0, now_ms - each.started_ms) / 1000
            for before, each in pairwise(noted)
            if before.outcome is None or before.outcome.kind is not FailureKind.MOVED
        }
        job.watch.noted_before(restarts)

    def left_open(self, job: ManagedJob, alarms: Iterable[Alarm]) -> None:
        """Tell that alarms of an earlier leader are over: this one watches anew, and raises what is still wrong.

        What it has raised again while they were read stays raised.
        """
        raised = {(alarm.kind, alarm.query) for alarm in job.watch.alarms}
        for alarm in alarms:
            if (alarm.kind, alarm.query) in raised:
                continue
            log.info("an alarm of an earlier leader is over", job=job.job_id, kind=alarm.kind.value, query=alarm.query)
            self._alarm(job, alarm, raised=False)

    def reported(self, job: ManagedJob, attempt: int, status: JobMasterStatus) -> None:
        """Judge a job by the newest report of its JobMaster."""
        if job.state.phase is not Phase.RUNNING:
            return
        clock = self._term.clock
        held = job.state.stopped or job.requests.current is not None
        facts = query_facts(status)
        self._carry_out(job, job.watch.reported(attempt, facts, held=held, now=clock.now(), ms=clock.now_ms()))

    def ended(self, job: ManagedJob) -> None:
        """Note that a job has ended."""
        self._carry_out(job, job.watch.ended())

    def _carry_out(self, job: ManagedJob, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Raised(alarm):
                    log.warning(
                        "the watchdog raises an alarm",
                        job=job.job_id,
                        kind=alarm.kind.value,
                        query=alarm.query,
                        reason=alarm.message,
                    )
                    self._alarm(job, alarm, raised=True)
                case Cleared(alarm):
                    log.info(
                        "an alarm of the watchdog is over", job=job.job_id, kind=alarm.kind.value, query=alarm.query
                    )
                    self._alarm(job, alarm, raised=False)
                case RestartAdvised(attempt, reason):
                    restart = self._restart(job.job_id, attempt, reason)
                    self._owner.start_effect(f"restart of {job.job_id}", restart, deadline=None)

    def _alarm(self, job: ManagedJob, alarm: Alarm, *, raised: bool) -> None:
        """Notify of an alarm, and make it an event of the job."""
        self._notices.alarm(job, alarm, raised=raised)
        self._term.chronicle.note(
            Occurrence(
                what=What.ALARM_RAISED if raised else What.ALARM_CLEARED,
                message=alarm.message if raised else f"over: {alarm.message}",
                job_id=job.job_id,
                attempt=job.state.attempt,
                details={"kind": alarm.kind.value, "query": alarm.query},
            )
        )

    async def _restart(self, job_id: JobId, attempt: int, reason: str) -> None:
        """Wait until the leadership is confirmed, because a restart ends a driver."""
        await self._term.authority.wait()
        log.warning("the watchdog restarts a driver", job=job_id, attempt=attempt, reason=reason)
        event = ev.RestartDriver(attempt, f"restarted by the watchdog: {reason}")
        self._owner.tell(partial(self._machines.apply, job_id, event))


def query_facts(status: JobMasterStatus) -> list[QueryFacts]:
    """Return what the watchdog must know of the streaming queries in a JobMaster's report."""
    commits = {commit.query_id: commit for commit in status.checkpoints}
    facts = []
    for label, query in query_labels(status.queries):
        left = unread(query.sources)
        batch, duration_ms = _newest_batch(query, commits.get(query.id))
        facts.append(
            QueryFacts(
                id=query.id,
                label=label,
                batch=batch,
                duration=duration_ms / 1000,
                seen=query.timestamp,
                waits=query.is_waiting,
                state_rows=query.state_rows,
                state_bytes=query.state_bytes,
                backlog=left.rows if query.backlog_rows is None else query.backlog_rows,
                files=left.files,
                size=left.size,
                behind=None if left.behind_ms is None else left.behind_ms / 1000,
            )
        )
    return facts


def _newest_batch(query: QueryProgress, commit: QueryCheckpoint | None) -> tuple[int, float]:
    """Return the number of the newest batch, -1 before the first, and how many milliseconds it took.

    Of a job with many queries, a report has the newest commits only. Those of other queries are counted.
    """
    if commit is not None:
        return commit.batch_id, commit.duration_ms
    if query.totals is None or not query.totals.batches:
        return -1, 0.0
    return query.totals.batches - 1, query.totals.duration_ms / query.totals.batches
