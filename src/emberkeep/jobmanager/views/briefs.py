"""What titles, counts and lists need of every job, in brief: it is made much faster than a JobView."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from emberkeep.base.ids import JobId
from emberkeep.jobs.model import AttemptRecord, JobStatus
from emberkeep.watchdog.model import Alarm


class JobBrief(msgspec.Struct, frozen=True, kw_only=True):
    """One job in brief. The fields are those of JobView, and:

    - ``failure``: why the job has failed, or else its newest attempt that has; "" if neither has.
    - ``has_savepoints``: it has made some, or was started from one.
    """

    job_id: JobId
    name: str
    status: JobStatus
    submitted_ms: int
    ended_ms: int | None
    entered_ms: int
    owner: str
    namespace: str
    has_known_owner: bool
    alarms: tuple[Alarm, ...]
    waiting: str
    waiting_since_ms: int
    unreadable: bool
    failure: str
    has_savepoints: bool


def newest_failure(attempts: Sequence[AttemptRecord]) -> tuple[int, str]:
    """Return the number of the newest attempt that has failed, and why; 0 and "" if none has."""
    for each in reversed(attempts):
        if each.outcome is not None and each.outcome.kind is not None:
            return each.attempt, each.outcome.message
    return 0, ""
