"""What is left of jobs that failed because their records were damaged is kept for somebody to look at, then removed.

It is marked for the last tenth of its period, and people are warned for as long as the mark stands. Nothing is removed
without that: a cluster that was down at the end of a period marks first, and waits for the tenth.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from emberkeep.base.ids import JobId
from emberkeep.jobs.leftovers import Kind, Mark, Periods, Stages

_DAY_MS = 86_400_000


class DamagedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A record that a job store keeps. ``since_ms``: since when. ``places``: where what is left of the job lies."""

    job_id: JobId
    since_ms: int
    places: tuple[str, ...]


def stages_of_damaged(kept: Iterable[DamagedJob], marks: Iterable[Mark], now_ms: int, periods: Periods) -> Stages:
    """Decide about what is ``kept``. A mark is taken back when the period was made longer; one from the future counts
    from now, since the clock of the leader that made it was wrong."""
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
    """Those of which people are to be warned now. ``warned``: when that was done last, in milliseconds."""
    return tuple(mark for mark in marks if mark.job_id not in warned or now_ms - warned[mark.job_id] >= _DAY_MS)
