"""One job as a pure state machine: ``handle(event, now) -> effects``.

These rules hold at every step:

- A driver starts only under an attempt number that is durable and was never used.
- The next number is written only when the previous driver is proven gone.
- The first report of an attempt's end decides. It may replace a presumed end.
- A job's result is issued once and never changes.
- A job never gets stuck: in every phase, an action whose result moves the job on is in progress, or a deadline is set.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from emberkeep.base.errors import IllegalTransition
from emberkeep.jobs import events as ev
from emberkeep.jobs import invariants
from emberkeep.jobs.attempts.driver_stop import DriverStop
from emberkeep.jobs.attempts.driver_watch import DriverWatch
from emberkeep.jobs.attempts.end import AttemptEnd
from emberkeep.jobs.attempts.newest import NewestAttempt
from emberkeep.jobs.events import Effect, Event
from emberkeep.jobs.job_end import JobEnd
from emberkeep.jobs.model import AttemptOutcome, FailureKind, JobStatus
from emberkeep.jobs.state import STOPPED, JobState, Verdict
from emberkeep.jobs.traces.moment import Moment
from emberkeep.jobs.traces.recovery_trace import RecoveryCause
from emberkeep.jobs.traces.trace_recorder import TraceRecorder
from emberkeep.jobs.transitions import TRANSITIONS, Phase

CANCELED_EXIT_CODE = 130


class JobMachine:
    """One job. ``state`` changes only in ``handle``.

    The parts of the state machine share it. Each part makes one kind of decision, and may use the parts that come
    before it in this list: stopping a driver, ending the job, what follows an attempt's end, the newest attempt, facts
    about the driver.
    """

    def __init__(self, state: JobState) -> None:
        self.state = state
        self._stop = DriverStop(state)
        self._job_end = JobEnd(state)
        self._attempt_end = AttemptEnd(state, self._stop, self._job_end)
        self._newest = NewestAttempt(state, self._stop, self._job_end, self._attempt_end)
        self._watch = DriverWatch(state, self._stop, self._attempt_end)
        self._handlers: dict[type[Any], Callable[[Any, Moment], None]] = {
            ev.Begin: self._begin,
            ev.BeginWithoutGraph: self._begin_without_graph,
            ev.GraphRead: self._graph_read,
            ev.GraphStillAway: self._graph_still_away,
            ev.GraphDamaged: self._graph_damaged,
            ev.PlaceGranted: self._newest.place_granted,
            ev.PlaceExplained: self._newest.place_explained,
            ev.AttemptRecorded: self._newest.attempt_recorded,
            ev.AttemptUnknown: self._newest.attempt_unknown,
            ev.AttemptSeen: self._newest.attempt_seen,
            ev.ResultRecorded: self._job_end.result_recorded,
            ev.CancelRequested: self._cancel,
            ev.MoveDriver: self._move_driver,
            ev.RestartDriver: self._watch.restart_driver,
            ev.StopRecorded: self._stop_recorded,
            ev.Tick: self._tick,
            ev.TaskManagerLost: self._watch.task_manager_lost,
            ev.PlaceBlocked: self._watch.place_blocked,
            ev.StartAccepted: self._watch.start_accepted,
            ev.StartRefused: self._watch.start_refused,
            ev.DriverNeverThere: self._watch.driver_never_there,
            ev.DriverListed: self._watch.driver_listed,
            ev.DriverExited: self._watch.driver_exited,
            ev.DriverVanished: self._watch.driver_vanished,
            ev.DriverNotAtHome: self._watch.driver_not_at_home,
            ev.JobMasterRegistered: self._watch.jobmaster_registered,
            ev.JobMasterHeard: self._watch.jobmaster_heard,
            ev.ExceptionsNoted: self._watch.exceptions_noted,
            ev.TraceReported: self._watch.trace_reported,
            ev.OutcomeReported: self._watch.outcome_reported,
        }

    def handle(self, event: Event, now: Moment) -> list[Effect]:
        """Apply one event and return the effects.

        Raises IllegalTransition for an event that the phase does not allow.
        """
        job = self.state
        if self._is_late(event):
            return []
        targets = TRANSITIONS[job.phase].get(type(event))
        if targets is None:
            raise self._illegal(event)
        job.looked_at, job.hears_since = now.at, now.hears_since
        before = job.phase
        self._handlers[type(event)](event, now)
        if not isinstance(event, ev.JobMasterHeard | ev.Tick) or job.phase is not before:
            job.steps.append(f"{type(event).__name__}: {before.value} → {job.phase.value} ({job.status.value})")
        if job.phase not in targets:
            raise self._illegal(event)
        effects, job.effects = job.effects, []
        return effects

    def _begin(self, event: ev.Begin, now: Moment) -> None:
        job = self.state
        job.enter(JobStatus.CREATED, now)
        if event.recovered:
            job.listens_until = now.at + job.policy.listening
        if event.problem:
            self._job_end.fail(_unusable(event.problem), now, keeps_data=True)
        elif job.attempt == 0 or (job.over and not job.stopped):
            if not event.recovered:
                job.next_trace = TraceRecorder(now, cause=RecoveryCause.SUBMISSION)
                job.next_trace.submitted(job.graph.submitted_ms, now)
            self._newest.request_place(now)
        else:
            self._newest.await_driver(now)
            self._newest.follow_driver(now)

    def _begin_without_graph(self, event: ev.BeginWithoutGraph, now: Moment) -> None:
        job = self.state
        job.enter(JobStatus.CREATED, now)
        job.listens_until = now.at + job.policy.listening
        if job.attempt > 0 and not job.over:
            self._newest.await_driver(now)
        job.phase = Phase.WITHOUT_GRAPH
        job.without_graph = event.reason
        job.effects.append(ev.ReadGraph())

    def _graph_still_away(self, event: ev.GraphStillAway, now: Moment) -> None:
        self.state.without_graph = event.reason

    def _graph_read(self, event: ev.GraphRead, now: Moment) -> None:
        job = self.state
        job.graph, job.policy, job.strategy = event.graph, event.policy, event.strategy
        if job.driver is None:
            self._newest.request_place(now)
            return
        job.driver.count_from(now.at)  # the job's own timeouts were unknown until now
        if job.recorded < job.attempt:
            self._newest.write_adopted()
            return
        self._newest.follow_driver(now)
        self._attempt_end.judge(now)

    def _graph_damaged(self, event: ev.GraphDamaged, now: Moment) -> None:
        job = self.state
        driver, outcome = job.driver, _unusable(event.problem)
        if driver is None:
            self._job_end.fail(outcome, now, keeps_data=True)
        elif not self._attempt_end.ends_as_judged(now):
            job.history.attempt_failed(job.attempt, outcome, now.ms)
            job.verdict = Verdict(JobStatus.FAILED, outcome.exit_code, outcome.message, keeps_data=True)
            job.enter(JobStatus.FAILING, now)
            if driver.is_gone:
                self._job_end.record_result(now)
            else:
                job.phase = Phase.ENDING
                self._stop.begin(driver, job.policy.grace, now)

    def _cancel(self, event: ev.CancelRequested, now: Moment) -> None:
        job = self.state
        driver = job.driver
        if job.phase is Phase.RECORDING_RESULT or job.verdict is not None:  # it is already ending
            if driver is not None and event.grace is not None and job.verdict_is(JobStatus.CANCELED):
                self._stop.hasten(driver, event.grace, now)
            return
        if job.phase is not Phase.ADOPTING and self._attempt_end.ends_as_judged(now):
            return
        job.restart_at = None
        job.verdict = Verdict(JobStatus.CANCELED, CANCELED_EXIT_CODE, "canceled on request")
        job.enter(JobStatus.CANCELLING, now)
        if job.phase is Phase.ADOPTING:
            return  # its driver is stopped once the adopted number is written
        if driver is not None and not driver.is_gone:
            job.phase = Phase.ENDING
            grace = job.policy.grace if event.grace is None else event.grace
            self._stop.begin(driver, grace, now)
            self._stop.hasten(driver, grace, now)
        elif job.phase is not Phase.RECORDING_ATTEMPT:
            self._job_end.record_result(now)
        job.effects.append(ev.WithdrawPlace())

    def _move_driver(self, event: ev.MoveDriver, now: Moment) -> None:
        job = self.state
        if job.phase is not Phase.RUNNING or job.stopped:
            return
        driver = job.live()
        driver.moving = True
        self._attempt_end.restart_elsewhere(self._attempt_end.moved(), now)
        job.phase = Phase.ENDING
        job.effects.append(ev.DropRequirements(driver.attempt))
        self._stop.begin(driver, job.policy.grace, now)

    def _stop_recorded(self, event: ev.StopRecorded, now: Moment) -> None:
        job = self.state
        if job.verdict is not None or job.stopped:
            return
        job.stopped = True
        if job.phase in (Phase.WITHOUT_GRAPH, Phase.ADOPTING):
            return
        if job.phase in (Phase.STARTING, Phase.RUNNING):
            job.script_until = now.at + job.policy.script_timeout
            return
        # The attempt was lost in the meantime, and the next one is being prepared.
        job.restart_at = None
        job.verdict = STOPPED
        if job.phase in (Phase.PLACING, Phase.BACKING_OFF):
            job.effects.append(ev.WithdrawPlace())
            self._job_end.record_result(now)

    def _tick(self, event: ev.Tick, now: Moment) -> None:
        job = self.state
        due = job.deadline()
        if due is None or now.at < due:
            return
        if job.phase is Phase.PLACING:
            job.explain_at = None
            job.effects.append(ev.ExplainPlace())
        elif job.phase is Phase.BACKING_OFF:
            job.restart_at = None
            self._newest.request_place(now)
        elif job.phase is Phase.ENDED:
            self._job_end.forget()
        else:
            self._watch.due(job.live(), now)

    def _illegal(self, event: Event) -> IllegalTransition:
        return IllegalTransition(
            f"job {self.state.graph.job_id}", self.state.phase.value, type(event).__name__, tuple(self.state.steps)
        )

    def check_invariants(self) -> None:
        """Raise AssertionError when the state contradicts itself. For tests and the simulator."""
        invariants.check(self.state)

    def _is_late(self, event: Event) -> bool:
        """True if the event is about an attempt or a request that has ended. Such events are normal and are ignored."""
        job = self.state
        if isinstance(event, ev.PlaceGranted):
            return job.phase is not Phase.PLACING  # withdrawn in the meantime
        if isinstance(event, ev.PlaceExplained):
            return job.phase is not Phase.PLACING
        attempt = getattr(event, "attempt", None)
        if attempt is None:
            return False
        driver = job.driver
        if attempt != job.attempt or driver is None or driver.is_gone:
            return True
        # Only the instance on which the driver is known to be can report that the driver has vanished.
        return isinstance(event, ev.DriverVanished) and (
            driver.place is None or driver.place.instance != event.instance
        )


def _unusable(problem: str) -> AttemptOutcome:
    return AttemptOutcome(exit_code=1, kind=FailureKind.SETUP, message=problem)
