"""Records which leaders and attempts a task manager has seen, so that it can refuse older ones.

It keeps the highest epoch in the job store that it follows. For each job it keeps the highest attempt and the highest
attempt that has ended. A request for an older epoch or attempt is refused. An attempt that has ended is refused even
while no newer one is known, so a late repetition of its start cannot bring it back.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from itertools import islice

from emberkeep.base.compatible import Compatible
from emberkeep.base.errors import Conflict
from emberkeep.base.ids import JobId

REMEMBERED_JOBS = 10_000  # if there are more, jobs that hold nothing here are forgotten, oldest first
_PUT_BACK = "if none does, its job store was put back from an older copy: see docs/storage.md"
KEPT_JOBS = 1_000  # jobs recorded for the next instance: the most recently seen


@dataclass
class _Fence:
    highest: int = 0
    over: int = 0  # this attempt and all older ones have ended


class FenceRecord(Compatible, frozen=True, kw_only=True):
    """The record of one job. ``over``: the newest attempt that has ended, as all older ones have; 0 if none has."""

    job_id: JobId
    highest: int
    over: int


class Fences:
    """The epoch, and each job's attempts, below which requests are refused. Owned by a SlotTable."""

    def __init__(self, remembered: int = REMEMBERED_JOBS) -> None:
        self.epoch = 0
        self.lineage = ""  # names the job store in which the epoch counts; "": unknown
        self._jobs: dict[JobId, _Fence] = {}  # least recently seen first
        self._remembered = remembered
        self._records: tuple[FenceRecord, ...] | None = ()  # None: rebuild at the next use

    def admit_epoch(self, epoch: int, lineage: str = "") -> None:
        """Raise Conflict if the JobManager is not the newest one, or leads with another job store.

        Epochs of different job stores cannot be compared. ``lineage`` is "" from a release that does not send it.
        """
        if lineage and self.lineage and lineage != self.lineage:
            raise Conflict(
                f"that JobManager leads with another job store ({lineage}); this task manager follows {self.lineage}"
            )
        if epoch < self.epoch:
            raise Conflict(f"epoch {epoch} is over: a JobManager with epoch {self.epoch} leads", hint=_PUT_BACK)
        self.epoch = epoch
        self.lineage = lineage or self.lineage

    def follow(self, epoch: int, lineage: str) -> None:
        """Follow the job store ``lineage``. If it differs from the previous one, take its ``epoch`` as the highest."""
        if lineage and lineage != self.lineage:
            self.epoch, self.lineage = epoch, lineage

    def check(self, job_id: JobId, attempt: int) -> None:
        """Raise Conflict for an attempt that has ended or has been superseded."""
        fence = self._jobs.get(job_id)
        if fence is None:
            return
        if attempt < fence.highest:
            raise Conflict(f"attempt {attempt} of job {job_id} has been superseded by attempt {fence.highest}")
        if attempt <= fence.over:
            raise Conflict(f"attempt {attempt} of job {job_id} is over")

    def see(self, job_id: JobId, attempt: int) -> None:
        """Note an attempt that a leader has named, so that older ones are refused from now on."""
        fence = self._touch(job_id)
        fence.highest = max(fence.highest, attempt)

    def end(self, job_id: JobId, attempt: int) -> None:
        """Note that this attempt and all older ones have ended."""
        fence = self._touch(job_id)
        fence.over = max(fence.over, attempt)
        fence.highest = max(fence.highest, attempt)

    def is_refused(self, job_id: JobId, attempt: int) -> bool:
        fence = self._jobs.get(job_id)
        return fence is not None and (attempt < fence.highest or attempt <= fence.over)

    def forget_idle(self, holding: Container[JobId]) -> None:
        """Keep memory bounded: forget the jobs beyond the limit, except those in ``holding``, oldest first."""
        surplus = len(self._jobs) - self._remembered
        if surplus > 0:
            for job_id in [known for known in self._jobs if known not in holding][:surplus]:
                del self._jobs[job_id]
                self._records = None

    def records(self) -> tuple[FenceRecord, ...]:
        """Return records of the most recently seen jobs, the newest last."""
        if self._records is None:
            newest = islice(reversed(self._jobs.items()), KEPT_JOBS)
            records = [FenceRecord(job_id=job_id, highest=f.highest, over=f.over) for job_id, f in newest]
            self._records = tuple(reversed(records))
        return self._records

    def recall(self, records: tuple[FenceRecord, ...]) -> None:
        """Take over what the previous instance has recorded."""
        for record in records:
            self.see(record.job_id, record.highest)
            if record.over:
                self.end(record.job_id, record.over)

    def _touch(self, job_id: JobId) -> _Fence:
        self._records = None
        fence = self._jobs.pop(job_id, None) or _Fence()
        self._jobs[job_id] = fence
        return fence
