"""One job as a pure machine: ``handle(event, moment) -> effects``.

These rules hold at every step:

- A driver starts only under an attempt number that is durable and was never used.
- The next number is written only when the previous driver is proven gone.
- The first report of an attempt's end decides. It may replace a presumed end.
- A job's result is issued once and never changes.
- In every phase, an action that changes the job is in progress, or a deadline is set.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from emberkeep.base.errors import IllegalTransition
from emberkeep.jobs import events as ev
from emberkeep.jobs.driver import Driver
from emberkeep.jobs.events import Effect, Event, Moment
from emberkeep.jobs.model import AttemptOutcome, FailureKind, JobResult, JobStatus
from emberkeep.jobs.newest_attempt import NewestAttempt
from emberkeep.jobs.restart import GiveUp
from emberkeep.jobs.state import Verdict
from emberkeep.jobs.transitions import TRANSITIONS, Phase

CANCELED_EXIT_CODE = 130


class JobMachine(NewestAttempt):
    """One job. See JobState for the arguments."""

    # --- entry point --------------------------------------------------------------------------------------------------

    def handle(self, event: Event, now: Moment) -> list[Effect]:
        """Apply one event and return the effects.

        Raises IllegalTransition for an event that the phase does not allow.
        """
        if self._is_late(event):
            return []
        targets = TRANSITIONS[self.phase].get(type(event))
        if targets is None:
            raise self._illegal(event)
        self._looked_at, self._hears_since = now.at, now.hears_since
        before = self.phase
        _HANDLERS[type(event)](self, event, now)
        if not isinstance(event, ev.JobMasterHeard | ev.Tick) or self.phase is not before:
            self._steps.append(f"{type(event).__name__}: {before.value} → {self.phase.value} ({self.status.value})")
        if self.phase not in targets:
            raise self._illegal(event)
        effects, self._effects = self._effects, []
        return effects

    # --- beginning and placing ----------------------------------------------------------------------------------------

    def _begin(self, event: ev.Begin, now: Moment) -> None:
        self._enter(JobStatus.CREATED, now)
        if event.recovered:
            self._listens_until = now.at + self._policy.listening
        if event.problem:
            self._fail(_unusable(event.problem), now, keeps_data=True)
        elif self.attempt == 0:
            self._request_place(now)
        else:
            self._await_driver(now)
            self._follow_driver(now)

    # --- while the graph cannot be read -------------------------------------------------------------------------------

    def _begin_without_graph(self, event: ev.BeginWithoutGraph, now: Moment) -> None:
        self._enter(JobStatus.CREATED, now)
        self._listens_until = now.at + self._policy.listening
        if self.attempt > 0:
            self._await_driver(now)
        self.phase = Phase.WITHOUT_GRAPH
        self._without_graph = event.reason
        self._effects.append(ev.ReadGraph())

    def _graph_still_away(self, event: ev.GraphStillAway, now: Moment) -> None:
        self._without_graph = event.reason

    def _graph_read(self, event: ev.GraphRead, now: Moment) -> None:
        self.graph, self._policy, self._strategy = event.graph, event.policy, event.strategy
        if self.driver is None:
            self._request_place(now)
            return
        self.driver.count_from(now.at)  # the job's own timeouts were unknown until now
        if self._recorded < self.attempt:
            self._write_adopted()
            return
        self._follow_driver(now)
        self._judge_end(now)

    def _judge_end(self, now: Moment) -> None:
        end, self._end_to_judge = self._end_to_judge, None
        if end is not None:
            self._driver_gone(end, now)

    def _graph_damaged(self, event: ev.GraphDamaged, now: Moment) -> None:
        driver, outcome = self.driver, _unusable(event.problem)
        if driver is None:
            self._fail(outcome, now, keeps_data=True)
        elif not self._ends_as_judged(now):
            self.history.attempt_failed(self.attempt, outcome, now.ms)
            self.verdict = Verdict(JobStatus.FAILED, outcome.exit_code, outcome.message, keeps_data=True)
            self._enter(JobStatus.FAILING, now)
            if driver.gone:
                self._record_result(now)
            else:
                self.phase = Phase.ENDING
                self._stop(driver, self._policy.grace, now)

    def _ends_as_judged(self, now: Moment) -> bool:
        """Judge a driver's end that arrived while the graph could not be read.

        Return True if the script has succeeded; in that case the job has ended.
        """
        end, self._end_to_judge = self._end_to_judge, None
        if end is None:
            return False
        driver = self._live()
        driver.gone = True
        self._effects.append(ev.AttemptOver(driver.attempt))
        if end.kind is not None:
            self.history.attempt_ended(self.attempt, end, now.ms)
            return False
        self._attempt_ended(end, now)
        return True

    def _request_place(self, now: Moment) -> None:
        self.driver = None
        if self._listens(now):
            return
        self.phase = Phase.PLACING
        self._waited_for_blocked = False
        self._explain_at = now.at + self._policy.place_timeout if self._policy.place_timeout else None
        self._effects.append(ev.RequestPlace())

    def _place_granted(self, event: ev.PlaceGranted, now: Moment) -> None:
        self._place, self._only_node = event.place, event.only_node
        self._record_next_attempt()

    def _place_explained(self, event: ev.PlaceExplained, now: Moment) -> None:
        if event.blocked or self._waited_for_blocked:  # after the last unblocking the whole time begins again
            self._waited_for_blocked = event.blocked
            self._explain_at = now.at + self._policy.place_timeout
            return
        message = f"after {self._policy.place_timeout:g} s there is {event.text}"
        self._effects.append(ev.WithdrawPlace())
        self._fail(AttemptOutcome(exit_code=1, kind=FailureKind.RESOURCES, message=message), now)

    def _attempt_unknown(self, event: ev.AttemptUnknown, now: Moment) -> None:
        if self.phase is Phase.ADOPTING:
            self._write_adopted()
        elif self.verdict is None:
            self._record_next_attempt()
        else:
            self._record_result(now)

    def _adopted(self, now: Moment) -> None:
        driver = self._live()
        if self._recorded < self.attempt:
            self._write_adopted()
            return
        if self.verdict is None:
            self._follow_driver(now)
        else:
            self.phase = Phase.ENDING
            self._stop(driver, self._policy.grace, now)
        self._judge_end(now)

    def _attempt_recorded(self, event: ev.AttemptRecorded, now: Moment) -> None:
        place, self._place = self._place, None
        self._recorded = self._writing
        if self.phase is Phase.ADOPTING:
            self._adopted(now)
        elif self.verdict is not None:
            self._record_result(now)
        elif place is None:  # its task manager was lost or blocked in the meantime
            self._request_place(now)
        else:
            self.driver = Driver(attempt=self.attempt, since=now.at, heard_at=now.at, place=place, ordered=True)
            self.driver.order_again_at = now.at + self._policy.repeat
            self._moving = False
            self.history.attempt_started(self.attempt, place.task_manager, now.ms)
            self.phase = Phase.STARTING
            self._enter(JobStatus.INITIALIZING, now)
            self._effects.append(ev.StartDriver(self.attempt, place))

    # --- facts about the driver ---------------------------------------------------------------------------------------

    def _start_accepted(self, event: ev.StartAccepted, now: Moment) -> None:
        self._live().accepted = True

    def _start_refused(self, event: ev.StartRefused, now: Moment) -> None:
        self._driver_gone(AttemptOutcome(exit_code=1, kind=FailureKind.SETUP, message=event.message), now)

    def _driver_listed(self, event: ev.DriverListed, now: Moment) -> None:
        driver = self._live()
        if driver.is_twin_of(event.place, event.pid) and self.phase in (Phase.STARTING, Phase.RUNNING):
            self._end_twins(event.place, now)
            return
        had = driver.place
        driver.seen_at(event.place, event.pid)
        self.history.attempt_placed(driver.attempt, event.place.task_manager)
        if self.phase is Phase.ENDING and had != event.place:
            self._order_stop(driver, now)

    def _end_twins(self, other: ev.DriverPlace, now: Moment) -> None:
        """End the attempt: two of its drivers are alive on different task managers and cannot be distinguished."""
        driver = self._live()
        driver.condemned = True
        self._effects.append(ev.AttemptOver(driver.attempt))
        self._attempt_ended(_lost(f"another driver of this attempt lives on task manager {other.task_manager}"), now)

    def _driver_exited(self, event: ev.DriverExited, now: Moment) -> None:
        driver = self._live()
        self.history.attempt_placed(driver.attempt, event.place.task_manager)
        self._driver_gone(event.outcome, now)

    def _driver_vanished(self, event: ev.DriverVanished, now: Moment) -> None:
        place = self._live().place
        where = place.task_manager if place is not None else ""
        self._driver_gone(_lost(f"task manager {where} lists the driver no more"), now)

    def _driver_not_at_home(self, event: ev.DriverNotAtHome, now: Moment) -> None:
        if self._live().is_missing_at(event.place, continues=event.continues):
            where = event.place.task_manager
            self._driver_gone(_lost(f"task manager {where}, where the driver was started, has it no more"), now)

    def _jobmaster_registered(self, event: ev.JobMasterRegistered, now: Moment) -> None:
        driver = self._live()
        driver.registered = True
        driver.hear(now.at)
        driver.pid = event.pid
        self.history.attempt_placed(driver.attempt, event.task_manager)
        if self.phase is Phase.STARTING:
            self.phase = Phase.RUNNING
            self._enter(JobStatus.RUNNING, now)
        elif self.phase in (Phase.WITHOUT_GRAPH, Phase.ADOPTING) and self.status is JobStatus.INITIALIZING:
            self._enter(JobStatus.RUNNING, now)

    def _jobmaster_heard(self, event: ev.JobMasterHeard, now: Moment) -> None:
        self._live().hear(now.at)

    def _exceptions_noted(self, event: ev.ExceptionsNoted, now: Moment) -> None:
        self.history.note(event.entries)

    def _task_manager_lost(self, event: ev.TaskManagerLost, now: Moment) -> None:
        if self._place is not None and self._place.instance == event.instance:
            self._place = None
        if self.driver is not None and not self.driver.gone:
            self.driver.task_manager_lost(event.instance, now.at)

    def _place_blocked(self, event: ev.PlaceBlocked, now: Moment) -> None:
        if self._place is not None and self._place.instance == event.instance:
            self._place = None
        driver = self.driver
        if self.phase is not Phase.STARTING or driver is None or driver.accepted:
            return
        if driver.place is not None and driver.place.instance == event.instance:
            # The order may have arrived nevertheless. Then the driver is ended, or refused if it comes up later.
            self._moving = driver.condemned = True
            self._effects.append(ev.AttemptOver(driver.attempt))
            self._attempt_ended(self._moved(), now)

    def _outcome_reported(self, event: ev.OutcomeReported, now: Moment) -> None:
        driver = self._live()
        driver.hear(now.at)
        if self.phase in (Phase.STARTING, Phase.RUNNING, Phase.ENDING) and not driver.told:
            driver.told = True
            self._effects.append(ev.DropRequirements(driver.attempt))
            self._attempt_ended(event.outcome, now)

    def _driver_gone(self, outcome: AttemptOutcome, now: Moment) -> None:
        driver = self._live()
        if self.phase in (Phase.WITHOUT_GRAPH, Phase.ADOPTING):
            if self._end_to_judge is None or outcome.kind is None:
                self._end_to_judge = outcome
            return
        driver.gone = True
        self._effects.append(ev.AttemptOver(driver.attempt))
        if self.phase is Phase.ENDED:
            self._forget()
        elif self.phase is not Phase.RECORDING_RESULT:
            if driver.told:
                self._go_on(now)
            else:
                self._attempt_ended(outcome, now)

    # --- what follows from an end -------------------------------------------------------------------------------------

    def _attempt_ended(self, outcome: AttemptOutcome, now: Moment) -> None:
        """Decide what follows the attempt's end, which is reported or presumed from silence.

        In ENDING, a decision exists already. A cancellation stays. Any other decision is replaced only by an outcome
        that allows no further attempt, such as the end of the script itself.
        """
        if outcome.kind is FailureKind.MOVED or (self._moving and outcome.kind is not None):
            outcome = self._moved()
        if self.phase is Phase.ENDING and (self.verdict_is(JobStatus.CANCELED) or self._continues(outcome)):
            self.history.attempt_ended(self.attempt, outcome, now.ms)
        elif outcome.kind is None:
            self.history.attempt_ended(self.attempt, outcome, now.ms)
            self._restart_at = None
            self.verdict = Verdict(JobStatus.FINISHED, outcome.exit_code, "")
        elif self.stopped and (outcome.kind is not FailureKind.SCRIPT or self._live().stop_at is not None):
            # The savepoint has everything that the job had to do: how its process ended changes nothing about that.
            self.history.attempt_ended(self.attempt, outcome, now.ms)
            self.verdict = _STOPPED
        elif outcome.kind is FailureKind.MOVED:
            self._restart_elsewhere(outcome, now)
        else:
            self._attempt_failed(outcome, now)
        self._go_on(now)

    def _restart_elsewhere(self, outcome: AttemptOutcome, now: Moment) -> None:
        """Restart at once, without asking the restart strategy, because a move is not a failure."""
        self.history.attempt_ended(self.attempt, outcome, now.ms)
        self._restart_at = now.at
        self._enter(JobStatus.RESTARTING, now)

    def _moved(self) -> AttemptOutcome:
        home = self._live().stands_at
        where = "a node that is not known" if home is None else f"node {home.node_id or home.task_manager}"
        return AttemptOutcome(exit_code=0, kind=FailureKind.MOVED, message=f"moved from {where}")

    def _attempt_failed(self, outcome: AttemptOutcome, now: Moment) -> None:
        self.history.attempt_failed(self.attempt, outcome, now.ms)
        self._restart_at = None
        root_cause = outcome.message or f"the driver ended with exit code {outcome.exit_code}"
        if self.stopped:
            root_cause = f"{root_cause} (after the job was stopped: its savepoint is complete)"
        hopeless = self._count_start(outcome)
        if self._restarts(outcome):
            decision = self._strategy.failed(now.at, now.chance)
            if not isinstance(decision, GiveUp) and not hopeless:
                self._restart_at = now.at + decision.delay
                self._enter(JobStatus.RESTARTING, now)
                return
            reason = decision.reason if isinstance(decision, GiveUp) else hopeless
            root_cause = f"{root_cause} (not restarted: {reason})"
        self.verdict = Verdict(JobStatus.FAILED, outcome.exit_code, root_cause)
        self._enter(JobStatus.FAILING, now)

    def _count_start(self, outcome: AttemptOutcome) -> str:
        """Return why another attempt is pointless, if this one could not be started; else ""."""
        driver = self._live()
        if not outcome.lasting or (driver.registered and outcome.kind is not FailureKind.SETUP):
            self._starts.ended_otherwise()
            return ""
        home = driver.stands_at
        node = "" if home is None else home.node_id or home.task_manager
        last = outcome.traceback.rstrip().rpartition("\n")[2]
        return self._starts.failed(last or outcome.message, node, only_node=self._only_node)

    def _continues(self, outcome: AttemptOutcome) -> bool:
        """True if another attempt may follow such an end."""
        return outcome.kind is FailureKind.MOVED or self._restarts(outcome)

    def _restarts(self, outcome: AttemptOutcome) -> bool:
        """True if the restart strategy decides about a restart after such an end."""
        if self.stopped:
            return False
        if outcome.kind is FailureKind.SCRIPT:
            return self._policy.restarts_script_failures
        return outcome.kind in (FailureKind.LOST, FailureKind.SETUP)

    def _go_on(self, now: Moment) -> None:
        """Take the next step towards the restart or the verdict, or wait until the driver is gone."""
        driver = self.driver
        alive = driver is not None and not driver.gone
        if (
            driver is not None
            and alive
            and not (driver.told and self.verdict and not self.verdict_is(JobStatus.CANCELED))
        ):
            self.phase = Phase.ENDING
            self._stop(driver, self._policy.grace if driver.told else 0.0, now)
        elif self.verdict is not None:
            self._record_result(now)
        else:
            self.phase = Phase.BACKING_OFF

    def _cancel(self, event: ev.CancelRequested, now: Moment) -> None:
        driver = self.driver
        if self.phase is Phase.RECORDING_RESULT or self.verdict is not None:  # it is ending already
            if driver is not None and event.grace is not None and self.verdict_is(JobStatus.CANCELED):
                self._hasten(driver, event.grace, now)
            return
        if self.phase is not Phase.ADOPTING and self._ends_as_judged(now):
            return
        self._restart_at = None
        self.verdict = Verdict(JobStatus.CANCELED, CANCELED_EXIT_CODE, "canceled on request")
        self._enter(JobStatus.CANCELLING, now)
        if self.phase is Phase.ADOPTING:
            return  # its driver is ended once the adopted number is written
        if driver is not None and not driver.gone:
            self.phase = Phase.ENDING
            grace = self._policy.grace if event.grace is None else event.grace
            self._stop(driver, grace, now)
            self._hasten(driver, grace, now)
        elif self.phase is not Phase.RECORDING_ATTEMPT:
            self._record_result(now)
        self._effects.append(ev.WithdrawPlace())

    def _move_driver(self, event: ev.MoveDriver, now: Moment) -> None:
        if self.phase is not Phase.RUNNING or self.stopped:
            return
        driver = self._live()
        self._moving = True
        self._restart_elsewhere(self._moved(), now)
        self.phase = Phase.ENDING
        self._effects.append(ev.DropRequirements(driver.attempt))
        self._stop(driver, self._policy.grace, now)

    def _stop_recorded(self, event: ev.StopRecorded, now: Moment) -> None:
        if self.verdict is not None or self.stopped:
            return
        self.stopped = True
        if self.phase in (Phase.WITHOUT_GRAPH, Phase.ADOPTING):
            return
        if self.phase in (Phase.STARTING, Phase.RUNNING):
            self._script_until = now.at + self._policy.script_timeout
            return
        # The attempt was lost in the meantime, and the next one is being prepared.
        self._restart_at = None
        self.verdict = _STOPPED
        if self.phase in (Phase.PLACING, Phase.BACKING_OFF):
            self._effects.append(ev.WithdrawPlace())
            self._record_result(now)

    def _fail(self, outcome: AttemptOutcome, now: Moment, *, keeps_data: bool = False) -> None:
        """Fail the job while it has no driver."""
        self.history.failed_unstarted(self.attempt, outcome, now.ms)
        self.verdict = Verdict(JobStatus.FAILED, outcome.exit_code, outcome.message, keeps_data=keeps_data)
        self._enter(JobStatus.FAILING, now)
        self._record_result(now)

    def _stop(self, driver: Driver, grace: float, now: Moment) -> None:
        if driver.stop_at is None:
            driver.stop_at = now.at
            driver.stop_until = now.at + grace
            self._order_stop(driver, now)

    def _hasten(self, driver: Driver, grace: float, now: Moment) -> None:
        """Shorten the remaining grace period of a driver that is being stopped."""
        if not driver.gone and driver.stop_at is not None and now.at + grace < driver.stop_until:
            driver.stop_until = now.at + grace
            self._order_stop(driver, now)

    def _order_stop(self, driver: Driver, now: Moment) -> None:
        driver.order_again_at = now.at + self._policy.repeat
        if driver.place is not None and driver.reachable:
            grace = max(0.0, driver.stop_until - now.at)
            self._effects.append(ev.StopDriver(driver.attempt, driver.place, grace))

    def _record_result(self, now: Moment) -> None:
        assert self.verdict is not None  # noqa: S101 - an invariant, not input
        self.phase = Phase.RECORDING_RESULT
        self.result = JobResult(
            job_id=self.graph.job_id,
            name=self.graph.name,
            status=self.verdict.status,
            exit_code=self.verdict.exit_code,
            root_cause=self.verdict.root_cause,
            submitted_ms=self.graph.submitted_ms,
            ended_ms=now.ms,
            attempts=self.history.attempts(),
            exceptions=self.history.exceptions(),
            idempotency_key=self.graph.idempotency_key,
            keeps_data=self.verdict.keeps_data,
        )
        self._effects.append(ev.RecordResult(self.result))

    def _result_recorded(self, event: ev.ResultRecorded, now: Moment) -> None:
        assert self.verdict is not None  # noqa: S101
        self.phase = Phase.ENDED
        self._enter(self.verdict.status, now)
        if self.driver is None or self.driver.gone:
            self._forget()
        else:
            self._forget_at = now.at + self._policy.grace

    def _forget(self) -> None:
        if not self._forgotten:
            self._forgotten = True
            self._forget_at = None
            self._effects.append(ev.JobOver())

    # --- time ---------------------------------------------------------------------------------------------------------

    def _tick(self, event: ev.Tick, now: Moment) -> None:
        due = self.deadline()
        if due is None or now.at < due:
            return
        if self.phase is Phase.PLACING:
            self._explain_at = None
            self._effects.append(ev.ExplainPlace())
        elif self.phase is Phase.BACKING_OFF:
            self._restart_at = None
            self._request_place(now)
        elif self.phase is Phase.ENDED:
            self._forget()
        else:
            self._driver_due(self._live(), now)

    def _driver_due(self, driver: Driver, now: Moment) -> None:
        silence_from = self._silence_from()
        gone_at = driver.gone_at(self._policy, silence_from)
        silent_at = driver.silent_at(self._policy, silence_from)
        order_at = driver.order_due_at()
        if gone_at is not None and now.at >= gone_at:
            driver.condemned = True
            self._driver_gone(_lost(_silence(driver)), now)
        elif silent_at is not None and now.at >= silent_at:
            driver.condemned = True
            self._effects.append(ev.AttemptOver(driver.attempt))
            self._attempt_ended(_lost(_silence(driver)), now)
        elif self._script_until is not None and driver.stop_at is None and now.at >= self._script_until:
            self._stop(driver, self._policy.grace, now)
        elif order_at is not None and now.at >= order_at:
            if driver.stop_at is not None:
                self._order_stop(driver, now)
            elif driver.place is not None:
                driver.order_again_at = now.at + self._policy.repeat
                self._effects.append(ev.StartDriver(driver.attempt, driver.place))

    # --- bookkeeping --------------------------------------------------------------------------------------------------

    def steps(self) -> tuple[str, ...]:
        """Return the newest steps, for error messages and logs."""
        return tuple(self._steps)

    def _illegal(self, event: Event) -> IllegalTransition:
        return IllegalTransition(f"job {self.graph.job_id}", self.phase.value, type(event).__name__, self.steps())

    def check_invariants(self) -> None:
        """Raise AssertionError when the state contradicts itself. For tests and the simulator."""
        from emberkeep.jobs.invariants import check

        check(self)


_STOPPED = Verdict(JobStatus.FINISHED, 0, "")


def _unusable(problem: str) -> AttemptOutcome:
    return AttemptOutcome(exit_code=1, kind=FailureKind.SETUP, message=problem)


def _lost(message: str) -> AttemptOutcome:
    return AttemptOutcome(exit_code=1, kind=FailureKind.LOST, message=message)


def _silence(driver: Driver) -> str:
    if driver.registered:
        what = "the driver has sent no heartbeat for too long"
    else:
        what = "the driver did not register in time"
    if driver.place is None:
        return f"{what} and no task manager knows of it"
    end = "" if driver.lost_at is None else ", which is lost"
    return f"{what}; it was on task manager {driver.place.task_manager}{end}"


_HANDLERS: dict[type[Any], Callable[[JobMachine, Any, Moment], None]] = {
    ev.Begin: JobMachine._begin,
    ev.BeginWithoutGraph: JobMachine._begin_without_graph,
    ev.GraphRead: JobMachine._graph_read,
    ev.GraphStillAway: JobMachine._graph_still_away,
    ev.GraphDamaged: JobMachine._graph_damaged,
    ev.PlaceGranted: JobMachine._place_granted,
    ev.PlaceExplained: JobMachine._place_explained,
    ev.AttemptRecorded: JobMachine._attempt_recorded,
    ev.AttemptUnknown: JobMachine._attempt_unknown,
    ev.AttemptSeen: JobMachine._attempt_seen,
    ev.ResultRecorded: JobMachine._result_recorded,
    ev.CancelRequested: JobMachine._cancel,
    ev.MoveDriver: JobMachine._move_driver,
    ev.StopRecorded: JobMachine._stop_recorded,
    ev.Tick: JobMachine._tick,
    ev.TaskManagerLost: JobMachine._task_manager_lost,
    ev.PlaceBlocked: JobMachine._place_blocked,
    ev.StartAccepted: JobMachine._start_accepted,
    ev.StartRefused: JobMachine._start_refused,
    ev.DriverListed: JobMachine._driver_listed,
    ev.DriverExited: JobMachine._driver_exited,
    ev.DriverVanished: JobMachine._driver_vanished,
    ev.DriverNotAtHome: JobMachine._driver_not_at_home,
    ev.JobMasterRegistered: JobMachine._jobmaster_registered,
    ev.JobMasterHeard: JobMachine._jobmaster_heard,
    ev.ExceptionsNoted: JobMachine._exceptions_noted,
    ev.OutcomeReported: JobMachine._outcome_reported,
}
