"""Begins a job's next attempt, and adopts newer attempts that another leader has begun.

Usually the newest attempt is the newest one in the job store. If the store was restored from an older copy, task
managers and drivers know of newer attempts. Such an attempt is adopted: its driver may be alive, and continues under
its number. A leader that has read a job from the store waits a while for reports before it writes the job's next
number, so that no two drivers run under one number.
"""

from __future__ import annotations

from emberkeep.jobs import events as ev
from emberkeep.jobs.attempts.driver_stop import DriverStop
from emberkeep.jobs.attempts.end import AttemptEnd
from emberkeep.jobs.driver import Driver
from emberkeep.jobs.job_end import JobEnd
from emberkeep.jobs.model import AttemptOutcome, FailureKind, JobStatus
from emberkeep.jobs.state import JobState
from emberkeep.jobs.traces.moment import Moment
from emberkeep.jobs.traces.recovery_trace import Milestone
from emberkeep.jobs.traces.trace_recorder import TraceRecorder
from emberkeep.jobs.transitions import Phase

_ADOPTS = frozenset(
    {
        Phase.WITHOUT_GRAPH,
        Phase.PLACING,
        Phase.RECORDING_ATTEMPT,
        Phase.ADOPTING,
        Phase.STARTING,
        Phase.RUNNING,
        Phase.ENDING,
        Phase.BACKING_OFF,
    }
)


