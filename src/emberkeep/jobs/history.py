"""A job's history as shown to users: attempts, their traces, exceptions, and when each status was entered. Bounded."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

from emberkeep.base.ids import TaskManagerId
from emberkeep.jobs.model import AttemptOutcome, AttemptRecord, ExceptionEntry, FailureKind, JobStatus
from emberkeep.jobs.traces.recovery_trace import RecoveryTrace
from emberkeep.jobs.traces.trace_recorder import TraceRecorder

ATTEMPTS_KEPT = 100
TRACES_KEPT = 10
EXCEPTIONS_KEPT = 32


class JobHistory:
    """The newest attempts, recovery traces and exceptions, oldest first."""

    def __init__(self) -> None:
        self.status_times_ms: dict[JobStatus, int] = {}
        self._attempts: deque[AttemptRecord] = deque(maxlen=ATTEMPTS_KEPT)
        self._exceptions: deque[ExceptionEntry] = deque(maxlen=EXCEPTIONS_KEPT)
        self._traces: deque[TraceRecorder] = deque(maxlen=TRACES_KEPT)

    def attempts(self) -> tuple[AttemptRecord, ...]:
        return tuple(self._attempts)

    def newest_attempt(self) -> AttemptRecord | None:
        """Return the newest attempt; the same object until it changes."""
        return self._attempts[-1] if self._attempts else None

    def exceptions(self) -> tuple[ExceptionEntry, ...]:
        return tuple(self._exceptions)

    def traces(self) -> tuple[RecoveryTrace, ...]:
        return tuple(recorder.trace() for recorder in self._traces)

    def newest_trace(self) -> RecoveryTrace | None:
        """Return the newest attempt's trace; the same object until it changes."""
        return self._traces[-1].trace() if self._traces else None

    def trace_of(self, attempt: int) -> TraceRecorder | None:
        """Return what records the trace of an attempt; None if its trace is not kept."""
        return next((recorder for recorder in self._traces if recorder.attempt == attempt), None)

    def trace_begun(self, recorder: TraceRecorder) -> None:
        """Keep the trace of a new attempt."""
        self._traces.append(recorder)

    def status_entered(self, status: JobStatus, ms: int) -> None:
        self.status_times_ms[status] = ms

    def attempt_started(self, attempt: int, task_manager: TaskManagerId | None, ms: int) -> None:
        """Add an attempt. ``task_manager`` is None if the attempt was recovered and its place is not known yet."""
        record = AttemptRecord(attempt=attempt, task_manager=task_manager or TaskManagerId(""), started_ms=ms)
        self._attempts.append(record)

    def noted_before(self, noted: Iterable[AttemptRecord]) -> None:
        """Add the attempts that earlier leaders have noted, and when and where the one that was taken over started."""
        if not self._attempts:
            return
        taken_over, *later = self._attempts
        before = []
        for each in noted:
            if each.attempt < taken_over.attempt:
                before.append(each)
            elif each.attempt == taken_over.attempt and each.started_ms < taken_over.started_ms:
                where = taken_over.task_manager or each.task_manager
                taken_over = msgspec.structs.replace(taken_over, started_ms=each.started_ms, task_manager=where)
        self._attempts = deque([*before, taken_over, *later], maxlen=ATTEMPTS_KEPT)
        failures = [_failure(each, each.outcome, each.ended_ms) for each in before if each.outcome and each.ended_ms]
        known = [*(each for each in failures if each.kind not in ("", FailureKind.MOVED.value)), *self._exceptions]
        self._exceptions = deque(known, maxlen=EXCEPTIONS_KEPT)

    def attempt_placed(self, attempt: int, task_manager: TaskManagerId) -> None:
        if self._is_newest(attempt) and self._attempts[-1].task_manager != task_manager:
            self._attempts[-1] = msgspec.structs.replace(self._attempts[-1], task_manager=task_manager)

    def attempt_ended(self, attempt: int, outcome: AttemptOutcome, ms: int) -> None:
        """Note how the newest attempt ended, in place of what was noted before. An older attempt is ignored."""
        if self._is_newest(attempt):
            self._attempts[-1] = msgspec.structs.replace(self._attempts[-1], ended_ms=ms, outcome=outcome)

    def attempt_failed(self, attempt: int, outcome: AttemptOutcome, ms: int) -> None:
        self.attempt_ended(attempt, outcome, ms)
        self.failed_unstarted(attempt, outcome, ms)

    def failed_unstarted(self, attempt: int, outcome: AttemptOutcome, ms: int) -> None:
        where = self._attempts[-1].task_manager if self._is_newest(attempt) else TaskManagerId("")
        record = AttemptRecord(attempt=attempt, task_manager=where, started_ms=ms)
        self._exceptions.append(_failure(record, outcome, ms))

    def note(self, entries: Iterable[ExceptionEntry]) -> None:
        """Add those entries that are new: a JobMaster repeats its newest entries in each heartbeat."""
        for entry in entries:
            if entry not in self._exceptions:
                self._exceptions.append(entry)

    def _is_newest(self, attempt: int) -> bool:
        return bool(self._attempts) and self._attempts[-1].attempt == attempt


def _failure(attempt: AttemptRecord, outcome: AttemptOutcome, ms: int) -> ExceptionEntry:
    outcome = outcome.shortened()
    return ExceptionEntry(
        timestamp_ms=ms,
        attempt=attempt.attempt,
        kind=outcome.kind.value if outcome.kind else "",
        message=outcome.message,
        traceback=outcome.traceback,
        task_manager=attempt.task_manager,
    )
