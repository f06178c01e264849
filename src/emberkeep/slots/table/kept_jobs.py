"""The jobs whose files are on a task manager, and when the files of those that hold nothing there are deleted."""

from __future__ import annotations

from collections.abc import Container, Iterable
from itertools import islice

from emberkeep.base.ids import JobId
from emberkeep.slots.table.events import ForgetJob, TableEffect


class KeptJobs:
    """Decides when a job's files on this task manager are deleted. Part of the SlotTable.

    They stay while the job holds a slot or a driver here. After that, they are deleted when the job is known to have
    ended, at the latest after ``kept_for`` seconds.

    ``holding``, an argument of the methods: the jobs that hold something here.
    """

    def __init__(self, kept_for: float) -> None:
        self._kept_for = kept_for
        self._held_at: dict[JobId, float] = {}  # when each job last held something here; least recently named first

    def used_by(self, job_id: JobId, now: float) -> None:
        """Note that a job begins to hold something here."""
        self._held_at[job_id] = now

    def name_left(self, most: int, holding: Container[JobId]) -> tuple[JobId, ...]:
        """Return at most ``most`` jobs that hold nothing here and are not forgotten yet.

        Successive calls name different ones.
        """
        left = tuple(islice((job_id for job_id in self._held_at if job_id not in holding), most))
        for job_id in left:
            self._held_at[job_id] = self._held_at.pop(job_id)
        return left

    def forget_ended(self, job_ids: Iterable[JobId], holding: Container[JobId]) -> list[TableEffect]:
        """Forget the jobs in ``job_ids``, which have ended, except those that hold something here."""
        ended = [job_id for job_id in job_ids if job_id in self._held_at and job_id not in holding]
        return [self._forget(job_id) for job_id in ended]

    def forget_idle(self, now: float, holding: Container[JobId]) -> list[TableEffect]:
        """Forget the jobs that have held nothing here for a long time."""
        effects: list[TableEffect] = []
        for job_id, held_at in list(self._held_at.items()):
            if job_id in holding:
                self._held_at[job_id] = now
            elif now - held_at >= self._kept_for:
                effects.append(self._forget(job_id))
        return effects

    def _forget(self, job_id: JobId) -> ForgetJob:
        del self._held_at[job_id]
        return ForgetJob(job_id)