class NewestAttempt:
    """The place, the number and the driver of the newest attempt. Part of the JobMachine."""

    def __init__(self, job: JobState, stop: DriverStop, job_end: JobEnd, attempt_end: AttemptEnd) -> None:
        self._job = job
        self._stop = stop
        self._job_end = job_end
        self._attempt_end = attempt_end

    def request_place(self, now: Moment) -> None:
        """Request a driver place for the next attempt, or wait first for reports of newer attempts."""
        job = self._job
        job.driver = None
        if self._listens(now):
            return
        job.phase = Phase.PLACING
        job.next_trace = job.next_trace or TraceRecorder(now)
        job.next_trace.note_again(Milestone.PLACE_REQUESTED, now)
        job.waited_for_blocked = False
        job.explain_at = now.at + job.policy.place_timeout if job.policy.place_timeout else None
        job.effects.append(ev.RequestPlace())

    def place_granted(self, event: ev.PlaceGranted, now: Moment) -> None:
        self._job.place, self._job.only_node = event.place, event.only_node
        if self._job.next_trace is not None:
            self._job.next_trace.note_again(Milestone.PLACED, now)
        self._record_next()

    def place_explained(self, event: ev.PlaceExplained, now: Moment) -> None:
        job = self._job
        if event.blocked or job.waited_for_blocked:  # once no closed node can help, the timeout starts over
            job.waited_for_blocked = event.blocked
            job.explain_at = now.at + job.policy.place_timeout
            return
        message = f"after {job.policy.place_timeout:g} s there is {event.text}"
        job.effects.append(ev.WithdrawPlace())
        self._job_end.fail(AttemptOutcome(exit_code=1, kind=FailureKind.RESOURCES, message=message), now)

    def attempt_unknown(self, event: ev.AttemptUnknown, now: Moment) -> None:
        if self._job.phase is Phase.ADOPTING:
            self.write_adopted()
        elif self._job.verdict is None:
            self._record_next()
        else:
            self._job_end.record_result(now)

    def _adopted(self, now: Moment) -> None:
        job = self._job
        driver = job.live()
        if job.recorded < job.attempt:
            self.write_adopted()
            return
        if job.verdict is None:
            self.follow_driver(now)
        else:
            job.phase = Phase.ENDING
            self._stop.begin(driver, job.policy.grace, now)
        self._attempt_end.judge(now)

    def attempt_recorded(self, event: ev.AttemptRecorded, now: Moment) -> None:
        job = self._job
        place, job.place = job.place, None
        job.recorded = job.writing
        if job.phase is Phase.ADOPTING:
            self._adopted(now)
        elif job.verdict is not None:
            self._job_end.record_result(now)
        elif place is None:  # its task manager was lost or blocked in the meantime
            self.request_place(now)
        else:
            job.driver = Driver(attempt=job.attempt, since=now.at, heard_at=now.at, place=place, ordered=True)
            job.driver.order_again_at = now.at + job.policy.repeat
            job.history.attempt_started(job.attempt, place.task_manager, now.ms)
            self._begin_trace(now).note(Milestone.ORDERED, now)
            job.phase = Phase.STARTING
            job.enter(JobStatus.INITIALIZING, now)
            job.effects.append(ev.StartDriver(job.attempt, place))

    def _begin_trace(self, now: Moment) -> TraceRecorder:
        """Make the trace that was begun for the next attempt that of the newest one; return it."""
        job = self._job
        recorder, job.next_trace = job.next_trace or TraceRecorder(now), None
        recorder.attempt = job.attempt
        job.history.trace_begun(recorder)
        return recorder

    def _record_next(self) -> None:
        job = self._job
        job.attempt = max(job.attempt, job.seen) + 1
        job.writing = job.attempt
        job.phase = Phase.RECORDING_ATTEMPT
        job.effects.append(ev.RecordAttempt(job.attempt))

    def _listens(self, now: Moment) -> bool:
        """Back off while task managers may still report newer attempts. Return True if the job must wait for them."""
        job = self._job
        if now.at >= job.listens_until:
            return False
        job.phase, job.restart_at = Phase.BACKING_OFF, job.listens_until
        return True

    def await_driver(self, now: Moment) -> None:
        """Wait for the driver of the newest attempt, which may be alive."""
        job = self._job
        job.driver = Driver(attempt=job.attempt, since=now.at, heard_at=now.at, place=None, home=job.home)
        job.history.attempt_started(job.attempt, job.home.task_manager if job.home else None, now.ms)
        job.next_trace = None
        self._begin_trace(now)
        job.enter(JobStatus.INITIALIZING, now)

    def follow_driver(self, now: Moment) -> None:
        """Enter the phase in which the newest attempt's driver runs or is awaited."""
        job = self._job
        job.phase = Phase.RUNNING if job.live().is_registered else Phase.STARTING
        if job.stopped:
            job.script_until = now.at + job.policy.script_timeout

    def attempt_seen(self, event: ev.AttemptSeen, now: Moment) -> None:
        job = self._job
        is_news = job.is_news(event.number)
        job.seen = max(job.seen, event.number)
        if is_news and job.phase in _ADOPTS and job.verdict is None:
            self._adopt(event.number, now)

    def _adopt(self, number: int, now: Moment) -> None:
        job = self._job
        if job.driver is not None and not job.driver.is_gone:
            outcome = AttemptOutcome(exit_code=1, kind=FailureKind.LOST, message=f"attempt {number} has followed")
            job.history.attempt_ended(job.driver.attempt, outcome, now.ms)
            if job.phase is not Phase.WITHOUT_GRAPH:
                job.effects.append(ev.AttemptOver(job.driver.attempt))
        if job.phase in (Phase.PLACING, Phase.RECORDING_ATTEMPT):
            job.effects.append(ev.WithdrawPlace())
        job.place = job.home = job.end_to_judge = None
        job.explain_at = job.restart_at = job.script_until = None
        job.attempt = number
        self.await_driver(now)
        if job.phase is Phase.WITHOUT_GRAPH:
            return
        if job.phase in (Phase.RECORDING_ATTEMPT, Phase.ADOPTING):
            job.phase = Phase.ADOPTING  # adopted as soon as the write that is under way has finished
        else:
            self.write_adopted()

    def write_adopted(self) -> None:
        job = self._job
        job.phase = Phase.ADOPTING
        job.writing = job.attempt
        job.effects.append(ev.AdoptAttempt(job.attempt))
