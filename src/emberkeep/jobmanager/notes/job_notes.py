"""Notices what users want to read about a job: compares the job's state before and after each event. Pure.

A new leader finds jobs as they are. What an earlier leader has noted must not be noted again: the states through which
a job passes while its driver is found, the executors that run, the exceptions that the driver repeats.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from emberkeep.chronicle.occurrence import CANCELED, Occurrence, What
from emberkeep.jobmanager.notes.executor_notes import executors_changed, registered
from emberkeep.jobmanager.notes.flow_notes import FlowNotes
from emberkeep.jobmanager.notes.reclaim_notes import ReclaimNotes
from emberkeep.jobmanager.notes.scaling_notes import ScalingNotes
from emberkeep.jobs import events as ev
from emberkeep.jobs.model import AttemptRecord, DriverHome, ExceptionEntry, FailureKind, JobStatus
from emberkeep.jobs.state import JobState
from emberkeep.jobs.traces.recovery_trace import Milestone, RecoveryTrace
from emberkeep.protocol.messages.job_master_reports import JobMasterStatus

_RESULTS = frozenset({Milestone.BATCH_COMMITTED, Milestone.STAGE_COMPLETED})


class JobNotes:
    """What was noted of one job, so that nothing is noted twice.

    ``recovered``: the attempt that an earlier leader has begun; 0 if there is none. ``since_ms``: the leader's start.
    """

    def __init__(self, job_id: str, recovered: int, since_ms: int) -> None:
        self._job_id = job_id
        self._note = partial(Occurrence, job_id=job_id)
        self._recovered = recovered
        self._since_ms = since_ms
        self._status: JobStatus | None = None
        self._attempt: AttemptRecord | None = None
        self._wait = ""
        self._traced = 0  # attempt whose first result is noted
        self._trace: RecoveryTrace | None = None
        self._exceptions: tuple[ExceptionEntry, ...] = ()
        self._reported = 0  # attempt whose executors are known
        self._executors: dict[str, str] = {}  # registered ones, and where they run
        self._lacks = False
        self._scaling = ScalingNotes(job_id, recovered)
        self._reclaims = ReclaimNotes(job_id, recovered)
        self._flows = FlowNotes(job_id, since_ms)

    def changed(self, state: JobState, event: ev.Event) -> Iterator[Occurrence]:
        """Yield what the job's event adds to the chronicle. Call this after each event."""
        if isinstance(event, ev.PlaceExplained):
            yield from self._waits(state, event.text)
        elif isinstance(event, ev.ExceptionsNoted):
            yield from self._survived(event)
        elif isinstance(event, ev.MoveDriver):
            yield self._leaves(state.driver_home(), event.attempt)
        yield from self._attempts(state)
        if state.status is not self._status:
            before, self._status = self._status, state.status
            yield from self._entered(state, before)
        trace = state.history.newest_trace()
        if trace is not None and trace is not self._trace:
            self._trace = trace
            yield from self._traces(trace)

    def _leaves(self, home: DriverHome | None, attempt: int) -> Occurrence:
        return self._note(
            what=What.MOVING,
            message="the driver leaves " + ("its node" if home is None else f"node {home.node_id}"),
            attempt=attempt,
            task_manager="" if home is None else home.task_manager,
            node="" if home is None else home.node_id,
        )

    def _waits(self, state: JobState, text: str) -> Iterator[Occurrence]:
        if text and text != self._wait:
            yield self._note(what=What.WAITING, message=f"the job waits: {text}", attempt=state.attempt)
        self._wait = text

    def _survived(self, event: ev.ExceptionsNoted) -> Iterator[Occurrence]:
        before, self._exceptions = self._exceptions, event.entries
        for entry in event.entries:
            if entry not in before and entry.timestamp_ms >= self._since_ms:
                yield self._note(
                    what=What.EXCEPTION,
                    message=f"{entry.kind}: {entry.message}",
                    attempt=entry.attempt,
                    task_manager=entry.task_manager,
                    details={"kind": entry.kind},
                )

    # --- attempts and states ------------------------------------------------------------------------------------------

    def _attempts(self, state: JobState) -> Iterator[Occurrence]:
        newest, before = state.history.newest_attempt(), self._attempt
        if newest is None or newest is before:
            return
        self._attempt = newest
        if (before is None or before.attempt != newest.attempt) and newest.attempt > self._recovered:
            yield self._started(state, newest)
        ended = before is not None and before.attempt == newest.attempt and before.ended_ms is not None
        if newest.ended_ms is not None and newest.outcome is not None and not ended:
            outcome = newest.outcome
            cause, how = "" if outcome.kind is None else outcome.kind.value, _how(outcome.kind)
            if cause and state.verdict_is(JobStatus.CANCELED):
                cause, how = CANCELED, "was cancelled"
            yield self._note(
                what=What.ATTEMPT_ENDED,
                message=f"attempt {newest.attempt} {how}" + (f": {outcome.message}" if outcome.message else ""),
                attempt=newest.attempt,
                task_manager=newest.task_manager,
                details={"cause": cause, "exit-code": str(outcome.exit_code), "reason": outcome.message},
            )

    def _started(self, state: JobState, newest: AttemptRecord) -> Occurrence:
        home = state.driver_home()
        return self._note(
            what=What.ATTEMPT_STARTED,
            message=f"attempt {newest.attempt} starts on task manager {newest.task_manager}",
            attempt=newest.attempt,
            task_manager=newest.task_manager,
            node="" if home is None else home.node_id,
        )

    def _entered(self, state: JobState, before: JobStatus | None) -> Iterator[Occurrence]:
        status, attempt = state.status, state.attempt
        is_found = self._recovered > 0 and attempt == self._recovered
        if is_found and status in (JobStatus.CREATED, JobStatus.INITIALIZING):
            return
        if is_found and status is JobStatus.RUNNING and before is not JobStatus.RESTARTING:
            home = "" if self._attempt is None else self._attempt.task_manager
            yield self._note(
                what=What.REATTACHED,
                message=f"the leader has found attempt {attempt} running, and continues it",
                attempt=attempt,
                task_manager=home,
            )
            return
        if before is None and status is JobStatus.CREATED:
            return  # ``submitted`` says it; a recovered job without an attempt was submitted before
        reason = self._reason(state)
        yield self._note(
            what=What.STATUS,
            message=f"{status.value}: {reason}" if reason else status.value,
            attempt=attempt,
            details={"status": status.value, **({"reason": reason} if reason else {})},
        )

    def _reason(self, state: JobState) -> str:
        if state.status in (JobStatus.FAILED, JobStatus.FAILING) and state.verdict is not None:
            return state.verdict.root_cause
        newest = self._attempt
        if state.status is JobStatus.RESTARTING and newest is not None and newest.outcome is not None:
            return newest.outcome.message or _how(newest.outcome.kind)
        return ""

    def _traces(self, trace: RecoveryTrace) -> Iterator[Occurrence]:
        """Yield how long a start took, once its first result is there."""
        if trace.attempt <= self._traced:
            return
        reached = next((each for each in trace.milestones if each.milestone in _RESULTS), None)
        if reached is None:
            return
        self._traced = trace.attempt
        if trace.began_ms + reached.seconds * 1000 < self._since_ms:
            return  # an earlier leader has noted it
        cause = "" if trace.cause is None else trace.cause.value
        yield self._note(
            what=What.FIRST_RESULT,
            message=f"attempt {trace.attempt} has its first result, {reached.seconds:.1f} s after "
            + ("the submission" if cause == "submission" else "the loss of the previous attempt"),
            attempt=trace.attempt,
            details={
                "seconds": f"{reached.seconds:.3f}",
                "began-ms": str(trace.began_ms),
                "cause": cause,
                "start": "" if trace.start is None else trace.start.value,
            },
        )

    # --- what the JobMaster reports -----------------------------------------------------------------------------------

    def reported(self, attempt: int, report: JobMasterStatus, now_ms: int) -> Iterator[Occurrence]:
        """Yield what a JobMaster's report adds to the chronicle. ``now_ms``: Unix milliseconds."""
        yield from self._reclaims.reported(attempt, report)
        yield from self._flows.reported(attempt, report)
        if report.scaling is not None:
            yield from self._scaling.reported(attempt, report, report.scaling, now_ms)
            return
        now = registered(report)
        before, is_first = self._executors, attempt != self._reported
        self._executors, self._reported = now, attempt
        wanted = report.executors_wanted
        lacks = bool(report.waiting) or (wanted > 0 and not now)
        if is_first:
            before = now if attempt == self._recovered else {}
            self._lacks = False
        for what, names, places in (
            (What.EXECUTORS_REGISTERED, now.keys() - before.keys(), now),
            (What.EXECUTORS_ENDED, before.keys() - now.keys(), before),
        ):
            if names:
                changed = {name: places[name] for name in names}
                yield executors_changed(self._job_id, what, changed, attempt=attempt, present=len(now), wanted=wanted)
        if lacks and not self._lacks:
            missing = report.waiting or f"none of {wanted} executors has registered"
            yield self._note(what=What.SLOTS_MISSING, message=f"the attempt waits: {missing}", attempt=attempt)
        elif self._lacks and not lacks:
            yield self._note(
                what=What.SLOTS_COMPLETE,
                message=f"the attempt has {len(now)} of {wanted} executors, and continues",
                attempt=attempt,
            )
        self._lacks = lacks


def _how(kind: FailureKind | None) -> str:
    """Return in words how an attempt has ended."""
    if kind is None:
        return "has ended"
    return {
        FailureKind.LOST: "was lost",
        FailureKind.SCRIPT: "failed in the script",
        FailureKind.SETUP: "could not be started",
        FailureKind.RESOURCES: "had no executors",
        FailureKind.MOVED: "has moved",
    }[kind]
