"""What is kept of a job's work with its result, so that it is known under each later leader."""

from __future__ import annotations

from emberkeep.base.compatible import Compatible
from emberkeep.jobs.progress.course import Course
from emberkeep.jobs.progress.work import AttemptWork


class KeptWork(Compatible, frozen=True, kw_only=True):
    """What the job's last attempt has done, with nothing active, and the course of the whole job.

    ``app_id``: of its last Spark application; "" if it had none.
    """

    app_id: str
    work: AttemptWork
    course: Course | None = None
