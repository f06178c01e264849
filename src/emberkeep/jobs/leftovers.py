"""Decides when data that no job needs is removed from the shared storage: after a mark, and a waiting period.

A mark is durable, so that its period continues under the next leader. The mark is removed as soon as the job needs its
data.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from emberkeep.base.compatible import Compatible
from emberkeep.base.ids import JobId
from emberkeep.jobs.model import JobStatus


class Kind(enum.Enum):
    """Kinds of data that a job has in the storage."""

    CHECKPOINTS = "checkpoints"
    EVENT_LOGS = "event-logs"  # and the progress history; with the checkpoints, and kept for longer
    BLOBS = "blobs"
    GRAPH = "graph"
    RESULT = "result"  # a result that is too large for the job store's own record
    LOGS = "logs"  # with the job's events
    DAMAGED = "damaged"  # what remains of a job that failed because its records were damaged


class Mark(Compatible, frozen=True, kw_only=True):
    """A note that no job needs some data, since ``since_ms`` (Unix milliseconds).

    ``ended``: True if the job has ended, False if the job store has no record of the job.
    """

    job_id: JobId
    kind: Kind
    since_ms: int
    ended: bool


Item = tuple[Kind, JobId]


@dataclass(frozen=True)
class Periods:
    """Times for which data is kept, in milliseconds."""

    unknown_ms: int  # after the mark, if the job store does not know the job
    ended_ms: int  # after the mark, if the job has ended
    event_logs_ms: int  # the same, for event logs
    damaged_ms: int  # after the job failed because its records were damaged

    @property
    def warning_ms(self) -> int:
        """The last part of the period for damaged data, in which operators are warned."""
        return self.damaged_ms // 10

    def due_ms(self, mark: Mark) -> int:
        if mark.kind is Kind.DAMAGED:
            return mark.since_ms + self.warning_ms
        if not mark.ended:
            return mark.since_ms + self.unknown_ms
        return mark.since_ms + (self.event_logs_ms if mark.kind is Kind.EVENT_LOGS else self.ended_ms)


@dataclass(frozen=True)
class Stages:
    """A decision about data. ``marks``: all marks from now on. ``due``: the marks whose data must be removed now."""

    marks: tuple[Mark, ...]
    due: tuple[Mark, ...]


def stages(
    found: Iterable[Item],
    known: Mapping[JobId, JobStatus],
    marks: Iterable[Mark],
    now_ms: int,
    periods: Periods,
) -> Stages:
    """Decide what happens to the data ``found`` in the storage.

    ``known``: all jobs of the job store, read after the storage was listed. A mark with a time in the future is
    treated as made now: the clock of the leader that made it was wrong.
    """
    standing = {(mark.kind, mark.job_id): mark for mark in marks}
    kept = []
    for kind, job_id in sorted(found, key=lambda item: (item[0].value, item[1])):
        status = known.get(job_id)
        if status is not None and is_needed(kind, status):
            continue
        mark = standing.get((kind, job_id))
        if mark is None or mark.since_ms > now_ms:
            mark = Mark(job_id=job_id, kind=kind, since_ms=now_ms, ended=status is not None)
        kept.append(mark)
    return Stages(tuple(kept), tuple(mark for mark in kept if periods.due_ms(mark) <= now_ms))


def with_periods_restarted(marks: Iterable[Mark], now_ms: int) -> tuple[Mark, ...]:
    """Return the marks, with the periods of jobs that the job store does not know restarted at ``now_ms``.

    For use while another job store may have these jobs, so that their data may be in use.
    """
    return tuple(mark if mark.ended else msgspec.structs.replace(mark, since_ms=now_ms) for mark in marks)


def is_needed(kind: Kind, status: JobStatus) -> bool:
    """False if data of a job with this status is certainly no longer needed.

    Logs and events of a job are kept for as long as the job is known. All data of a failed job is kept for inspection.
    """
    return kind is Kind.LOGS or status not in (JobStatus.FINISHED, JobStatus.CANCELED)
