"""Records the recovery trace of an attempt in the JobManager.

The JobManager and the driver see different milestones, and their clocks differ. Each measures with its own monotonic
clock. The driver reports seconds after its zero, the moment when its JobMaster began, and how old the zero is. Messages
take time, so a report shows the zero too late by that time: the earliest zero that any report shows is the best
estimate.

The driver repeats what the JobManager has seen, so that the next leader learns it.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from typing import TypeVar

from emberkeep.jobs.traces.moment import Moment
from emberkeep.jobs.traces.recovery_trace import Milestone, Reached, RecoveryCause, RecoveryTrace, TraceReport
from emberkeep.slots.model import ProcessStart

TEXT_LIMIT = 200  # characters of ``why_cold``
LONGEST = 1e9  # seconds; a driver reports no larger number

_ORDER = {milestone: number for number, milestone in enumerate(Milestone)}
EnumT = TypeVar("EnumT", bound=enum.Enum)


class TraceRecorder:
    """The trace of one attempt, while it grows.

    ``attempt`` is 0 until the attempt has a number. Times are monotonic seconds of this JobManager.
    """

    def __init__(self, now: Moment, *, attempt: int = 0, cause: RecoveryCause | None = None) -> None:
        self.attempt = attempt
        self._cause = cause
        self._delay = 0.0
        self._start: ProcessStart | None = None
        self._why_cold = ""
        self._seen: dict[Milestone, float] = {}  # by this JobManager
        self._reported: dict[Milestone, float] = {}  # by the driver: seconds after its zero
        self._zero: float | None = None  # the driver's zero
        self._wall_ms = now.ms - now.at * 1000  # what turns monotonic seconds into Unix milliseconds
        self._trace: RecoveryTrace | None = None  # what ``trace`` returns, until something changes

    def note(self, milestone: Milestone, now: Moment) -> None:
        """Note that the attempt reaches a milestone now, unless it is noted already."""
        if milestone not in self._seen:
            self._note_at(milestone, now.at)

    def note_again(self, milestone: Milestone, now: Moment) -> None:
        """Note a milestone that may be reached repeatedly: the last time counts."""
        self._note_at(milestone, now.at)

    def submitted(self, submitted_ms: int, now: Moment) -> None:
        """Note when this JobManager received the job."""
        self._note_at(Milestone.SUBMITTED, now.at - max(0, now.ms - submitted_ms) / 1000)

    def last_contact(self, at: float) -> None:
        """Note when the last message of the previous driver, which fell silent, arrived."""
        self._note_at(Milestone.LAST_CONTACT, at)

    def decided(self, delay: float, now: Moment) -> None:
        """Note that the restart is decided. ``delay``: seconds until then."""
        self._delay = delay
        self.note(Milestone.DECIDED, now)

    def process_started(self, start: ProcessStart | None, why_cold: str, now: Moment) -> None:
        """Note that the task manager has the driver's process. ``start``: None if it does not say how it got it."""
        self.note(Milestone.PROCESS_STARTED, now)
        if start is not None:
            self._start, self._why_cold, self._trace = start, why_cold[:TEXT_LIMIT], None

    def take(self, report: TraceReport, now: Moment) -> None:
        """Take over a driver's report. This JobManager's own knowledge has precedence over what the driver repeats."""
        if not _is_usable(report.age):
            return
        zero = now.at - report.age
        self._zero = zero if self._zero is None else min(self._zero, zero)
        self._reported = _known_milestones(report.milestones)
        self._cause = self._cause or _member(RecoveryCause, report.cause)
        if self._start is None:
            self._start, self._why_cold = _member(ProcessStart, report.start), report.why_cold[:TEXT_LIMIT]
        if Milestone.DECIDED not in self._seen and _is_usable(report.delay):
            self._delay = max(0.0, report.delay)
        self._trace = None

    def answer(self, report: TraceReport) -> TraceReport | None:
        """Return what a driver that has sent ``report`` must add to its reports; None if it lacks nothing."""
        zero = self._zero
        lacks = {each: at for each, at in self._seen.items() if each.value not in report.milestones}
        start = "" if self._start is None else self._start.value
        if zero is None or (not lacks and start == report.start):
            return None
        return TraceReport(
            milestones={milestone.value: at - zero for milestone, at in lacks.items()},
            cause="" if self._cause is None else self._cause.value,
            delay=self._delay,
            start=start,
            why_cold=self._why_cold,
        )

    def trace(self) -> RecoveryTrace:
        """Return the trace as known now: the same object until something changes."""
        if self._trace is None:
            self._trace = self._made()
        return self._trace

    def _note_at(self, milestone: Milestone, at: float) -> None:
        self._seen[milestone] = at
        self._trace = None

    def _made(self) -> RecoveryTrace:
        zero = self._zero
        reported = {} if zero is None else {each: zero + after for each, after in self._reported.items()}
        times = sorted((reported | self._seen).items(), key=lambda item: (item[1], _ORDER[item[0]]))
        first = times[0][1] if times else 0.0
        return RecoveryTrace(
            attempt=self.attempt,
            began_ms=round(self._wall_ms + first * 1000),
            milestones=tuple(Reached(milestone, at - first) for milestone, at in times),
            cause=self._cause,
            delay=self._delay,
            start=self._start,
            why_cold=self._why_cold,
        )


def _known_milestones(named: Mapping[str, float]) -> dict[Milestone, float]:
    """Return the milestones that this release knows. A driver's numbers may be anything."""
    known = {_member(Milestone, name): after for name, after in named.items() if _is_usable(after)}
    return {milestone: after for milestone, after in known.items() if milestone is not None}


def _member(kind: type[EnumT], value: str) -> EnumT | None:
    return next((each for each in kind if each.value == value), None)


def _is_usable(seconds: float) -> bool:
    return math.isfinite(seconds) and abs(seconds) <= LONGEST
