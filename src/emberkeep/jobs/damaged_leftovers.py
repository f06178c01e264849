"""Data of jobs that failed because their records were damaged: kept for an operator to inspect, then removed.

The data is marked for the last tenth of its period, and operators are warned as long as the mark exists. No data is
removed without a mark. If the cluster was down at the end of a period, it sets the mark late, and removes the data a
tenth of a period after that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from emberkeep.base.ids import JobId
from emberkeep.jobs.leftovers import Kind, Mark, Periods, Stages

_DAY_MS = 86_400_000


class DamagedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A damaged record that a job store has kept since ``since_ms``. ``places``: where the job's remaining data is."""

    job_id: JobId
    since_ms: int
    places: tuple[str, ...]


def stages_of_damaged(kept: Iterable[DamagedJob], marks: Iterable[Mark], now_ms: int, periods: Periods) -> Stages:
    """Decide which of the ``kept`` jobs are marked and which are removed now.

    A mark is removed if the period has become longer. A mark with a time in the future is treated as made now:
    the clock of the leader that made it was wrong.
    """
    standing = {mark.job_id: mark for mark in marks if mark.kind is Kind.DAMAGED}
    decided = []
    for job in sorted(kept, key=lambda job: job.job_id):
        if now_ms < job.since_ms + periods.damaged_ms - periods.warning_ms:
            continue
        mark = standing.get(job.job_id)
        if mark is None or mark.since_ms > now_ms:
            mark = Mark(job_id=job.job_id, kind=Kind.DAMAGED, since_ms=now_ms, ended=True)
        decided.append(mark)
    return Stages(tuple(decided), tuple(mark for mark in decided if periods.due_ms(mark) <= now_ms))


def warnings(marks: Iterable[Mark], warned: Mapping[JobId, int], now_ms: int) -> tuple[Mark, ...]:
    """Return the marks to warn about now. ``warned``: Unix milliseconds of each job's last warning."""
    return tuple(mark for mark in marks if mark.job_id not in warned or now_ms - warned[mark.job_id] >= _DAY_MS)
