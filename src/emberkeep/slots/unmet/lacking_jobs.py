"""The jobs that lack slots: those that the next round of matching serves. Part of the SlotManager."""

from __future__ import annotations

from collections.abc import Iterator

from emberkeep.slots.ledger import JobAccount
from emberkeep.slots.shelves import Due


class LackingJobs:
    """The jobs that lack slots, and only those. As soon as a job lacks a slot, a round of matching is ``due``.

    ``shares``: namespaces have a quota, so what a job gives up may let another job of its namespace have a slot.
    """

    def __init__(self, due: Due, *, shares: bool = False) -> None:
        self._jobs: dict[JobAccount, None] = {}
        self._due = due
        self._shares = shares

    def __iter__(self) -> Iterator[JobAccount]:
        return iter(self._jobs)

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def review(self, job: JobAccount) -> None:
        """Recompute what a job lacks, because its requirements or its slots have changed."""
        job.review()
        if job.wants:
            self._jobs[job] = None
            self._due.slots = True
        else:
            self._jobs.pop(job, None)
            self._give_up(job)

    def drop(self, job: JobAccount) -> None:
        """Drop a job's requirements."""
        job.requirements, job.wants = (), []
        job.without_slot_since = job.lacks_since = None
        self._jobs.pop(job, None)
        self._give_up(job)

    def _give_up(self, job: JobAccount) -> None:
        if self._shares and job.namespace:
            self._due.slots = True

    def begin_round(self, now: float) -> None:
        """Note since when jobs have waited for slots, and for a first one."""
        for job in self._jobs:
            if job.lacks_since is None:
                job.lacks_since = now
            if not job.held and job.without_slot_since is None:
                job.without_slot_since = now

    def end_round(self) -> None:
        """Remove the jobs that a round of matching has given everything."""
        for job in list(self._jobs):
            job.wants = [want for want in job.wants if want.missing]
            if not job.wants:
                job.lacks_since = None
                del self._jobs[job]
