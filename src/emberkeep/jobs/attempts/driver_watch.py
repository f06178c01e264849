"""Follows the driver of a job's attempt: what task managers and its JobMaster report, and what its silence means."""

from __future__ import annotations

from emberkeep.jobs import events as ev
from emberkeep.jobs.attempts.driver_stop import DriverStop
from emberkeep.jobs.attempts.end import AttemptEnd
from emberkeep.jobs.driver import Driver, DriverEnd, StartState
from emberkeep.jobs.model import AttemptOutcome, FailureKind, JobStatus
from emberkeep.jobs.state import JobState
from emberkeep.jobs.traces.moment import Moment
from emberkeep.jobs.traces.recovery_trace import Milestone
from emberkeep.jobs.transitions import Phase


class DriverWatch:
    """Facts about the current attempt's driver. Part of the JobMachine, which drops facts about older attempts."""

    def __init__(self, job: JobState, stop: DriverStop, attempt_end: AttemptEnd) -> None:
        self._job = job
        self._stop = stop
        self._attempt_end = attempt_end

    def start_accepted(self, event: ev.StartAccepted, now: Moment) -> None:
        self._job.live().start_accepted()

    def start_refused(self, event: ev.StartRefused, now: Moment) -> None:
        self._attempt_end.driver_gone(AttemptOutcome(exit_code=1, kind=FailureKind.SETUP, message=event.message), now)

    def driver_never_there(self, event: ev.DriverNeverThere, now: Moment) -> None:
        driver = self._job.live()
        if driver.was_never_at(event.instance):
            where = "" if driver.place is None else driver.place.task_manager
            self._attempt_end.driver_gone(_lost(f"task manager {where} has not received the order to start it"), now)

    def driver_listed(self, event: ev.DriverListed, now: Moment) -> None:
        job = self._job
        driver = job.live()
        if driver.is_twin_of(event.place, event.pid) and job.phase in (Phase.STARTING, Phase.RUNNING):
            self._end_twins(event.place, now)
            return
        had = driver.place
        driver.seen_at(event.place, event.pid)
        trace = job.history.trace_of(driver.attempt)
        if trace is not None and event.pid and driver.ordered:
            trace.process_started(event.start, event.why_cold, now)
        job.history.attempt_placed(driver.attempt, event.place.task_manager)
        if job.phase is Phase.ENDING and had != event.place:
            self._stop.order(driver, now)

    def _end_twins(self, other: ev.DriverPlace, now: Moment) -> None:
        """End the attempt: two of its drivers are alive on different task managers and cannot be distinguished."""
        driver = self._job.live()
        driver.end = DriverEnd.CONDEMNED
        self._job.effects.append(ev.AttemptOver(driver.attempt))
        self._attempt_end.ended(
            _lost(f"another driver of this attempt lives on task manager {other.task_manager}"), now
        )

    def driver_exited(self, event: ev.DriverExited, now: Moment) -> None:
        driver = self._job.live()
        self._job.history.attempt_placed(driver.attempt, event.place.task_manager)
        self._attempt_end.driver_gone(event.outcome, now)

    def driver_vanished(self, event: ev.DriverVanished, now: Moment) -> None:
        place = self._job.live().place
        where = place.task_manager if place is not None else ""
        self._attempt_end.driver_gone(_lost(f"task manager {where} no longer lists the driver"), now)

    def driver_not_at_home(self, event: ev.DriverNotAtHome, now: Moment) -> None:
        if self._job.live().is_missing_at(event.place, continues=event.continues):
            where = event.place.task_manager
            self._attempt_end.driver_gone(
                _lost(f"task manager {where}, where the driver was started, no longer has it"), now
            )

    def jobmaster_registered(self, event: ev.JobMasterRegistered, now: Moment) -> None:
        job = self._job
        driver = job.live()
        self._note_registration(driver, event, now)
        driver.register(now.at, event.pid)
        job.history.attempt_placed(driver.attempt, event.task_manager)
        if job.phase is Phase.STARTING:
            job.phase = Phase.RUNNING
            job.enter(JobStatus.RUNNING, now)
        elif job.phase in (Phase.WITHOUT_GRAPH, Phase.ADOPTING) and job.status is JobStatus.INITIALIZING:
            job.enter(JobStatus.RUNNING, now)

    def _note_registration(self, driver: Driver, event: ev.JobMasterRegistered, now: Moment) -> None:
        """Note the registration in the attempt's trace. A recovered driver has registered with an earlier leader."""
        trace = self._job.history.trace_of(driver.attempt)
        if trace is None:
            return
        if event.trace is not None:
            trace.take(event.trace, now)
        if driver.ordered:
            trace.note(Milestone.REGISTERED, now)

    def trace_reported(self, event: ev.TraceReported, now: Moment) -> None:
        trace = self._job.history.trace_of(event.attempt)
        if trace is not None:
            trace.take(event.trace, now)

    def jobmaster_heard(self, event: ev.JobMasterHeard, now: Moment) -> None:
        self._job.live().hear(now.at)

    def exceptions_noted(self, event: ev.ExceptionsNoted, now: Moment) -> None:
        self._job.history.note(event.entries)

    def task_manager_lost(self, event: ev.TaskManagerLost, now: Moment) -> None:
        job = self._job
        if job.place is not None and job.place.instance == event.instance:
            job.place = None
        if job.driver is not None and not job.driver.is_gone:
            job.driver.task_manager_lost(event.instance, now.at)

    def place_blocked(self, event: ev.PlaceBlocked, now: Moment) -> None:
        job = self._job
        if job.place is not None and job.place.instance == event.instance:
            job.place = None
        driver = job.driver
        if job.phase is not Phase.STARTING or driver is None or driver.start is not StartState.ORDERED:
            return
        if driver.place is not None and driver.place.instance == event.instance:
            # The order may have arrived nevertheless. In that case the driver is stopped, or refused if it comes up
            # later.
            driver.moving, driver.end = True, DriverEnd.CONDEMNED
            job.effects.append(ev.AttemptOver(driver.attempt))
            self._attempt_end.ended(self._attempt_end.moved(), now)

    def outcome_reported(self, event: ev.OutcomeReported, now: Moment) -> None:
        job = self._job
        driver = job.live()
        driver.hear(now.at)
        if job.phase in (Phase.STARTING, Phase.RUNNING, Phase.ENDING) and not driver.reported_end:
            driver.reported_end = True
            job.effects.append(ev.DropRequirements(driver.attempt))
            self._attempt_end.ended(event.outcome, now)

    def restart_driver(self, event: ev.RestartDriver, now: Moment) -> None:
        job = self._job
        if job.phase is not Phase.RUNNING or job.stopped:
            return
        driver = job.live()
        driver.stuck, driver.end = event.reason, DriverEnd.CONDEMNED
        job.effects.append(ev.AttemptOver(driver.attempt))
        self._attempt_end.ended(_lost(event.reason), now)

    def due(self, driver: Driver, now: Moment) -> None:
        """Act on the driver's deadline: the driver is gone or silent, its script must end, or an order is repeated."""
        job = self._job
        silence_from = job.silence_from()
        gone_at = driver.gone_at(job.policy, silence_from)
        silent_at = driver.silent_at(job.policy, silence_from)
        order_at = driver.order_due_at()
        if gone_at is not None and now.at >= gone_at:
            driver.end, driver.fell_silent = DriverEnd.CONDEMNED, True
            self._attempt_end.driver_gone(_lost(_silence(driver)), now)
        elif silent_at is not None and now.at >= silent_at:
            driver.end, driver.fell_silent = DriverEnd.CONDEMNED, True
            job.effects.append(ev.AttemptOver(driver.attempt))
            self._attempt_end.ended(_lost(_silence(driver)), now)
        elif job.script_until is not None and driver.stop_at is None and now.at >= job.script_until:
            self._stop.begin(driver, job.policy.grace, now)
        elif order_at is not None and now.at >= order_at:
            if driver.stop_at is not None:
                self._stop.order(driver, now)
            elif driver.place is not None:
                driver.order_again_at = now.at + job.policy.repeat
                job.effects.append(ev.StartDriver(driver.attempt, driver.place))


def _lost(message: str) -> AttemptOutcome:
    return AttemptOutcome(exit_code=1, kind=FailureKind.LOST, message=message)


def _silence(driver: Driver) -> str:
    if driver.is_registered:
        what = "the driver has sent no heartbeat for too long"
    else:
        what = "the driver did not register in time"
    if driver.place is None:
        return f"{what} and no task manager knows of it"
    end = "" if driver.lost_at is None else ", which is lost"
    return f"{what}; it was on task manager {driver.place.task_manager}{end}"
