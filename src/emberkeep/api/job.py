"""The job that this process works for."""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

JOB_VARIABLE = "EMBERKEEP_JOB_ID"
ATTEMPT_VARIABLE = "EMBERKEEP_JOB_ATTEMPT"
NAME_VARIABLE = "EMBERKEEP_JOB_NAME"


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """The job of a process.

    ``job_id``: as Emberkeep shows it. ``attempt``: number of this start of the driver, counted from 1. In a process
    that Emberkeep does not run, a Job is falsy, its job id is "" and its attempt 0.
    """

    job_id: str = ""
    attempt: int = 0
    name: str = ""

    def __bool__(self) -> bool:
        return bool(self.job_id)


def current_job() -> Job:
    """Return the job of this driver, executor or Python worker.

    Under plain spark-submit the result is falsy and its fields have their defaults, so scripts need not check whether
    they run under Emberkeep.
    """
    job_id = os.environ.get(JOB_VARIABLE, "")
    if not job_id:
        return Job()
    return Job(
        job_id=job_id, attempt=int(os.environ.get(ATTEMPT_VARIABLE, "0")), name=os.environ.get(NAME_VARIABLE, "")
    )


def job_environment(job: Job) -> Mapping[str, str]:
    """Return the environment variables that ``current_job`` reads in a process."""
    return {JOB_VARIABLE: job.job_id, ATTEMPT_VARIABLE: str(job.attempt), NAME_VARIABLE: job.name}
