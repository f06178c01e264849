"""Decides what follows the end of an attempt: a restart, a restart elsewhere, or the end of the job.

An attempt's end is reported, proven by a task manager, or presumed from silence. The first report decides; it may
replace a presumed end. Nothing follows before the driver is proven gone.
"""

from __future__ import annotations

import msgspec

from emberkeep.jobs import events as ev
from emberkeep.jobs.attempts.driver_stop import DriverStop
from emberkeep.jobs.driver import DriverEnd
from emberkeep.jobs.job_end import JobEnd
from emberkeep.jobs.model import AttemptOutcome, FailureKind, JobStatus
from emberkeep.jobs.restart import GiveUp
from emberkeep.jobs.state import STOPPED, JobState, Verdict
from emberkeep.jobs.traces.moment import Moment
from emberkeep.jobs.traces.recovery_trace import Milestone, RecoveryCause
from emberkeep.jobs.traces.trace_recorder import TraceRecorder
from emberkeep.jobs.transitions import Phase


class AttemptEnd:
    """Decides what follows an attempt's end. Part of the JobMachine."""

    def __init__(self, job: JobState, stop: DriverStop, job_end: JobEnd) -> None:
        self._job = job
        self._stop = stop
        self._job_end = job_end

    def judge(self, now: Moment) -> None:
        """Decide what follows a driver's end that was reported while nothing could be decided."""
        end, self._job.end_to_judge = self._job.end_to_judge, None
        if end is not None:
            self.driver_gone(end, now)

    def ends_as_judged(self, now: Moment) -> bool:
        """Judge a driver's end that was reported while the job graph was unreadable.

        The graph says whether and how to restart the job. Return True if the script has succeeded; in that case the job
        ends as FINISHED.
        """
        job = self._job
        end, job.end_to_judge = job.end_to_judge, None
        if end is None:
            return False
        driver = job.live()
        driver.end = DriverEnd.GONE
        job.effects.append(ev.AttemptOver(driver.attempt))
        if end.kind is not None:
            job.history.attempt_ended(job.attempt, end, now.ms)
            return False
        self.ended(end, now)
        return True

    def driver_gone(self, outcome: AttemptOutcome, now: Moment) -> None:
        """Note that the driver is proven gone. Decide what follows, unless the driver's report has decided it."""
        job, outcome = self._job, outcome.shortened()
        driver = job.live()
        if job.phase in (Phase.WITHOUT_GRAPH, Phase.ADOPTING):
            if job.end_to_judge is None or outcome.kind is None:
                job.end_to_judge = outcome
            return
        driver.end = DriverEnd.GONE
        job.effects.append(ev.AttemptOver(driver.attempt))
        if job.phase is Phase.ENDED:
            self._job_end.forget()
        elif job.phase is not Phase.RECORDING_RESULT:
            if driver.reported_end:
                self._go_on(now)
            else:
                self.ended(outcome, now)

    def ended(self, outcome: AttemptOutcome, now: Moment) -> None:
        """Decide what follows the attempt's end, which is reported or presumed from silence.

        In ENDING, a decision exists already. A cancellation stays. Any other decision is replaced only by an outcome
        that allows no further attempt, such as the end of the script itself.
        """
        job, outcome = self._job, outcome.shortened()
        if outcome.kind is FailureKind.MOVED or (job.live().moving and outcome.kind is not None):
            outcome = self.moved()
        elif outcome.kind is FailureKind.LOST and job.live().stuck:
            outcome = msgspec.structs.replace(outcome, message=job.live().stuck)
        if job.phase is Phase.ENDING and (job.verdict_is(JobStatus.CANCELED) or self._continues(outcome)):
            job.history.attempt_ended(job.attempt, outcome, now.ms)
        elif outcome.kind is None:
            job.history.attempt_ended(job.attempt, outcome, now.ms)
            job.restart_at = None
            job.verdict = Verdict(JobStatus.FINISHED, outcome.exit_code, "")
        elif job.stopped and (outcome.kind is not FailureKind.SCRIPT or job.live().stop_at is not None):
            # The savepoint completes the job, so it does not matter how the process ended.
            job.history.attempt_ended(job.attempt, outcome, now.ms)
            job.verdict = STOPPED
        elif outcome.kind is FailureKind.MOVED:
            self.restart_elsewhere(outcome, now)
        else:
            self._failed(outcome, now)
        self._go_on(now)

    def restart_elsewhere(self, outcome: AttemptOutcome, now: Moment) -> None:
        """Restart at once, without asking the restart strategy, because a move is not a failure."""
        job = self._job
        job.history.attempt_ended(job.attempt, outcome, now.ms)
        self._restart_after(0.0, outcome, now)
        job.enter(JobStatus.RESTARTING, now)

    def moved(self) -> AttemptOutcome:
        """Return the outcome of an attempt whose driver moves to another node."""
        home = self._job.live().stands_at
        where = "a node that is not known" if home is None else f"node {home.node_id or home.task_manager}"
        return AttemptOutcome(exit_code=0, kind=FailureKind.MOVED, message=f"moved from {where}")

    def _failed(self, outcome: AttemptOutcome, now: Moment) -> None:
        job = self._job
        job.history.attempt_failed(job.attempt, outcome, now.ms)
        job.restart_at = None
        root_cause = outcome.message or f"the driver ended with exit code {outcome.exit_code}"
        if job.stopped:
            root_cause = f"{root_cause} (after the job was stopped: its savepoint is complete)"
        hopeless = self._count_start(outcome)
        if self._restarts(outcome):
            decision = job.strategy.failed(now.at, now.chance)
            if not isinstance(decision, GiveUp) and not hopeless:
                self._restart_after(decision.delay, outcome, now)
                job.enter(JobStatus.RESTARTING, now)
                return
            reason = decision.reason if isinstance(decision, GiveUp) else hopeless
            root_cause = f"{root_cause} (not restarted: {reason})"
        job.verdict = Verdict(JobStatus.FAILED, outcome.exit_code, root_cause)
        job.enter(JobStatus.FAILING, now)

    def _restart_after(self, delay: float, outcome: AttemptOutcome, now: Moment) -> None:
        job = self._job
        job.restart_at = now.at + delay
        job.next_trace = TraceRecorder(now, cause=RecoveryCause.of(outcome.kind))
        if job.live().fell_silent:
            job.next_trace.last_contact(job.live().heard_at)
        job.next_trace.note(Milestone.DETECTED, now)
        job.next_trace.decided(delay, now)

    def _count_start(self, outcome: AttemptOutcome) -> str:
        """Count this attempt if it could not be started. Return why another attempt is pointless; "" if it is not."""
        job = self._job
        driver = job.live()
        if not outcome.lasting or (driver.is_registered and outcome.kind is not FailureKind.SETUP):
            job.starts.ended_otherwise()
            return ""
        home = driver.stands_at
        node = "" if home is None else home.node_id or home.task_manager
        last = outcome.traceback.rstrip().rpartition("\n")[2]
        return job.starts.failed(last or outcome.message, node, only_node=job.only_node)

    def _continues(self, outcome: AttemptOutcome) -> bool:
        """True if another attempt may follow such an end."""
        return outcome.kind is FailureKind.MOVED or self._restarts(outcome)

    def _restarts(self, outcome: AttemptOutcome) -> bool:
        """True if the restart strategy decides about a restart after such an end."""
        if self._job.stopped:
            return False
        if outcome.kind is FailureKind.SCRIPT:
            return self._job.policy.restarts_script_failures and not outcome.lasting
        return outcome.kind in (FailureKind.LOST, FailureKind.SETUP)

    def _go_on(self, now: Moment) -> None:
        """Take the next step towards the restart or the verdict, or wait until the driver is gone."""
        job = self._job
        driver = job.driver
        alive = driver is not None and not driver.is_gone
        if (
            driver is not None
            and alive
            and not (driver.reported_end and job.verdict and not job.verdict_is(JobStatus.CANCELED))
        ):
            job.phase = Phase.ENDING
            self._stop.begin(driver, job.policy.grace if driver.reported_end else 0.0, now)
        elif job.verdict is not None:
            self._job_end.record_result(now)
        else:
            job.phase = Phase.BACKING_OFF
            if job.next_trace is not None:
                job.next_trace.note(Milestone.GONE, now)
