"""What jobs leave behind in the storage goes in stages: it is marked, kept for a period, then removed.

A mark is durable, so that the period goes on under the next leader. It is taken back as soon as the job needs its data.
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
    """Sorts of data that a job has in the storage."""

    CHECKPOINTS = "checkpoints"
    BLOBS = "blobs"
    GRAPH = "graph"
    RESULT = "result"  # one that is too large for the job store's own record
    DAMAGED = "damaged"  # what is left of a job that failed because of it


class Mark(Compatible, frozen=True, kw_only=True):
    """Data that no job needs. ``ended``: its job is known to have ended; else the job store does not know the job."""

    job_id: JobId
    kind: Kind
    since_ms: int
    ended: bool


Item = tuple[Kind, JobId]


@dataclass(frozen=True)
class Periods:
    """For how long marked data is kept, in milliseconds."""

    unknown_ms: int
    ended_ms: int
    damaged_ms: int

    @property
    def warning_ms(self) -> int:
        """The last part of the period of what is damaged, for which people are warned."""
        return self.damaged_ms // 10

    def due_ms(self, mark: Mark) -> int:
        if mark.kind is Kind.DAMAGED:
            return mark.since_ms + self.warning_ms
        return mark.since_ms + (self.ended_ms if mark.ended else self.unknown_ms)


@dataclass(frozen=True)
class Stages:
    """``marks``: all that stand from now on. ``due``: those of them whose data is to be removed now."""

    marks: tuple[Mark, ...]
    due: tuple[Mark, ...]


def stages(
    found: Iterable[Item],
    known: Mapping[JobId, JobStatus],
    marks: Iterable[Mark],
    now_ms: int,
    periods: Periods,
) -> Stages:
    """Decide about what was ``found`` in the storage; ``known``: all jobs of the job store, asked after that.

    A mark from the future counts from now: the clock of the leader that made it was wrong.
    """
    standing = {(mark.kind, mark.job_id): mark for mark in marks}
    kept = []
    for kind, job_id in sorted(found, key=lambda item: (item[0].value, item[1])):
        status = known.get(job_id)
        if status is not None and not _is_over(status):
            continue
        mark = standing.get((kind, job_id))
        if mark is None or mark.since_ms > now_ms:
            mark = Mark(job_id=job_id, kind=kind, since_ms=now_ms, ended=status is not None)
        kept.append(mark)
    return Stages(tuple(kept), tuple(mark for mark in kept if periods.due_ms(mark) <= now_ms))


def begun_anew(marks: Iterable[Mark], now_ms: int) -> tuple[Mark, ...]:
    """Marks whose periods begin now, where the job store does not know the job: somebody may use its data still."""
    return tuple(mark if mark.ended else msgspec.structs.replace(mark, since_ms=now_ms) for mark in marks)


def _is_over(status: JobStatus) -> bool:
    """Whether nobody can want the data of such a job; those of a failed one are for somebody to look at."""
    return status in (JobStatus.FINISHED, JobStatus.CANCELED)
