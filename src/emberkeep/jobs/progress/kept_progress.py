"""What an attempt keeps of a job's progress for the next attempt, and for readers without a driver."""

from __future__ import annotations

from emberkeep.base.compatible import Compatible
from emberkeep.jobs.progress.course import Course
from emberkeep.jobs.progress.history import QueryHistory


class KeptProgress(Compatible, frozen=True, kw_only=True):
    """The histories of the job's streaming queries, and its course; None if it was too short for one."""

    queries: tuple[QueryHistory, ...]
    course: Course | None = None


NOTHING_KEPT = KeptProgress(queries=())
