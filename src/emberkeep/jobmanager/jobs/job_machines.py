"""Feeds the jobs' state machines with events and hands over their effects."""

from __future__ import annotations

import random
from typing import Protocol

import structlog

from emberkeep.base.actors import Actor
from emberkeep.base.ids import JobId
from emberkeep.jobmanager.jobs.deadlines import Deadlines
from emberkeep.jobmanager.jobs.job_table import JobTable, ManagedJob
from emberkeep.jobmanager.jobs.milestone_log import log_milestones
from emberkeep.jobmanager.term import Term
from emberkeep.jobs import events as ev
from emberkeep.jobs.traces.moment import Moment
from emberkeep.jobs.transitions import Phase

log = structlog.get_logger(__name__)


class EffectCarrier(Protocol):
    """Carries out what the state machines decide."""

    def status_changed(self, job: ManagedJob) -> None:
        """Note a job's new status. Called before the effects of the same event are carried out."""

    def carry_out(self, job: ManagedJob, effect: ev.Effect) -> None:
        """Start one effect. Returns at once."""


class JobMachines:
    """The only code that feeds the jobs' state machines, so no event's effects or next deadline are forgotten.

    Belongs to ``owner`` and runs in its event loop.
    """

    def __init__(self, owner: Actor, table: JobTable, term: Term, rng: random.Random, carrier: EffectCarrier) -> None:
        self.table = table
        self.deadlines = Deadlines(owner, term, lambda job_id: self.apply(job_id, ev.Tick()))
        self.chronicle = term.chronicle
        self._term = term
        self._rng = rng
        self._carrier = carrier

    def apply(self, job_id: JobId, event: ev.Event) -> None:
        """Feed a job's state machine and carry out its effects. Drop an event for a job that is no longer active."""
        job = self.table.active.get(job_id)
        if job is None:
            return
        before = job.state.status
        clock = self._term.clock
        now = clock.now()
        moment = Moment(now, clock.now_ms(), self._rng.random(), self._term.hearing.since(now))
        effects = job.machine.handle(event, moment)
        if job.state.status is not before:
            log.info(
                "job status changed",
                job=job_id,
                before=before.value,
                after=job.state.status.value,
                event_type=type(event).__name__,
            )
            self._carrier.status_changed(job)
        log_milestones(job)
        for occurrence in job.notes.changed(job.state, event):
            self.chronicle.note(occurrence)
        for effect in effects:
            self._carrier.carry_out(job, effect)
        self.deadlines.set(job_id, job.state.deadline() if job_id in self.table.active else None)

    def reported(self, job: ManagedJob, attempt: int) -> None:
        """Note in the chronicle what is new in the JobMaster's report."""
        if job.report is not None:
            for occurrence in job.notes.reported(attempt, job.report, self._term.clock.now_ms()):
                self.chronicle.note(occurrence)

    def attempt_seen(self, job_id: JobId, attempt: int) -> None:
        """Note an attempt number that another process knows.

        A number newer than ours shows that the job store was restored from an older copy.
        """
        job = self.table.active.get(job_id)
        if job is None or not job.state.is_news(attempt):
            return
        before = job.state.attempt
        self.apply(job_id, ev.AttemptSeen(attempt))
        if job.state.phase is Phase.ADOPTING and attempt == job.state.attempt:
            log.warning(
                "the job store was put back from an older copy: it does not know this job's newest attempt, which "
                "continues; later changes are lost, see docs/storage.md",
                job=job_id,
                attempt=attempt,
                stored=before,
            )

    def check_invariants(self) -> None:
        """Raise AssertionError if a job's state contradicts itself. For tests and the simulator."""
        for job in self.table.active.values():
            job.machine.check_invariants()
            job.requests.check_invariants()
            job.watch.check_invariants()
            job.periodic.check_invariants()
