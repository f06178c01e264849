"""Read back what ``JobNotes`` has noted about a job's attempts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from emberkeep.base.ids import TaskManagerId
from emberkeep.chronicle.occurrence import CANCELED, Occurrence, What
from emberkeep.jobs.model import AttemptOutcome, AttemptRecord, FailureKind

TYPES: Final = frozenset({What.ATTEMPT_STARTED, What.ATTEMPT_ENDED})


def noted_attempts(occurrences: Iterable[Occurrence]) -> tuple[AttemptRecord, ...]:
    """Return the attempts whose start was noted, oldest first. ``occurrences``: of one job, in any order."""
    starts: dict[int, Occurrence] = {}
    ends: dict[int, Occurrence] = {}
    for each in sorted(occurrences, key=lambda each: each.id):
        if each.what == What.ATTEMPT_STARTED:
            starts.setdefault(each.attempt, each)
        elif each.what == What.ATTEMPT_ENDED:
            ends[each.attempt] = each
    return tuple(_record(starts[attempt], ends.get(attempt)) for attempt in sorted(starts))


def _record(start: Occurrence, end: Occurrence | None) -> AttemptRecord:
    return AttemptRecord(
        attempt=start.attempt,
        task_manager=TaskManagerId(start.task_manager),
        started_ms=start.time_ms,
        ended_ms=None if end is None else end.time_ms,
        outcome=None if end is None else _outcome(end),
    )


def _outcome(end: Occurrence) -> AttemptOutcome:
    cause, code = end.details.get("cause", ""), end.details.get("exit-code", "")
    reason = end.details.get("reason")
    kinds = {kind.value: kind for kind in FailureKind} | {CANCELED: FailureKind.LOST}
    return AttemptOutcome(
        exit_code=int(code) if code.removeprefix("-").isdecimal() and len(code) < 5 else 1,
        kind=kinds.get(cause),
        message=end.message.partition(": ")[2] if reason is None else reason,  # None: of an earlier release
    )
